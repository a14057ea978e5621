-- Prunes workers without a heartbeat for a week.
delete from pillarbox_workers where seen_at < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-7 days')
