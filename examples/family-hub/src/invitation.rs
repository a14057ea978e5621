//! The aggregate, and the event that it records.

use pillarbox::{Aggregate, Clock, Event, Recorded, SystemClock};
use serde::Serialize;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// How long an invitation can be accepted.
const VALID: Duration = Duration::days(14);

/// A domain value, `{"value": …}` in JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Value<T> {
    pub(crate) value: T,
}

impl<T> Value<T> {
    pub(crate) fn of(value: T) -> Self {
        Self { value }
    }
}

/// A member was invited to a family. Consumers know this shape as version 1.
#[derive(Debug, Serialize, Event)]
#[serde(rename_all = "camelCase")]
#[event(
    namespace = "family-hub.auth",
    topic = "family-members",
    type = "FamilyMemberInvitedEvent",
    version = 1,
    key = Self::family,
    aggregate = "FamilyMemberInvitation",
    aggregate_id = Self::invitation,
)]
struct FamilyMemberInvitedEvent {
    #[event(id)]
    event_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    occurred_on: OffsetDateTime,
    event_version: u32,
    invitation_id: Value<Uuid>,
    family_id: Value<Uuid>,
    email: Value<String>,
    role: Value<String>,
    token: Value<String>,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
    invited_by_user_id: Value<Uuid>,
    is_resend: bool,
}

impl FamilyMemberInvitedEvent {
    /// The ordering key: events of one family are delivered in order.
    fn family(&self) -> String {
        self.family_id.value.to_string()
    }

    fn invitation(&self) -> String {
        self.invitation_id.value.to_string()
    }
}

/// An invitation. Every change records an event.
#[derive(Debug)]
pub(crate) struct FamilyMemberInvitation {
    pub(crate) id: Uuid,
    pub(crate) family: Uuid,
    pub(crate) email: String,
    pub(crate) role: String,
    pub(crate) token: String,
    pub(crate) expires_at: OffsetDateTime,
    recorded: Recorded,
}

impl FamilyMemberInvitation {
    pub(crate) fn create_email_invitation(family: Uuid, email: &str, role: &str, invited_by: Uuid) -> Self {
        let now = SystemClock.wall();
        let mut invitation = Self {
            id: Uuid::now_v7(),
            family,
            email: email.to_owned(),
            role: role.to_owned(),
            token: Uuid::new_v4().simple().to_string(),
            expires_at: now + VALID,
            recorded: Recorded::default(),
        };
        let event = FamilyMemberInvitedEvent {
            event_id: Uuid::now_v7(),
            occurred_on: now,
            event_version: 1,
            invitation_id: Value::of(invitation.id),
            family_id: Value::of(family),
            email: Value::of(invitation.email.clone()),
            role: Value::of(invitation.role.clone()),
            token: Value::of(invitation.token.clone()),
            expires_at: invitation.expires_at,
            invited_by_user_id: Value::of(invited_by),
            is_resend: false,
        };
        invitation.recorded.record(&event);
        invitation
    }
}

impl Aggregate for FamilyMemberInvitation {
    fn recorded(&mut self) -> &mut Recorded {
        &mut self.recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pillarbox::testing::{Expected, assert_enqueued};
    use serde_json::json;

    #[test]
    fn a_new_invitation_records_an_event() {
        let (family, user) = (Uuid::now_v7(), Uuid::now_v7());
        let mut invitation =
            FamilyMemberInvitation::create_email_invitation(family, "john@example.com", "Member", user);
        let id = invitation.id;
        let expected = Expected::event_type("FamilyMemberInvitedEvent")
            .version(1)
            .aggregate("FamilyMemberInvitation", id.to_string())
            .ordering_key(family.to_string())
            .payload_includes(json!({
                "eventVersion": 1,
                "invitationId": {"value": id},
                "familyId": {"value": family},
                "email": {"value": "john@example.com"},
                "role": {"value": "Member"},
                "token": {"value": invitation.token},
                "invitedByUserId": {"value": user},
                "isResend": false,
            }));
        let event = assert_enqueued(invitation.recorded().events(), &expected);
        let payload: serde_json::Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
        assert_eq!(payload["eventId"], json!(event.id));
        assert!(payload["occurredOn"].as_str().unwrap() < payload["expiresAt"].as_str().unwrap());
    }
}
