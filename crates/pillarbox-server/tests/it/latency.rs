//! New events are noticed at once, far sooner than the poll interval.

use std::time::{Duration, Instant};

use pillarbox_testkit::wait::until_ok_blocking;

use crate::command::run;
use crate::fixture::Fixture;
use crate::receiver::{Behaviour, Receiver};

/// A search when idle comes only every minute, so an event that arrives within half of that was noticed.
const CONFIG: &str = "[dispatch]\nlease = \"90s\"\npoll_interval = \"30s\"\n";
const SOON: Duration = Duration::from_secs(15);

fn wait_for_events(receiver: &Receiver, count: usize) {
    until_ok_blocking("the event arrives", || match receiver.requests().len() {
        arrived if arrived >= count => Ok(()),
        arrived => Err(format!("{arrived} of {count}")),
    });
}

/// The first event is found by the searches of the start. The daemon is idle when the second one comes.
fn second_arrives_soon(insert: impl Fn(), receiver: &Receiver) {
    insert();
    wait_for_events(receiver, 1);
    for count in 2..5 {
        let began = Instant::now();
        insert();
        wait_for_events(receiver, count);
        assert!(began.elapsed() < SOON, "after {:?}", began.elapsed());
    }
}

#[test]
fn a_plain_insert_on_an_idle_daemon_arrives_long_before_the_poll_interval() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::postgres(&format!("{CONFIG}{}", receiver.destination("hook")));
    let daemon = fixture.ready();
    let insert = || {
        fixture.sql(
            "insert into SCHEMA.outbox_events (namespace, topic, payload) values ('shop', 'orders', '{}')",
        );
    };
    second_arrives_soon(insert, &receiver);
    drop(daemon);
}

#[test]
fn an_event_of_another_process_in_a_sqlite_file_arrives_long_before_the_poll_interval() {
    let receiver = Receiver::start(Behaviour::Accepts);
    let fixture = Fixture::sqlite(&format!("{CONFIG}{}", receiver.destination("hook")));
    let daemon = fixture.ready();
    let insert = || {
        run(fixture.path(), &["enqueue", "shop", "orders", "{}"]).success();
    };
    second_arrives_soon(insert, &receiver);
    drop(daemon);
}
