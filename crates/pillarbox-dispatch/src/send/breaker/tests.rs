use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn breaker() -> Breaker {
    Breaker::new("partner".to_owned())
}

/// What happens to a breaker.
#[derive(Debug, Clone, Copy)]
enum Input {
    /// The attempt of this event failed.
    Failed(u64),
    Delivered(u64),
    Rejected(u64),
    Unavailable,
    Throttled(u64),
    CheckPasses,
    CheckFails,
    Disabled,
    Resumed,
}
use Input::{
    CheckFails, CheckPasses, Delivered, Disabled, Failed, Rejected, Resumed, Throttled, Unavailable,
};

fn feed(breaker: &mut Breaker, input: Input, now: Duration) {
    match input {
        Failed(event) => breaker.failed(Subject(event), "503", now, 0.0),
        Delivered(event) => {
            breaker.delivered();
            breaker.arrived(Subject(event));
        }
        Rejected(event) => breaker.arrived(Subject(event)),
        Unavailable => breaker.unavailable("refused", now, 1.0),
        Throttled(seconds) => breaker.throttled("429", Some(s(seconds)), now, 0.0),
        CheckPasses => breaker.checked(Ok(()), now, 1.0),
        CheckFails => breaker.checked(Err("refused".into()), now, 1.0),
        Disabled => drop(breaker.disable("410")),
        Resumed => breaker.resumed(),
    }
}

/// `closed`, `open 10` for the seconds until the check, `half-open`, `disabled`.
fn describe(breaker: &Breaker, now: Duration) -> String {
    match breaker.state {
        State::Closed => "closed".to_owned(),
        State::Open { until, .. } => format!("open {}", until.saturating_sub(now).as_secs()),
        State::HalfOpen => "half-open".to_owned(),
        State::Disabled => "disabled".to_owned(),
    }
}

/// Five different events fail.
const FIVE: [Input; 5] = [Failed(1), Failed(2), Failed(3), Failed(4), Failed(5)];

/// The state after these inputs, each of which comes when the wait before it is over.
fn after(inputs: &[Input]) -> String {
    let mut breaker = breaker();
    let mut now = s(100);
    for input in inputs {
        if matches!(input, CheckPasses | CheckFails) {
            now = breaker.check_at().unwrap_or(now).max(now);
        }
        feed(&mut breaker, *input, now);
    }
    describe(&breaker, now)
}

#[test]
fn every_transition() {
    let opened = |more: &[Input]| [&FIVE[..], more].concat();
    let half_open = |more: &[Input]| [&FIVE[..], &[CheckPasses], more].concat();
    let table: &[(Vec<Input>, &str)] = &[
        (vec![], "closed"),
        // Closed.
        (vec![Delivered(1), Rejected(2)], "closed"),
        (vec![Unavailable], "open 1"),
        (vec![Throttled(50)], "open 50"),
        (vec![Disabled], "disabled"),
        (FIVE[..4].to_vec(), "closed"),
        (vec![Failed(1); 100], "closed"),
        (opened(&[]), "open 10"),
        // Open.
        (vec![Unavailable, Unavailable], "open 1"),
        (vec![Unavailable, CheckFails], "open 2"),
        (vec![Unavailable, CheckPasses], "closed"),
        (vec![Unavailable, Delivered(1)], "open 1"),
        (vec![Unavailable, Throttled(9)], "open 9"),
        (vec![Throttled(9), Throttled(5)], "open 9"),
        (vec![Throttled(9), CheckPasses], "closed"),
        (opened(&[Failed(6), Failed(7), Unavailable]), "open 10"),
        (opened(&[CheckFails]), "open 1"),
        (opened(&[CheckFails, CheckPasses]), "half-open"),
        (opened(&[CheckPasses]), "half-open"),
        (opened(&[Delivered(6)]), "closed"),
        (opened(&[Throttled(60), CheckPasses]), "half-open"),
        (opened(&[Disabled]), "disabled"),
        // Half-open.
        (half_open(&[Delivered(6)]), "closed"),
        (half_open(&[Rejected(6)]), "closed"),
        (half_open(&[Failed(6)]), "open 20"),
        (half_open(&[Failed(6), CheckPasses, Failed(7)]), "open 40"),
        (half_open(&[Failed(6), CheckPasses, Failed(6)]), "half-open"),
        (
            half_open(&[Failed(6), CheckPasses, Failed(6), Failed(7)]),
            "open 40",
        ),
        (half_open(&[Unavailable]), "open 1"),
        (half_open(&[Unavailable, CheckPasses]), "half-open"),
        (half_open(&[Throttled(60)]), "open 60"),
        (half_open(&[Disabled]), "disabled"),
        (half_open(&[Delivered(6), Failed(7)]), "closed"),
        // Disabled.
        (vec![Disabled, CheckPasses, Unavailable, Throttled(5)], "disabled"),
        (vec![Disabled, Delivered(1), Failed(1)], "disabled"),
        (vec![Disabled, Resumed], "closed"),
        (vec![Unavailable, Resumed], "open 1"),
    ];
    for (inputs, state) in table {
        assert_eq!(after(inputs), *state, "{inputs:?}");
    }
}

