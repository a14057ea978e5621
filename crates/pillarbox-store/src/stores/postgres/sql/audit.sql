-- Writes a line of the audit. The time and the database role are the server's.
-- $1 subject   $2 kind   $3 tenant   $4 action   $5 objects   $6 how many   $7 before   $8 after   $9 reason
insert into pillarbox.audit (subject, kind, tenant_id, action, objects, count, before, after, reason)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
