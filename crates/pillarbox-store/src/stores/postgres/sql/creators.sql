-- Which roles beside its owner may create in a schema, as they are written in a statement.
-- $1 schema
select distinct case when acl.grantee = 0 then 'public' else acl.grantee::regrole::text end as role
from pg_namespace n, aclexplode(n.nspacl) as acl
where n.nspname = $1::text::name and acl.privilege_type = 'CREATE' and acl.grantee <> n.nspowner
order by role
