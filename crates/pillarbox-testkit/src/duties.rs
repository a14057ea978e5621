//! Database roles that are there for one test, each with the duties of `pillarbox grant` and no more.
//!
//! What a program may do is proven only by a login that may do nothing else. So tests let consumers, producers, orchestrators
//! and dispatchers log in as such a role, and [`refuse_owners`] fails the one that does not.

use pillarbox_store::stores::postgres::{Bounds, Duty, Postgres};
use sqlx::{AssertSqlSafe, PgPool};

use crate::OPERATOR;

/// Creates a role that may log in, and grants it these duties in an outbox. Returns the URL with which it logs in.
///
/// # Panics
/// If the store is not the owner's, or the URL has no user.
pub async fn create_role(owner: &Postgres, url: &str, role: &str, duties: &[(Duty, Bounds)]) -> String {
    for (duty, bounds) in duties {
        let granted = owner.grant(&OPERATOR, *duty, bounds, role, true).await;
        granted.unwrap_or_else(|error| panic!("{role} becomes a {}: {error}", duty.name()));
    }
    log_in_as(url, role)
}

/// The same URL with another user, who needs no password.
///
/// # Panics
/// If the URL has no user.
pub fn log_in_as(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("the URL has a scheme");
    let (_, address) = rest.split_once('@').expect("the URL has a user");
    format!("{scheme}://{role}@{address}")
}

/// Lets every insert into these tables of an outbox fail whose login is the owner, a member of it or a superuser.
///
/// # Panics
/// If PostgreSQL does not answer.
pub async fn refuse_owners(owner: &PgPool, schema: &str, tables: &[&str]) {
    let mut statements = format!(
        "create function {schema}.refuse_owners() returns trigger language plpgsql as $$ begin
           if pg_has_role(session_user, (select relowner from pg_class where oid = tg_relid), 'member') then
             raise exception 'the login % owns %: a test lets a program log in beyond its duty', session_user, tg_relid::regclass;
           end if;
           return null;
         end $$;"
    );
    for table in tables {
        statements += &format!(
            "create trigger refuse_owners before insert on {schema}.{table} for each statement
               execute function {schema}.refuse_owners();"
        );
    }
    execute(owner, statements).await;
}

/// Drops a role of [`create_role`], with what it was granted in this database.
///
/// # Panics
/// If PostgreSQL does not answer.
pub async fn drop_role(owner: &PgPool, role: &str) {
    execute(owner, format!("drop owned by {role}; drop role {role}")).await;
}

async fn execute(owner: &PgPool, statements: String) {
    let done = sqlx::raw_sql(AssertSqlSafe(statements)).execute(owner).await;
    done.expect("PostgreSQL answers");
}

#[cfg(test)]
mod tests {
    use super::log_in_as;

    #[test]
    fn another_user_has_no_password() {
        assert_eq!(
            log_in_as("postgres://a:secret@b:5432/c", "shop"),
            "postgres://shop@b:5432/c"
        );
    }
}
