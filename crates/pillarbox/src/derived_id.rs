//! Ids that are derived from texts: the same texts give the same id for ever.
//!
//! They are UUIDs of version 8. No producer may choose such an id, so no event can take the id of a row that is imported later, or
//! the mark of a dedupe key in an inbox.

use uuid::{Builder, Uuid};

/// The id of a name within a namespace. Never change it: inboxes hold such ids.
pub fn derived_id(namespace: &Uuid, name: &str) -> Uuid {
    let hash = Uuid::new_v5(namespace, name.as_bytes());
    Builder::from_custom_bytes(hash.into_bytes()).into_uuid()
}

/// Is it an id that only Pillarbox derives? The variant does not matter.
pub(crate) fn is_reserved(id: Uuid) -> bool {
    id.get_version_num() == 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Variant;

    #[test]
    fn a_derived_id_is_reserved_and_the_others_are_not() {
        let id = derived_id(&Uuid::nil(), "order-42");
        assert_eq!((id.get_version_num(), id.get_variant()), (8, Variant::RFC4122));
        assert_eq!(id, derived_id(&Uuid::nil(), "order-42"));
        assert_ne!(id, derived_id(&Uuid::nil(), "order-43"));
        assert!(is_reserved(id));
        for id in [Uuid::nil(), Uuid::max(), Uuid::new_v4(), Uuid::now_v7()] {
            assert!(!is_reserved(id), "{id}");
        }
    }
}
