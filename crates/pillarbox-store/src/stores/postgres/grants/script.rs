//! A grant as a script, if a DBA reviews changes of roles.

use super::{Bounds, Duty, create_role, literal, statements};
use crate::store::StoreError;
use crate::stores::postgres::row_security::{create_indexes, switch_to};

/// The statements that grant a role its duty, as a script for `psql`: one transaction, with its line of the audit. They replace the
/// bounds that the role has in this duty. With `create`, they create it. For a role of an API, row-level security is switched on
/// first, in the same transaction: `psql` goes on after an error, and the role would have privileges without the policy that confines
/// it.
///
/// # Errors
/// When the name of the schema or of the role is invalid.
pub fn grant_script(
    duty: Duty,
    bounds: &Bounds,
    schema: &str,
    role: &str,
    create: bool,
    reason: Option<&str>,
) -> Result<String, StoreError> {
    let (indexes, secure) = if duty.is_secured() {
        (create_indexes(schema)?, switch_to(schema, true))
    } else {
        Default::default()
    };
    let create = create.then(|| create_role(role));
    Ok(format!(
        "{indexes}begin;\n{create}{secure}{statements}select \"{schema}\".keep_policies();\n\
         insert into \"{schema}\".audit (subject, kind, action, objects, count, after, reason)\n\
         values (session_user, 'operator', 'grant', array[{role}], 1, {after}, {reason});\ncommit;\n",
        create = create.transpose()?.unwrap_or_default(),
        statements = statements(duty, bounds, schema, role)?,
        role = literal(role),
        after = literal(&bounds.of(duty).to_string()),
        reason = literal(reason.unwrap_or("granted by a script")),
    ))
}
