-- Lines of the audit, newest first.
-- ?1 subject   ?2 action   ?3 object   ?4 since   ?5 until   ?6 before this seq   ?7 how many   /*tenant*/ is the tenant
-- Index: the primary key, backwards.
select seq, at, subject, kind, tenant_id, action, objects, count, "before", "after", reason
from pillarbox_audit
where seq < ?6 and (?1 is null or subject = ?1) and (?2 is null or action = ?2)
  and (?3 is null or ?3 in (select value from json_each(objects)))
  and (?4 is null or at >= ?4) and (?5 is null or at < ?5) /*tenant*/
order by seq desc limit ?7
