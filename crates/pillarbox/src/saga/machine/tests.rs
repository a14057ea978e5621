//! What holds for any saga, whatever it receives and in whatever order.

use proptest::prelude::{Just, ProptestConfig, Strategy, any};
use proptest::{collection, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn plan(compensations: &[bool], attempts: u32) -> Plan {
    let steps = compensations
        .iter()
        .enumerate()
        .map(|(i, &has_compensation)| Planned {
            name: format!("step-{i}"),
            retry: RetryPolicy::steps(vec![Duration::from_secs(1)]).max_attempts(attempts),
            timeout: Duration::from_secs(60),
            has_compensation,
        });
    Plan {
        steps: steps.collect(),
        undo: RetryPolicy::steps(vec![Duration::from_secs(2)]).max_attempts(2),
    }
}

fn attempt(step: usize, action: Action, number: u32) -> Attempt {
    Attempt {
        step: format!("step-{step}"),
        action,
        number,
    }
}

fn answer(to: Attempt, answer: Answer) -> Input {
    Input::Answered {
        to,
        answer,
        reason: None,
    }
}

/// A saga, everything that it sent, and what has become of each step in the world.
struct World {
    plan: Plan,
    state: State,
    sent: Vec<(Attempt, Duration)>,
}

impl World {
    fn new(plan: Plan) -> Self {
        let begun = begin(&plan);
        let mut world = Self {
            plan,
            state: begun.state.clone(),
            sent: Vec::new(),
        };
        world.take(begun);
        world
    }

    fn take(&mut self, moved: Moved) {
        self.state = moved.state;
        if let Some(after) = moved.send {
            let current = self.state.current().expect("what is sent is current");
            self.sent.push((current, after));
        }
    }

    fn tell(&mut self, input: Input) -> Decision {
        let decision = decide(&self.plan, &self.state, input, 0.5).expect("the definition is the same");
        if let Decision::Moved(moved) = &decision {
            self.take(moved.clone());
        }
        decision
    }

    fn current(&self) -> Attempt {
        self.state.current().expect("it has not ended")
    }

    fn answer(&mut self, with: Answer) {
        let decision = self.tell(answer(self.current(), with));
        assert!(matches!(decision, Decision::Moved(_)), "{decision:?}");
    }

    /// Which steps were asked to be undone, in the order of the first time.
    fn undone(&self) -> Vec<String> {
        let mut undone: Vec<String> = Vec::new();
        for (attempt, _) in self
            .sent
            .iter()
            .filter(|(sent, _)| sent.action == Action::Compensation)
        {
            if !undone.contains(&attempt.step) {
                undone.push(attempt.step.clone());
            }
        }
        undone
    }
}

#[test]
fn a_saga_whose_services_answer_is_completed_step_by_step() {
    let mut world = World::new(plan(&[true, true, false], 3));
    for step in 0..3 {
        assert_eq!(world.current(), attempt(step, Action::Command, 1));
        world.answer(Answer::Done);
    }
    assert_eq!(world.state.status, Status::Completed);
    assert_eq!(world.sent.len(), 3);
    assert_eq!(world.state.current(), None);
}

#[test]
fn a_refused_step_is_not_undone_and_those_before_it_are_in_reverse() {
    let mut world = World::new(plan(&[true, true, true], 3));
    world.answer(Answer::Done);
    world.answer(Answer::Done);
    world.answer(Answer::Refused);
    assert_eq!(world.state.status, Status::Compensating);
    world.answer(Answer::Done);
    world.answer(Answer::Done);
    assert_eq!(world.state.status, Status::Compensated);
    assert_eq!(world.undone(), ["step-1", "step-0"]);
}

#[test]
fn a_failed_step_is_tried_again_after_its_wait_until_its_attempts_are_used_up() {
    let mut world = World::new(plan(&[true], 2));
    world.answer(Answer::Failed);
    let second = (attempt(0, Action::Command, 2), Duration::from_secs(1));
    assert_eq!(world.sent.last(), Some(&second));
    world.answer(Answer::Failed);
    assert_eq!(world.state.status, Status::Compensated);
    assert_eq!(world.undone(), Vec::<String>::new(), "it was never done");
}

#[test]
fn a_step_that_timed_out_is_undone_although_a_later_try_was_refused() {
    let mut world = World::new(plan(&[true], 3));
    world.tell(Input::TimedOut(attempt(0, Action::Command, 1)));
    world.answer(Answer::Refused);
    assert_eq!(world.current(), attempt(0, Action::Compensation, 1));
    world.answer(Answer::Done);
    assert_eq!(world.state.status, Status::Compensated);
}

#[test]
fn doubt_about_one_step_says_nothing_about_the_next() {
    let mut world = World::new(plan(&[true, true], 3));
    world.tell(Input::TimedOut(attempt(0, Action::Command, 1)));
    world.answer(Answer::Done);
    world.answer(Answer::Refused);
    assert_eq!(world.current(), attempt(0, Action::Compensation, 1));
}

#[test]
fn an_answer_to_an_earlier_try_changes_nothing() {
    let mut world = World::new(plan(&[true, true], 3));
    world.answer(Answer::Failed);
    let before = world.state.clone();
    for late in [Answer::Done, Answer::Failed, Answer::Refused] {
        let decision = world.tell(answer(attempt(0, Action::Command, 1), late));
        assert_eq!(decision, Decision::Ignored(Why::NotCurrent));
    }
    assert_eq!(world.state, before);
}

#[test]
fn an_answer_to_a_command_is_none_to_its_compensation() {
    let mut world = World::new(plan(&[true], 1));
    world.tell(Input::TimedOut(attempt(0, Action::Command, 1)));
    let late = world.tell(answer(attempt(0, Action::Command, 1), Answer::Done));
    assert_eq!(late, Decision::Ignored(Why::NotCurrent));
    assert_eq!(world.current(), attempt(0, Action::Compensation, 1));
}

#[test]
fn a_compensation_is_tried_for_ever() {
    let mut world = World::new(plan(&[true, true], 1));
    world.answer(Answer::Done);
    world.answer(Answer::Refused);
    for number in 1..200 {
        assert_eq!(world.current(), attempt(0, Action::Compensation, number));
        world.answer(if number % 2 == 0 {
            Answer::Failed
        } else {
            Answer::Refused
        });
        assert_eq!(
            world.sent.last().map(|(_, after)| *after),
            Some(Duration::from_secs(2))
        );
    }
    world.answer(Answer::Done);
    assert_eq!(world.state.status, Status::Compensated);
}

#[test]
fn a_resumed_step_has_all_its_attempts_again_and_its_overtaken_one_is_in_doubt() {
    let mut world = World::new(plan(&[true], 2));
    world.answer(Answer::Failed);
    world.tell(Input::Resume(attempt(0, Action::Command, 2)));
    assert_eq!(world.current(), attempt(0, Action::Command, 3));
    world.answer(Answer::Failed);
    assert_eq!(
        world.current(),
        attempt(0, Action::Command, 4),
        "the second of two"
    );
    world.answer(Answer::Failed);
    assert_eq!(world.current(), attempt(0, Action::Compensation, 1));
}

#[test]
fn what_an_operator_asked_twice_is_done_once() {
    let mut world = World::new(plan(&[true], 2));
    let seen = world.current();
    world.tell(Input::Resume(seen.clone()));
    assert_eq!(
        world.tell(Input::Resume(seen)),
        Decision::Ignored(Why::NotCurrent)
    );
    world.tell(Input::Compensate);
    assert_eq!(
        world.tell(Input::Compensate),
        Decision::Ignored(Why::Compensating)
    );
}

#[test]
fn a_definition_that_lost_or_renamed_a_step_is_refused_and_a_longer_one_is_not() {
    let begun = World::new(plan(&[true, true], 1)).state;
    let mut second = World::new(plan(&[true, true], 1));
    second.answer(Answer::Done);
    let done = || answer(attempt(1, Action::Command, 1), Answer::Done);

    let shorter = plan(&[true], 1);
    assert!(decide(&shorter, &second.state, done(), 0.5).is_err());
    let mut renamed = plan(&[true, true], 1);
    renamed.steps[0].name = "other".to_owned();
    assert!(decide(&renamed, &second.state, done(), 0.5).is_err());
    assert!(decide(&renamed, &second.state, Input::Compensate, 0.5).is_err());

    let longer = plan(&[true, true, true], 1);
    let decision = decide(&longer, &second.state, done(), 0.5).expect("it begins the same");
    assert!(matches!(decision, Decision::Moved(moved) if moved.state.status == Status::Running));
    let first = answer(attempt(0, Action::Command, 1), Answer::Done);
    assert!(
        decide(&shorter, &begun, first, 0.5).is_ok(),
        "what is not begun may change"
    );
}

#[test]
fn a_definition_with_a_step_put_in_between_can_still_be_given_up() {
    let mut world = World::new(plan(&[true, true], 1));
    world.answer(Answer::Done);
    let mut between = plan(&[true, true, true], 1);
    between.steps.swap(1, 2);
    let done = answer(attempt(1, Action::Command, 1), Answer::Done);
    assert!(decide(&between, &world.state, done, 0.5).is_err());
    assert!(decide(&between, &world.state, Input::Compensate, 0.5).is_ok());
}

/// Something that arrives: about a command that was sent, chosen by number, or from an operator.
#[derive(Debug, Clone)]
enum Arrival {
    Answer(usize, Answer),
    Timeout(usize),
    Resume(usize),
    Compensate,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let answers = prop_oneof![
        4 => Just(Answer::Done),
        2 => Just(Answer::Failed),
        1 => Just(Answer::Refused),
    ];
    let one = prop_oneof![
        8 => (any::<usize>(), answers).prop_map(|(to, answer)| Arrival::Answer(to, answer)),
        3 => any::<usize>().prop_map(Arrival::Timeout),
        1 => any::<usize>().prop_map(Arrival::Resume),
        1 => Just(Arrival::Compensate),
    ];
    collection::vec(one, 0..60)
}

/// Any command that was sent so far, the latest most often: so arrivals are doubled, late and out of order.
fn chosen(world: &World, number: usize) -> Attempt {
    let back = if number.is_multiple_of(2) {
        0
    } else {
        (number / 2) % world.sent.len()
    };
    world.sent[world.sent.len() - 1 - back].0.clone()
}

fn arrive(world: &mut World, arrival: &Arrival) {
    let input = match *arrival {
        Arrival::Answer(to, with) => answer(chosen(world, to), with),
        Arrival::Timeout(to) => Input::TimedOut(chosen(world, to)),
        Arrival::Resume(to) => Input::Resume(chosen(world, to)),
        Arrival::Compensate => Input::Compensate,
    };
    world.tell(input);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_arrives_it_ends_and_what_was_begun_is_done_or_undone_in_reverse(
        compensations in collection::vec(any::<bool>(), 1..6),
        attempts in 1u32..4,
        arrivals in arrivals(),
    ) {
        let mut world = World::new(plan(&compensations, attempts));
        let mut done: Vec<String> = Vec::new(); // by what the saga accepted
        let mut doubtful: Option<String> = None; // given up on without an answer
        let mut in_doubt = false;
        let mut play = |world: &mut World, arrival: &Arrival| {
            let before = world.state.clone();
            let sent = world.sent.len();
            let about = before.current();
            arrive(world, arrival);
            if world.state == before {
                prop_assert_eq!(world.sent.len(), sent, "what changes nothing sends nothing");
                return Ok(());
            }
            prop_assert!(!before.status.has_ended(), "an ended saga stays as it is");
            prop_assert!(world.sent.len() <= sent + 1);
            let about = about.expect("it had not ended");
            if before.status == Status::Running {
                match arrival {
                    Arrival::Answer(_, Answer::Done) => {
                        done.push(about.step);
                        in_doubt = false;
                    }
                    Arrival::Answer(_, _) if world.state.status != Status::Running => {
                        doubtful = in_doubt.then_some(about.step);
                    }
                    Arrival::Answer(_, _) => {}
                    Arrival::Timeout(_) | Arrival::Resume(_) | Arrival::Compensate => {
                        in_doubt = true;
                        if world.state.status != Status::Running {
                            doubtful = Some(about.step);
                        }
                    }
                }
            }
            Ok(())
        };
        for arrival in &arrivals {
            play(&mut world, arrival)?;
        }
        // The services answer at last.
        for _ in 0..2 * compensations.len() {
            play(&mut world, &Arrival::Answer(0, Answer::Done))?;
        }

        prop_assert!(world.state.status.has_ended());
        let mut seen = std::collections::HashSet::new();
        for (attempt, _) in &world.sent {
            prop_assert!(seen.insert(attempt.clone()), "no two commands are the same attempt");
        }
        let turned = world.sent.iter().position(|(sent, _)| sent.action == Action::Compensation);
        if let Some(turned) = turned {
            let after = &world.sent[turned..];
            prop_assert!(after.iter().all(|(sent, _)| sent.action == Action::Compensation));
        }
        match world.state.status {
            Status::Completed => {
                prop_assert_eq!(done.len(), compensations.len());
                prop_assert_eq!(turned, None);
            }
            Status::Compensated => {
                let begun: Vec<String> = done.into_iter().chain(doubtful).collect();
                let has_way_back = |name: &String| world.plan.step(name).is_some_and(|step| step.has_compensation);
                let expected: Vec<String> = begun.into_iter().rev().filter(has_way_back).collect();
                prop_assert_eq!(world.undone(), expected);
            }
            Status::Running | Status::Compensating => unreachable!("it has ended"),
        }
    }
}
