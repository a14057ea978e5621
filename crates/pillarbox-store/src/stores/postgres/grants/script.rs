//! A grant as a script, if a DBA reviews changes of roles.

use super::{Bounds, Duty, create_role, literal, statements};
use crate::store::StoreError;
use crate::stores::postgres::row_security::row_security_script;

/// The statements that grant a role its duty, as a script for `psql`: one transaction, with its line of the audit. They replace the
/// bounds that the role has in this duty. With `create`, they create it. For a role of an API, row-level security is switched on
/// first, outside of this transaction.
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
    let secure = duty.is_secured().then(|| row_security_script(schema, true));
    let create = create.then(|| create_role(role));
    Ok(format!(
        "{secure}begin;\n{create}{statements}select \"{schema}\".keep_policies();\n\
         insert into \"{schema}\".audit (subject, kind, action, objects, count, after, reason)\n\
         values (session_user, 'operator', 'grant', array[{role}], 1, {after}, {reason});\ncommit;\n",
        secure = secure.transpose()?.unwrap_or_default(),
        create = create.transpose()?.unwrap_or_default(),
        statements = statements(duty, bounds, schema, role)?,
        role = literal(role),
        after = literal(&bounds.of(duty).to_string()),
        reason = literal(reason.unwrap_or("granted by a script")),
    ))
}
