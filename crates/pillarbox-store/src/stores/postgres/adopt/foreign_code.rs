//! Code of other roles that runs when Pillarbox reads or writes an adopted table.
//!
//! PostgreSQL runs triggers, defaults, generated columns, checks and index expressions with the rights of the role that writes:
//! the dispatcher's. Their owner can read and change the whole outbox.

use sqlx::PgConnection;

use super::inspect::relation;
use super::layout::Layout;
use crate::store::StoreError;
use crate::stores::postgres::store_error;

/// The table, and the functions that statements on it call, each with an owner who is not trusted with the outbox: another role
/// than ours, the outbox's owner and superusers. Functions of PostgreSQL itself have no entries in `pg_depend`.
/// $1 the schema of the table, or null   $2 the table   $3 the schema of the outbox   $4 further roles that are trusted
const FOREIGN: &str = concat!(
    "with recursive adopted (oid) as (
  select ",
    relation!("$1", "$2"),
    "
), relation (oid) as (
  select oid from adopted
  union select inhrelid from pg_inherits join relation r on r.oid = inhparent
), trusted (oid) as (
  select oid from pg_roles where rolname = current_user or rolsuper or rolname = any($4::text[])
  union select nspowner from pg_namespace where nspname = $3::text::name
), kinds (oid) as (
  select a.atttypid from pg_attribute a join relation r on r.oid = a.attrelid where a.attnum > 0 and not a.attisdropped
  union select t.typbasetype from pg_type t join kinds k on k.oid = t.oid where t.typtype = 'd'
), code (what, classid, objid) as (
  select 'a default or generated column', 'pg_attrdef'::regclass, d.oid from pg_attrdef d join relation r on r.oid = d.adrelid
  union all
  select 'the check ' || quote_ident(c.conname), 'pg_constraint'::regclass, c.oid from pg_constraint c
  where c.conrelid in (select oid from relation) or c.contypid in (select oid from kinds)
  union all
  select 'the index ' || c.relname, 'pg_class'::regclass, c.oid
  from pg_index i join relation r on r.oid = i.indrelid join pg_class c on c.oid = i.indexrelid
  union all
  select 'the rule ' || quote_ident(w.rulename), 'pg_rewrite'::regclass, w.oid
  from pg_rewrite w join relation r on r.oid = w.ev_class
  union all
  select 'the policy ' || quote_ident(p.polname), 'pg_policy'::regclass, p.oid
  from pg_policy p join relation r on r.oid = p.polrelid
), calls (what, function) as (
  select 'the trigger ' || quote_ident(t.tgname), t.tgfoid
  from pg_trigger t join relation r on r.oid = t.tgrelid where not t.tgisinternal
  union all
  select c.what, d.refobjid from code c
  join pg_depend d on d.classid = c.classid and d.objid = c.objid and d.refclassid = 'pg_proc'::regclass
)
select distinct found.warning from (
  select 1 as place, format('it belongs to the role %s, which can add triggers and functions to it', c.relowner::regrole) as warning
  from pg_class c join adopted using (oid) where c.relowner not in (select oid from trusted)
  union all
  select 2, format('%s calls %s of the role %s', c.what, c.function::regprocedure, p.proowner::regrole)
  from calls c join pg_proc p on p.oid = c.function where p.proowner not in (select oid from trusted)
) as found order by 1"
);

/// What other roles can run as ours by way of this table, for operators. `schema` is the outbox's. Code of `trusted` roles is
/// not listed.
///
/// # Errors
/// When the database does not answer.
pub async fn foreign_code(
    connection: &mut PgConnection,
    layout: &Layout,
    schema: &str,
    trusted: &[String],
) -> Result<Vec<String>, StoreError> {
    let (home, table) = layout.names();
    sqlx::query_scalar(FOREIGN)
        .bind(home)
        .bind(table)
        .bind(schema)
        .bind(trusted)
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(store_error)
}
