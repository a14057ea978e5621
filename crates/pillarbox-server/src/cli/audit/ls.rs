//! `pillarbox audit ls`

use clap::Args;
use pillarbox_store::audit::{AuditFilter, AuditRecord};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;

use super::super::actor;
use super::super::database_args::DatabaseArgs;
use super::Which;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  pillarbox audit ls --since 24h
  pillarbox audit ls --action events.delete
  pillarbox audit ls --object 0190c2a4-8f4e-7c3a-9d51-0f2b6d1c7e55
  pillarbox audit ls --limit 100 --before 4711      the next page";

/// Lists lines of the audit.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    #[command(flatten)]
    which: Which,

    /// List at most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// List only lines before this SEQ (the next page)
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

impl Ls {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let database = self.database.open().await?;
        let filter = AuditFilter {
            before: self.before,
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX),
            ..self.which.filter()
        };
        let lines = database.operate().audit(&actor::operator(), &filter).await?;
        if self.json {
            return lines.iter().try_for_each(output::json);
        }
        if lines.is_empty() {
            return output::line("no lines");
        }
        let rows: Vec<Vec<String>> = lines.iter().map(row).collect();
        output::table(
            &[
                "SEQ", "AT", "ACTOR", "KIND", "ACTION", "COUNT", "OBJECT", "BEFORE", "AFTER", "REASON",
            ],
            &rows,
        )?;
        match lines.last() {
            Some(last) if lines.len() == filter.limit => {
                output::line(&format!("(there may be more: use --before {})", last.seq))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn row(line: &AuditRecord) -> Vec<String> {
    let at = line.at.replace_nanosecond(0).unwrap_or(line.at);
    let first = line.objects.first().map_or("-", String::as_str);
    let more = if line.count > 1 { " …" } else { "" };
    vec![
        line.seq.to_string(),
        at.format(&Rfc3339).unwrap_or_default(),
        output::cut(&line.subject, 40),
        line.kind.clone(),
        line.action.clone(),
        line.count.to_string(),
        output::cut(first, 40) + more,
        output::cut(&state(line.before.as_ref()), 60),
        output::cut(&state(line.after.as_ref()), 60),
        output::cut(line.reason.as_deref().unwrap_or("-"), 60),
    ]
}

/// `dead 3, pending 1`, and of a grant `duty producer, namespaces ["shop"], tenants any`. Lists come last, and empty ones not
/// at all.
fn state(value: Option<&Value>) -> String {
    let Some(Value::Object(fields)) = value else {
        return "-".to_owned();
    };
    let (bounds, facts): (Vec<_>, Vec<_>) = fields
        .iter()
        .filter(|(_, value)| !value.as_array().is_some_and(Vec::is_empty))
        .partition(|(_, value)| value.is_array() || value.is_null());
    let pairs = facts.into_iter().chain(bounds).map(|(name, value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Null => format!("{name} any"),
        other => format!("{name} {other}"),
    });
    pairs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_grant_begins_with_its_duty_and_shows_what_it_is_bound_to() {
        let producer =
            json!({"duty": "producer", "destinations": [], "namespaces": ["shop"], "tenants": null});
        assert_eq!(
            state(Some(&producer)),
            r#"duty producer, namespaces ["shop"], tenants any"#
        );
        assert_eq!(
            state(Some(&json!({"pending": 1, "dead": 3}))),
            "dead 3, pending 1"
        );
        assert_eq!(state(None), "-");
    }
}
