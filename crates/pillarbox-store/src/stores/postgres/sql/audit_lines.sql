-- Lines of the audit, newest first.
-- $1 the tenant, or null for all   $2 subject   $3 action   $4 object   $5 since   $6 until   $7 before this seq   $8 how many
-- Index: the primary key, backwards; audit_by_tenant for a tenant.
select seq, at, subject, kind, role::text as role, tenant_id, action, objects, count, before, after, reason
from pillarbox.audit
where ($1::uuid is null or tenant_id = $1) and ($2::text is null or subject = $2) and ($3::text is null or action = $3)
  and ($4::text is null or $4 = any(objects)) and ($5::timestamptz is null or at >= $5)
  and ($6::timestamptz is null or at < $6) and ($7::bigint is null or seq < $7)
order by seq desc limit $8
