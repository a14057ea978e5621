//! Places on an event's path where a test can end the process, as suddenly as `kill -9` does.
//!
//! In an ordinary build both functions are empty. With the cargo feature `failpoints` they look at two
//! variables of the environment, once, at the first hit:
//!
//! | variable | ends the process |
//! |---|---|
//! | `PILLARBOX_ABORT_AT=after_send` | at the first hit of that failpoint |
//! | `PILLARBOX_ABORT_AT=after_send:40` | at the fortieth: in the middle of a batch |
//! | `PILLARBOX_ABORT_ON_EVENT_TYPE=poison` | whenever an event of that type is about to be sent |
//!
//! The steps are those of "the path of one event":
//!
//! | failpoint | what has happened | what has not |
//! |---|---|---|
//! | `before_save` | a unit of work began | anything in the database |
//! | `after_save` | the application has saved what it changed | the events |
//! | `after_enqueue` | the events of a unit of work are written | the commit |
//! | `before_commit` | the same, and the aggregates know it | the commit |
//! | `after_commit` | a unit of work is committed | this process knowing it |
//! | `saga_locked` | a saga has read the message, and its row is locked | anything in the database |
//! | `saga_saved` | a saga's row and log are written | its next command |
//! | `saga_enqueued` | its next command and that command's timeout are written | the commit |
//! | `before_claim` | nothing | |
//! | `in_claim` | the database has leased rows | the commit |
//! | `after_claim` | rows are leased | anything else |
//! | `before_route` | families are known, in memory | anything in the database |
//! | `in_route` | the database has written families | the commit |
//! | `after_route` | every row has its destination, and families are written | a send |
//! | `before_send` | it is one row's turn | its send |
//! | `after_send` | the sink confirmed one row | its settlement |
//! | `before_settle` | a batch of outcomes is known | the settlement |
//! | `in_settle` | the database has written the batch | the commit |
//! | `after_settle` | the batch is committed | this worker knowing it |
//! | `after_renew` | leases are longer | this worker knowing it |
//! | `after_import` | rows of an adopted table are in the outbox | this worker knowing it |
//! | `after_sweep` | used-up rows are dead | this worker knowing it |
//! | `in_prune` | what was kept long enough is deleted | the commit |
//! | `after_prune` | that is committed | this worker knowing it |
//! | `on_release` | shutdown has begun, unsent rows are to be given back | the settlement |
//! | `consume_received` | a consumer has a message | anything else |
//! | `consume_marked` | the event is marked in the inbox | the handler's effects, the commit |
//! | `consume_handled` | the handler has done its work | the commit |
//! | `consume_committed` | mark and effects are committed | the acknowledgement |
//! | `consume_acked` | the message is acknowledged | this process doing anything else |
//! | `consume_handed_over` | a partition is released | the group assigning it again |
//! | `consume_dead` | a copy is among the dead letters | the acknowledgement |
//!
//! Its state is global, because so is the end of the process.
//!
//! **If we die here** a test asked for it.

/// Every failpoint there is, in the order of an event's path.
pub const ALL: &[&str] = &[
    "before_save",
    "after_save",
    "after_enqueue",
    "before_commit",
    "after_commit",
    "saga_locked",
    "saga_saved",
    "saga_enqueued",
    "before_claim",
    "in_claim",
    "after_claim",
    "before_route",
    "in_route",
    "after_route",
    "before_send",
    "after_send",
    "before_settle",
    "in_settle",
    "after_settle",
    "after_renew",
    "after_import",
    "after_sweep",
    "in_prune",
    "after_prune",
    "on_release",
    "consume_received",
    "consume_marked",
    "consume_handled",
    "consume_committed",
    "consume_acked",
    "consume_handed_over",
    "consume_dead",
];

/// The process passes this place.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn hit(_name: &str) {}

/// An event of this type is about to be sent.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn about_to_send(_event_type: Option<&str>) {}

#[cfg(feature = "failpoints")]
pub use armed::{about_to_send, hit};

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static TRIGGER: OnceLock<Option<Trigger>> = OnceLock::new();
    static POISON: OnceLock<Option<String>> = OnceLock::new();

    /// Goes off at the n-th hit of one failpoint.
    #[derive(Debug)]
    pub(super) struct Trigger {
        name: String,
        at: u64,
        hits: AtomicU64,
    }

    impl Trigger {
        /// Reads `name` or `name:n`. A name that does not exist is refused: the test that asked for it
        /// would wait for a crash that never comes.
        pub(super) fn parse(text: &str) -> Result<Self, String> {
            let (name, at) = text.split_once(':').unwrap_or((text, "1"));
            if !super::ALL.contains(&name) {
                return Err(format!(
                    "there is no failpoint \"{name}\"; there are {:?}",
                    super::ALL
                ));
            }
            let at = at.parse().ok().filter(|at| *at > 0);
            let at = at.ok_or_else(|| format!("\"{text}\" does not say at which hit"))?;
            Ok(Self {
                name: name.to_owned(),
                at,
                hits: AtomicU64::new(0),
            })
        }

        /// Is this the hit?
        pub(super) fn goes_off(&self, name: &str) -> bool {
            name == self.name && self.hits.fetch_add(1, Ordering::Relaxed) + 1 == self.at
        }
    }

    /// The process passes this place.
    pub fn hit(name: &str) {
        let trigger = TRIGGER.get_or_init(|| {
            let text = std::env::var("PILLARBOX_ABORT_AT").ok()?;
            Some(Trigger::parse(&text).unwrap_or_else(|error| panic!("PILLARBOX_ABORT_AT: {error}")))
        });
        if trigger.as_ref().is_some_and(|trigger| trigger.goes_off(name)) {
            abort(name);
        }
    }

    /// An event of this type is about to be sent.
    pub fn about_to_send(event_type: Option<&str>) {
        let poison = POISON.get_or_init(|| std::env::var("PILLARBOX_ABORT_ON_EVENT_TYPE").ok());
        if poison.is_some() && event_type == poison.as_deref() {
            abort("about_to_send");
        }
    }

    /// Prints the place, for the test that waits for it, and runs no destructor.
    fn abort(name: &str) -> ! {
        eprintln!("failpoint {name}: the process ends here");
        std::process::abort()
    }
}

#[cfg(all(test, feature = "failpoints"))]
mod tests {
    use super::armed::Trigger;

    #[test]
    fn it_goes_off_at_the_hit_that_was_asked_for_and_at_no_other() {
        let trigger = Trigger::parse("after_send:3").expect("there is one");
        let hits = [
            "after_send",
            "before_send",
            "after_send",
            "after_send",
            "after_send",
        ];
        let went_off: Vec<bool> = hits.iter().map(|name| trigger.goes_off(name)).collect();
        assert_eq!(went_off, [false, false, false, true, false]);
    }

    #[test]
    fn a_bare_name_means_the_first_hit() {
        assert!(
            Trigger::parse("in_claim")
                .expect("there is one")
                .goes_off("in_claim")
        );
    }

    #[test]
    fn a_name_or_a_number_that_cannot_be_is_refused() {
        assert!(
            Trigger::parse("after_sned")
                .expect_err("no such")
                .contains("there are")
        );
        assert!(Trigger::parse("after_send:0").is_err());
        assert!(Trigger::parse("after_send:x").is_err());
    }
}
