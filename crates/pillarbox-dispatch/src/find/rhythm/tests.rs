use super::*;

const LONGEST: Duration = Duration::from_millis(500);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A rhythm after its first search, a minute before.
fn rhythm(is_watched: bool) -> Rhythm {
    let mut rhythm = Rhythm::new(LONGEST);
    rhythm.hear(Heard::Watched(is_watched), ms(0));
    assert_eq!(rhythm.step(false, false, ms(0)), Step::Search);
    rhythm.hear(Heard::Ended, ms(0));
    rhythm.searched(ms(0), false, None, ms(0));
    rhythm
}

/// A rhythm that has been idle for a minute, just after a search.
fn idle(is_watched: bool) -> (Rhythm, Duration) {
    let mut rhythm = rhythm(is_watched);
    let mut now = ms(0);
    while now < ms(60_000) {
        now += match rhythm.step(true, false, now) {
            Step::Wait(wait) => wait,
            Step::Probe => {
                rhythm.hear(Heard::Exhausted(0), now);
                Duration::ZERO
            }
            Step::Search => {
                rhythm.searched(now, false, None, now);
                Duration::ZERO
            }
        };
    }
    assert_eq!(rhythm.step(true, false, now), Step::Search);
    rhythm.searched(now, false, None, now);
    (rhythm, now)
}

/// The steps until `end`, with their times in ms after `began`. Probes claim nothing.
fn steps(rhythm: &mut Rhythm, began: Duration, end: Duration) -> Vec<(&'static str, u64)> {
    let (mut steps, mut now) = (Vec::new(), began);
    let at = |now: Duration| u64::try_from((now - began).as_millis()).unwrap();
    while now < began + end {
        match rhythm.step(true, false, now) {
            Step::Wait(wait) => now += wait,
            Step::Probe => {
                steps.push(("probe", at(now)));
                rhythm.hear(Heard::Exhausted(0), now);
            }
            Step::Search => {
                steps.push(("search", at(now)));
                rhythm.searched(now, false, None, now);
            }
        }
    }
    steps
}

#[test]
fn an_idle_worker_searches_every_poll_interval_and_half_as_often_while_it_watches() {
    for (is_watched, expected) in [(false, [500, 1000, 1500]), (true, [1000, 2000, 3000])] {
        let (mut rhythm, now) = idle(is_watched);
        let searched = steps(&mut rhythm, now, expected.map(ms)[2] + ms(1));
        assert_eq!(
            searched,
            expected.map(|at| ("search", at)),
            "watched: {is_watched}"
        );
    }
}

#[test]
fn a_wake_probes_at_once_and_searches_if_that_claims_nothing() {
    for heard in [Heard::Woken, Heard::Begun(1)] {
        let (mut rhythm, now) = idle(true);
        let now = now + ms(100);
        rhythm.hear(heard, now);
        assert_eq!(steps(&mut rhythm, now, ms(1)), [("probe", 0), ("search", 0)]);
    }
}

#[test]
fn without_recent_backlogs_a_wake_searches_at_once() {
    let (mut rhythm, now) = idle(true);
    rhythm.hear(Heard::Begun(1), now + ms(100));
    assert_eq!(rhythm.step(false, false, now + ms(100)), Step::Search);
}

#[test]
fn polls_are_a_quarter_of_the_time_since_the_activity_apart() {
    let (mut rhythm, now) = idle(false);
    let now = now + ms(100);
    rhythm.hear(Heard::Woken, now);
    let steps = steps(&mut rhythm, now, ms(10_000));
    let mut before = 0;
    for (what, at) in &steps {
        let most = (at / 4 + 1).clamp(5, 501);
        assert!(at - before <= most, "{what} at {at}: {steps:?}");
        before = *at;
    }
    let soon = steps.iter().filter(|(_, at)| *at < 10).count();
    let late = steps.iter().filter(|(_, at)| *at > 5_000).count();
    assert!((4..=9).contains(&soon), "{soon}: {steps:?}");
    assert!((9..=11).contains(&late), "{late}: {steps:?}");
    assert!(steps.len() < 80, "{}: {steps:?}", steps.len());
}

