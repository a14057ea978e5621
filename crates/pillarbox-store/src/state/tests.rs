//! What the state machine allows, case by case and for any sequence of changes.

use super::*;
use proptest::prelude::{Just, Strategy, any};
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 00:00 UTC);
const ME: Uuid = Uuid::from_u128(1);

fn lease(claim: u128, seconds: u64) -> Lease {
    Lease {
        worker: ME,
        claim: Uuid::from_u128(claim),
        until: NOW + Duration::from_secs(seconds),
    }
}

fn claim(state: State, n: u128) -> State {
    state
        .step(
            Change::Claim {
                lease: lease(n, 30),
                limit: 3,
            },
            NOW,
        )
        .expect("claimable")
}

fn settle(state: State, n: u128, verdict: Verdict) -> Result<State, TransitionError> {
    state.step(
        Change::Settle {
            worker: ME,
            claim: Uuid::from_u128(n),
            verdict,
        },
        NOW,
    )
}

#[test]
fn a_claim_counts_an_attempt_and_a_release_gives_it_back() {
    let row = claim(State::new(NOW), 1);
    assert_eq!((row.status.clone(), row.attempts), (Status::Processing, 1));
    let row = settle(
        row,
        1,
        Verdict::Release {
            after: Duration::ZERO,
            reason: None,
        },
    )
    .expect("held");
    assert_eq!((row.status, row.attempts, row.lease), (Status::Pending, 0, None));
}

#[test]
fn a_lost_claim_cannot_settle() {
    let row = claim(State::new(NOW), 1);
    let later = NOW + Duration::from_secs(31);
    let row = row
        .step(
            Change::Claim {
                lease: lease(2, 60),
                limit: 3,
            },
            later,
        )
        .expect("expired");
    assert_eq!(row.attempts, 2);
    assert_eq!(settle(row, 1, Verdict::Delivered), Err(TransitionError::NotHeld));
}

#[test]
fn a_late_settle_of_an_unclaimed_row_is_valid() {
    let row = claim(State::new(NOW), 1);
    let late = NOW + Duration::from_secs(9_999);
    let change = Change::Settle {
        worker: ME,
        claim: Uuid::from_u128(1),
        verdict: Verdict::Delivered,
    };
    assert_eq!(row.step(change, late).expect("held").status, Status::Delivered);
}

#[test]
fn a_suspect_is_claimable_after_its_wait_and_cannot_be_settled() {
    let row = claim(State::new(NOW), 1);
    let wait = Duration::from_secs(5);
    let row = settle(
        row,
        1,
        Verdict::Suspect {
            after: wait,
            reason: "connection_lost".into(),
        },
    )
    .expect("held");
    assert_eq!(row.status, Status::Processing);
    assert!(!row.is_expired(NOW + wait));
    assert!(row.is_expired(NOW + wait + Duration::from_millis(1)));
    assert_eq!(settle(row, 1, Verdict::Delivered), Err(TransitionError::NotHeld));
}

#[test]
fn an_exhausted_row_is_swept_a_grace_after_its_lease() {
    let mut row = claim(State::new(NOW), 1);
    row.attempts = 3;
    let sweep = Change::Sweep {
        limit: 3,
        grace: Duration::from_secs(30),
    };
    assert_eq!(
        row.clone().step(sweep.clone(), NOW + Duration::from_secs(60)),
        Err(TransitionError::NotExhausted)
    );
    let row = row.step(sweep, NOW + Duration::from_secs(61)).expect("abandoned");
    assert_eq!(
        (row.status, row.last_error.as_deref()),
        (Status::Dead, Some(SWEPT))
    );
}

#[test]
fn an_operator_can_retry_dead_rows_but_not_delivered_ones() {
    let row = settle(
        claim(State::new(NOW), 1),
        1,
        Verdict::Dead { reason: "no".into() },
    )
    .expect("held");
    let row = row.step(Change::ManualRetry, NOW).expect("dead can be retried");
    assert_eq!((row.status.clone(), row.attempts), (Status::Pending, 0));
    let row = settle(claim(row, 2), 2, Verdict::Delivered).expect("held");
    assert_eq!(
        row.step(Change::ManualRetry, NOW),
        Err(TransitionError::NotRetryable)
    );
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    let after = (0u64..100).prop_map(Duration::from_secs);
    prop_oneof![
        Just(Verdict::Delivered),
        Just(Verdict::Dead {
            reason: "no\0".into()
        }),
        after.clone().prop_map(|after| Verdict::Retry {
            after,
            reason: "again".into()
        }),
        after
            .clone()
            .prop_map(|after| Verdict::Release { after, reason: None }),
        after.prop_map(|after| Verdict::Suspect {
            after,
            reason: "connection_lost".into()
        }),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let claim = (1u128..4).prop_map(Uuid::from_u128);
    prop_oneof![
        (1u128..4, 0u64..60).prop_map(|(n, s)| Change::Claim {
            lease: lease(n, s),
            limit: 3
        }),
        (claim.clone(), verdicts()).prop_map(|(claim, verdict)| Change::Settle {
            worker: ME,
            claim,
            verdict
        }),
        claim.prop_map(|claim| Change::Renew {
            worker: ME,
            claim,
            until: NOW + Duration::from_secs(99)
        }),
        Just(Change::Sweep {
            limit: 3,
            grace: Duration::from_secs(10)
        }),
        Just(Change::ManualRetry),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_changes_breaks_the_rules(
        steps in proptest::collection::vec((changes(), 0u64..50), 1..60), junk in any::<bool>()
    ) {
        let mut now = NOW;
        let mut row = State::new(NOW);
        if junk {
            row.status = Status::Unknown("NEW".into());
        }
        for (change, seconds) in steps {
            now += Duration::from_secs(seconds);
            let before = row.clone();
            let Ok(after) = row.clone().step(change.clone(), now) else { continue };
            prop_assert!(before.status != Status::Delivered, "delivered is final: {change:?}");
            prop_assert!(!junk, "an unknown row is left alone: {change:?}");
            prop_assert!(after.attempts <= 3);
            prop_assert_eq!(after.status == Status::Processing, after.lease.is_some());
            if after.status == Status::Dead {
                prop_assert!(after.last_error.as_ref().is_some_and(|e| !e.is_empty() && !e.contains('\0')));
            }
            if before.status == Status::Dead {
                prop_assert_eq!(change, Change::ManualRetry);
            }
            row = after;
        }
    }
}