#[test]
fn what_the_sender_may_do_in_each_state() {
    let of = |inputs: &[Input]| {
        let mut breaker = breaker();
        for input in inputs {
            let now = breaker.check_at().unwrap_or_default();
            feed(&mut breaker, *input, now);
        }
        (
            breaker.concurrency(16),
            breaker.is_tripped(),
            breaker.check_at().is_some(),
            breaker.state().map(|(state, _)| state),
        )
    };
    let half_open = [&FIVE[..], &[CheckPasses]].concat();
    assert_eq!(of(&[]), (16, false, false, None));
    assert_eq!(of(&FIVE), (0, true, true, Some(BreakerState::Open)));
    assert_eq!(of(&half_open), (1, false, false, Some(BreakerState::HalfOpen)));
    assert_eq!(of(&[Disabled]), (0, true, false, None));
}

#[test]
fn failed_events_open_it_for_10_seconds_doubling_to_5_minutes() {
    let mut breaker = breaker();
    for input in FIVE {
        feed(&mut breaker, input, s(0));
    }
    let mut waits = vec![breaker.check_at().expect("open").as_secs()];
    for event in 10..16 {
        let now = breaker.check_at().expect("open");
        feed(&mut breaker, CheckPasses, now);
        feed(&mut breaker, Failed(event), now);
        waits.push((breaker.check_at().expect("open") - now).as_secs());
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(failing_wait(u32::MAX, 0.0), LONGEST_FAILING);
    feed(&mut breaker, Delivered(9), s(9_999));
    for input in [Failed(21), Failed(22), Failed(23), Failed(24), Failed(25)] {
        feed(&mut breaker, input, s(9_999));
    }
    assert_eq!(
        breaker.check_at(),
        Some(s(10_009)),
        "a delivery ends the doubling"
    );
}

#[test]
fn poison_events_alone_do_not_keep_it_open() {
    let mut breaker = breaker();
    for input in FIVE {
        feed(&mut breaker, input, s(100));
    }
    feed(&mut breaker, CheckPasses, s(110));
    feed(&mut breaker, Failed(1), s(110));
    feed(&mut breaker, CheckPasses, s(200));
    for _ in 0..10 {
        feed(&mut breaker, Failed(1), s(200));
    }
    assert!(breaker.is_half_open(), "others get their turn");
}

#[test]
fn many_failures_at_once_open_it_once() {
    let mut breaker = breaker();
    for _ in 0..100 {
        breaker.unavailable("refused", s(10), 1.0);
    }
    assert_eq!(breaker.check_at(), Some(s(11)));
    assert_eq!(breaker.wait(s(10)), Some(s(1)));
}

#[test]
fn failed_checks_double_the_wait_up_to_the_longest() {
    let mut breaker = breaker();
    breaker.unavailable("refused", s(0), 1.0);
    let mut waits = Vec::new();
    for _ in 0..7 {
        let now = breaker.check_at().expect("open");
        breaker.checked(Err("refused".into()), now, 1.0);
        waits.push((breaker.check_at().expect("open") - now).as_secs());
    }
    assert_eq!(waits, [2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_check_closes_it_and_only_a_delivery_ends_the_doubling() {
    let mut breaker = breaker();
    breaker.unavailable("refused", s(0), 1.0);
    breaker.checked(Ok(()), s(1), 1.0);
    assert!(!breaker.holds() && breaker.wait(s(1)).is_none());
    breaker.unavailable("refused", s(1), 1.0);
    assert_eq!(breaker.check_at(), Some(s(3)));
    breaker.checked(Ok(()), s(3), 1.0);
    breaker.delivered();
    breaker.unavailable("refused", s(3), 1.0);
    assert_eq!(breaker.check_at(), Some(s(4)));
}

#[test]
fn the_longest_throttle_counts_up_to_a_day() {
    let mut breaker = breaker();
    breaker.throttled("slow", Some(s(50)), s(0), 0.0);
    breaker.throttled("slow", Some(s(20)), s(0), 0.0);
    assert_eq!(breaker.check_at(), Some(s(50)));
    breaker.throttled("slow", Some(s(1_000_000)), s(0), 0.0);
    assert_eq!(breaker.check_at(), Some(LONGEST_THROTTLE));
}

#[test]
fn an_earlier_check_does_not_shorten_a_throttle() {
    let mut breaker = breaker();
    breaker.unavailable("refused", s(0), 1.0);
    breaker.throttled("slow", Some(s(60)), s(1), 0.0);
    breaker.checked(Ok(()), s(2), 0.0);
    assert_eq!(breaker.check_at(), Some(s(61)));
}

#[test]
fn a_pause_stops_sending_and_needs_no_check() {
    let mut breaker = breaker();
    breaker.unavailable("refused", s(0), 1.0);
    breaker.set_paused(true);
    assert!(breaker.holds() && breaker.check_at().is_none() && breaker.remind_at().is_none());
    breaker.set_paused(false);
    breaker.resumed();
    assert_eq!(breaker.check_at(), Some(s(1)), "it is still open");
}

#[test]
fn a_disabled_destination_is_sent_to_again_when_an_operator_resumes_it() {
    let mut breaker = breaker();
    assert!(breaker.disable("410") && !breaker.disable("410"));
    assert_eq!(breaker.wait(s(9)), Some(PAUSED));
    breaker.set_paused(true);
    assert!(breaker.holds());
    breaker.set_paused(false);
    assert!(breaker.holds());
    breaker.resumed();
    assert!(!breaker.holds());
}

#[test]
fn a_destination_that_an_operator_resumes_has_no_failed_events() {
    let resumed =
        |before: &[Input], after_it: &[Input]| after(&[before, &[Disabled, Resumed], after_it].concat());
    // They would be the first four of five.
    assert_eq!(resumed(&FIVE[..4], &FIVE[4..]), "closed");
    // It would open for twice the time, and a passed check would not close it.
    assert_eq!(resumed(&FIVE, &FIVE), "open 10");
    assert_eq!(resumed(&FIVE, &[Unavailable, CheckPasses]), "closed");
}

#[test]
fn a_long_outage_is_logged_once_a_minute() {
    let mut breaker = breaker();
    breaker.unavailable("refused", s(0), 1.0);
    let reminded: Vec<u64> = (0..=200)
        .filter(|&second| {
            let is_due = breaker.remind_at().is_some_and(|at| at <= s(second));
            breaker.remind(s(second));
            is_due
        })
        .collect();
    assert_eq!(reminded, [60, 120, 180]);
    breaker.checked(Ok(()), s(201), 1.0);
    assert_eq!(breaker.remind_at(), None);
    for input in FIVE {
        feed(&mut breaker, input, s(300));
    }
    assert_eq!(breaker.remind_at(), Some(s(360)));
    feed(&mut breaker, CheckPasses, s(310));
    assert_eq!(breaker.remind_at(), None, "it may be idle from now on");
}
