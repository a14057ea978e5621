-- Deletes lanes whose lease expired.
delete from pillarbox_lanes where leased_until < strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
