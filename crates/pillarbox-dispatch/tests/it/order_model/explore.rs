//! All histories, breadth first, so that the shortest violation is found first.

use std::collections::HashMap;

use super::steps::{Step, Steps};
use super::{Rules, Setting, World};

/// The result of an exploration.
pub(super) struct Explored {
    pub(super) states: usize,
    /// The steps up to a row that is sent although it must not be.
    pub(super) violation: Option<Vec<String>>,
    /// Did some history deliver all rows?
    pub(super) completed: bool,
    /// The steps to a state from which no history delivers all rows.
    pub(super) stuck: Option<Vec<String>>,
}

/// Every state, and the first way to it.
#[derive(Default)]
struct Reached {
    places: HashMap<World, usize>,
    worlds: Vec<World>,
    /// The state before each, and the step.
    from: Vec<(usize, Step)>,
}

impl Reached {
    fn add(&mut self, world: World, from: usize, step: Step) -> usize {
        if let Some(place) = self.places.get(&world) {
            return *place;
        }
        let place = self.worlds.len();
        self.places.insert(world.clone(), place);
        self.worlds.push(world);
        self.from.push((from, step));
        place
    }

    fn history(&self, mut place: usize) -> Vec<String> {
        let mut steps = Vec::new();
        while place != 0 {
            let (before, (what, who)) = self.from[place];
            steps.push(format!("{} {what}", ["A", "B", "-"][who]));
            place = before;
        }
        steps.reverse();
        steps
    }
}

/// Explores all histories. With `whole` also those in which no row can overtake another any more, to find stuck states.
pub(super) fn explore(rules: Rules, setting: &Setting, whole: bool) -> Explored {
    let mut reached = Reached::default();
    reached.add(World::new(setting), 0, ("begins", 2));
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let (mut completed, mut place) = (false, 0);
    while let Some(world) = reached.worlds.get(place).cloned() {
        completed |= world.is_done();
        // The later rows cannot be overtaken, and nothing settled comes back.
        if completed && world.is_safe() && rules.settles_fenced && !whole {
            place += 1;
            continue;
        }
        let mut steps = Steps {
            rules,
            world: &world,
            next: Vec::new(),
            violation: None,
        };
        steps.all();
        if let Some(violation) = steps.violation {
            let mut history = reached.history(place);
            history.push(violation);
            return Explored {
                states: reached.worlds.len(),
                violation: Some(history),
                completed,
                stuck: None,
            };
        }
        for (next, step) in steps.next {
            let known = reached.add(next, place, step);
            if whole {
                before.resize_with(reached.worlds.len(), Vec::new);
                before[known].push(place);
            }
        }
        place += 1;
    }
    let stuck = whole.then(|| stuck(&reached, &before)).flatten();
    Explored {
        states: reached.worlds.len(),
        violation: None,
        completed,
        stuck: stuck.map(|place| reached.history(place)),
    }
}

/// The first state from which none is reached in which all rows have arrived.
fn stuck(reached: &Reached, before: &[Vec<usize>]) -> Option<usize> {
    let is_done = |place: &usize| reached.worlds[*place].is_done();
    let mut open: Vec<usize> = (0..reached.worlds.len()).filter(is_done).collect();
    let mut leads_on = vec![false; reached.worlds.len()];
    for place in &open {
        leads_on[*place] = true;
    }
    while let Some(place) = open.pop() {
        let is_new = |place: &usize| !std::mem::replace(&mut leads_on[*place], true);
        open.extend(before[place].iter().copied().filter(is_new));
    }
    leads_on.iter().position(|leads_on| !leads_on)
}
