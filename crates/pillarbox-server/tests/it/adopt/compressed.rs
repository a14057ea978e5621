//! Rows of an adopted table, compressed as they are sent.

use pillarbox_testkit::wait::Load;

use super::seeds::MODKIT;
use super::system::System;
use crate::receiver::{Behaviour, Receiver};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_row_of_an_adopted_table_is_sent_compressed_and_a_small_one_is_not() {
    let system = System::new(Load::Light, &[MODKIT]).await;
    let small = system.produce(MODKIT, 1).await[0];
    let large = system.produce(MODKIT, 1).await[0];
    let text = "payload = jsonb_build_object('text', repeat('all work and no play ', 20000))";
    system.change(MODKIT, large, text).await;
    let receiver = Receiver::start(Behaviour::Accepts);
    let daemon = system.start(&format!(
        "{}compressed = true\ncompress_over = \"64KiB\"\n\
         [[adopt]]\nlayout = \"modkit\"\nnamespaces = [\"*\"]\nto = \"hook\"\npoll = \"100ms\"\n",
        receiver.destination("hook")
    ));
    let is_over = |row: &serde_json::Value| row["status"] == "delivered";
    system.until_all(MODKIT, "are delivered", is_over).await;
    daemon.stop().await;

    let requests = receiver.requests();
    let of = |id: uuid::Uuid| {
        let mut own = requests.iter().filter(|request| request.id() == id.to_string());
        own.next().expect("it came")
    };
    let request = of(large);
    for header in ["content-encoding: zstd", "content-type: application/json"] {
        assert!(request.head.contains(header), "{}", request.head);
    }
    assert!(request.body.len() < 10_000, "{} bytes", request.body.len());
    let request = of(small);
    assert!(!request.head.contains("content-encoding"), "{}", request.head);
    serde_json::from_str::<serde_json::Value>(&request.body).expect("JSON");
    system.remove().await;
}