#[test]
fn a_worker_that_claimed_all_that_was_begun_is_quiet() {
    let (mut rhythm, now) = idle(true);
    let now = now + ms(100);
    rhythm.hear(Heard::Begun(2), now);
    assert_eq!(rhythm.step(true, false, now), Step::Probe);
    assert_eq!(rhythm.wants_watch(), None, "it may claim all of them");
    rhythm.hear(Heard::Exhausted(2), now + ms(1));
    assert_eq!(rhythm.wants_watch(), Some(false));
    assert_eq!(steps(&mut rhythm, now + ms(1), ms(800)), []);
}

#[test]
fn a_worker_polls_for_what_is_missing_until_all_transactions_have_ended() {
    let (mut rhythm, now) = idle(true);
    let now = now + ms(100);
    rhythm.hear(Heard::Begun(2), now);
    assert_eq!(rhythm.step(true, false, now), Step::Probe);
    rhythm.hear(Heard::Exhausted(1), now + ms(1));
    assert_eq!(rhythm.wants_watch(), Some(true));
    let polls = steps(&mut rhythm, now + ms(1), ms(100));
    assert!(polls.len() > 10, "{polls:?}");
    let ended = now + ms(110);
    rhythm.hear(Heard::Ended, ended);
    assert_eq!(steps(&mut rhythm, ended, ms(1)).last(), Some(&("search", 0)));
    assert_eq!(steps(&mut rhythm, ended + ms(1), ms(900)), []);
    assert_eq!(rhythm.wants_watch(), Some(false));
}

#[test]
fn under_load_polls_follow_each_other_without_a_watch() {
    let (mut rhythm, began) = idle(true);
    let (mut now, mut probes, mut searches) = (began + ms(100), 0, 0);
    rhythm.hear(Heard::Begun(1), now);
    let end = now + ms(1000);
    while now < end {
        match rhythm.step(true, false, now) {
            Step::Wait(wait) => {
                now += wait;
                continue;
            }
            Step::Probe => probes += 1,
            Step::Search => {
                searches += 1;
                rhythm.searched(now, true, None, now);
            }
        }
        rhythm.hear(Heard::Exhausted(5), now);
        if probes > 1 {
            assert_eq!(rhythm.wants_watch(), None);
        }
        if probes == 1 {
            rhythm.hear(Heard::Begun(5), now + ms(1));
        }
    }
    assert!((400..=501).contains(&probes), "{probes}");
    assert!((30..=41).contains(&searches), "{searches}");
    // The load is over, and the watch takes over.
    steps(&mut rhythm, now, ms(30));
    assert_eq!(rhythm.wants_watch(), Some(true));
}

#[test]
fn wakes_in_quick_succession_poll_every_two_milliseconds() {
    let (mut rhythm, began) = idle(true);
    let mut polls = 0;
    for tenth in 0..1000 {
        let now = began + Duration::from_micros(100 * tenth);
        rhythm.hear(Heard::Woken, now);
        match rhythm.step(true, false, now) {
            Step::Wait(_) => continue,
            Step::Probe => {}
            Step::Search => rhythm.searched(now, true, None, now),
        }
        polls += 1;
        rhythm.hear(Heard::Exhausted(1), now);
    }
    assert!((40..=51).contains(&polls), "{polls}");
}

#[test]
fn rows_that_follow_settled_ones_of_their_key_are_no_activity() {
    let (mut rhythm, now) = idle(true);
    for n in 1..20 {
        rhythm.hear(Heard::Exhausted(1), now + ms(n));
    }
    assert_eq!(steps(&mut rhythm, now + ms(20), ms(900)), []);
}

#[test]
fn a_search_rests_four_times_as_long_as_it_took() {
    let (mut rhythm, now) = idle(false);
    rhythm.hear(Heard::Woken, now);
    assert_eq!(rhythm.step(false, false, now + ms(2)), Step::Search);
    rhythm.searched(now + ms(2), false, None, now + ms(102));
    assert_eq!(rhythm.step(true, false, now + ms(102)), Step::Wait(ms(400)));
}

