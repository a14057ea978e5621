//! The lines of the audit.

use time::OffsetDateTime;

use super::Table;
use crate::actor::Actor;
use crate::audit::{AuditFilter, AuditRecord, Line};

impl Table {
    pub(super) fn write(&mut self, line: Line, now: OffsetDateTime) {
        let record = AuditRecord {
            seq: i64::try_from(self.audit.len()).unwrap_or(i64::MAX) + 1,
            at: now,
            subject: line.subject,
            kind: line.kind.as_str().to_owned(),
            role: None,
            tenant_id: line.tenant,
            action: line.action.as_str().to_owned(),
            objects: line.objects,
            count: line.count as u64,
            before: line.before,
            after: line.after,
            reason: line.reason,
        };
        self.audit.push(record);
    }

    pub(super) fn audit_lines(&self, actor: &Actor, filter: &AuditFilter) -> Vec<AuditRecord> {
        let is_wanted = |line: &&AuditRecord| {
            let is = |wanted: &Option<String>, text: &String| wanted.as_ref().is_none_or(|name| name == text);
            (actor.tenant().is_none() || line.tenant_id == actor.tenant())
                && is(&filter.subject, &line.subject)
                && is(&filter.action, &line.action)
                && filter
                    .object
                    .as_ref()
                    .is_none_or(|name| line.objects.contains(name))
                && filter.since.is_none_or(|since| line.at >= since)
                && filter.until.is_none_or(|until| line.at < until)
                && filter.before.is_none_or(|before| line.seq < before)
        };
        let newest = self.audit.iter().rev().filter(is_wanted);
        newest.take(filter.page()).cloned().collect()
    }
}
