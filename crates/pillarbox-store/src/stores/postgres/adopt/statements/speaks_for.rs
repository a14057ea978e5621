//! For whom the rows of a table may speak: its namespaces and tenants.

use super::literal;
use super::typed_layout::TypedLayout;
use crate::stores::postgres::adopt::layout::LayoutError;

impl TypedLayout<'_> {
    /// # Errors
    /// When a column has the namespace and nothing says which ones are allowed, or when no column has what is confined.
    pub(super) fn check_speaks_for(&self) -> Result<(), LayoutError> {
        let impossible = |text: String| Err(LayoutError::Impossible(text));
        let namespaces = &self.speaks_for.namespaces;
        match (&self.layout.namespace, namespaces.is_empty()) {
            (Some(column), true) => impossible(format!(
                "its rows name their namespace in \"{column}\": say which ones they may name with `namespaces` (or \"*\" if its \
                 writers are trusted with all of them)"
            )),
            (None, false) => impossible(format!(
                "all its rows have the namespace `{}`: remove `namespaces`",
                self.name
            )),
            (Some(_), false) | (None, true)
                if self.layout.tenant_id.is_none() && !self.speaks_for.tenants.is_empty() =>
            {
                impossible(
                    "`tenants` needs a column with the tenant (name `tenant_id`, or remove `tenants`)"
                        .to_owned(),
                )
            }
            (Some(_), false) | (None, true) => Ok(()),
        }
    }

    /// Why the row `l` may not be imported; null if it may. It speaks for a namespace or a tenant that is not its own.
    pub(super) fn outside(&self) -> String {
        format!(
            "case when not ({}) then 'its namespace `' || left(l.namespace, 255) || '` is not in `namespaces`'
      when not ({}) then coalesce('its tenant ' || l.tenant_id || ' is not in `tenants`', 'it has no tenant') end",
            self.is_own_namespace(),
            self.is_own_tenant(),
        )
    }

    fn is_own_namespace(&self) -> String {
        if self.layout.namespace.is_none() {
            return "true".to_owned();
        }
        let is_one = |name: &String| match name.strip_suffix('*') {
            Some("") => "true".to_owned(),
            Some(prefix) if prefix.ends_with('.') => format!("starts_with(l.namespace, {})", literal(prefix)),
            Some(_) | None => format!("l.namespace = {}", literal(name)),
        };
        let mut conditions: Vec<String> = self.speaks_for.namespaces.iter().map(is_one).collect();
        conditions.push(format!("l.namespace = {}", literal(self.name)));
        conditions.join(" or ")
    }

    fn is_own_tenant(&self) -> String {
        let tenants = &self.speaks_for.tenants;
        if tenants.is_empty() {
            return "true".to_owned();
        }
        let tenants: Vec<String> = tenants.iter().map(|tenant| format!("'{tenant}'::uuid")).collect();
        format!("coalesce(l.tenant_id in ({}), false)", tenants.join(", "))
    }
}