#[test]
fn a_search_comes_when_the_next_row_is_due() {
    let (mut rhythm, now) = idle(true);
    assert_eq!(rhythm.step(true, false, now + ms(1000)), Step::Search);
    rhythm.searched(now + ms(1000), false, Some(ms(70)), now + ms(1000));
    assert_eq!(rhythm.step(true, false, now + ms(1000)), Step::Wait(ms(70)));
    assert_eq!(rhythm.step(true, false, now + ms(1070)), Step::Search);
}

#[test]
fn a_failed_search_stays_due() {
    let (mut rhythm, now) = idle(true);
    assert_eq!(rhythm.step(true, false, now + ms(1000)), Step::Search);
    rhythm.hear(Heard::Exhausted(0), now + ms(1001));
    assert_eq!(rhythm.step(true, false, now + ms(1100)), Step::Search);
}

#[test]
fn a_lost_watch_makes_the_worker_poll_and_a_new_one_ends_that() {
    let (mut rhythm, now) = idle(true);
    rhythm.hear(Heard::Watched(false), now);
    assert!(steps(&mut rhythm, now, ms(2_000)).len() > 20);
    rhythm.hear(Heard::Watched(true), now + ms(2_000));
    assert_eq!(rhythm.wants_watch(), Some(true), "it asks for what it missed");
    rhythm.hear(Heard::Ended, now + ms(2_001));
    steps(&mut rhythm, now + ms(2_001), ms(10));
    assert_eq!(steps(&mut rhythm, now + ms(2_011), ms(900)), []);
}

/// A worker hears of events for a second and can claim none of them. Returns its rhythm, when that ended, and how many searches
/// of this length it made.
fn fruitless(can_probe: bool, took: Duration) -> (Rhythm, Duration, usize) {
    let (mut rhythm, began) = idle(true);
    let (mut now, mut searches, mut is_begun) = (began, 0, false);
    while now < began + ms(1000) {
        match rhythm.step(can_probe, false, now) {
            Step::Wait(wait) => {
                // The watch reports the next event, and then that it was committed.
                now += wait.min(Duration::from_micros(500));
                is_begun = !is_begun;
                rhythm.hear(if is_begun { Heard::Begun(1) } else { Heard::Ended }, now);
                continue;
            }
            Step::Probe => now += ms(1),
            Step::Search => {
                searches += 1;
                rhythm.searched(now, false, None, now + took);
                now += took;
            }
        }
        rhythm.hear(Heard::Exhausted(0), now);
    }
    (rhythm, now, searches)
}

#[test]
fn events_that_a_worker_cannot_claim_make_it_poll_less_and_less_often() {
    for can_probe in [true, false] {
        let (_, _, searches) = fruitless(can_probe, ms(1));
        assert!((10..=70).contains(&searches), "{searches}, probes: {can_probe}");
    }
}

#[test]
fn slow_searches_take_a_fifth_of_the_time_whatever_is_heard() {
    for can_probe in [true, false] {
        let (_, _, searches) = fruitless(can_probe, ms(40));
        assert!((3..=6).contains(&searches), "{searches}, probes: {can_probe}");
    }
}

#[test]
fn a_search_rests_no_longer_than_the_poll_interval() {
    let mut rhythm = rhythm(false);
    let (began, now) = (ms(60_000), ms(90_000));
    assert_eq!(rhythm.step(true, false, began), Step::Search);
    rhythm.searched(began, false, None, now);
    assert_eq!(rhythm.step(false, false, now + LONGEST), Step::Search);
}

#[test]
fn a_claimed_row_makes_polls_quick_again() {
    let (mut rhythm, began, _) = fruitless(true, ms(1));
    let now = began + ms(100);
    rhythm.hear(Heard::Begun(1), now);
    assert_eq!(steps(&mut rhythm, now, ms(1)).len(), 1);
    rhythm.hear(Heard::Begun(1), now + ms(1));
    let Step::Wait(wait) = rhythm.step(true, false, now + ms(1)) else {
        panic!("the last poll was a moment ago");
    };
    assert!(wait > ms(30), "{wait:?}");
    let now = now + ms(100);
    assert!(!matches!(rhythm.step(true, false, now), Step::Wait(_)));
    rhythm.hear(Heard::Exhausted(1), now);
    assert_eq!(rhythm.soon(now), now + SHORTEST);
}
