use super::*;

#[test]
fn content_type_must_be_a_media_type() {
    let mut layout = Layout::new("outbox", "id", Payload::Column("payload".to_owned()));
    layout.processed_at = Some("sent_at".to_owned());
    for good in [
        "text/plain; charset=utf-8",
        "application/vnd.shop+json",
        "application/x-protobuf",
    ] {
        layout.content_type = Some(good.to_owned());
        assert_eq!(layout.check(), Ok(()), "{good}");
    }
    for bad in [
        "",
        "text",
        "/plain",
        "text/",
        "text /plain",
        "text/plain\r\nx: y",
        "text/pläin",
    ] {
        layout.content_type = Some(bad.to_owned());
        let refused = layout.check().expect_err(bad).to_string();
        assert!(
            refused.starts_with("`content_type` is not a media type"),
            "{refused}"
        );
    }
}

#[test]
fn max_retries_and_namespace_exclude_each_other() {
    let mut layout = Layout::new("outbox", "id", Payload::Column("payload".to_owned()));
    layout.processed_at = Some("sent_at".to_owned());
    layout.max_retries = Some("max_retries".to_owned());
    assert_eq!(layout.check(), Ok(()));
    layout.namespace = Some("namespace".to_owned());
    let refused = layout.check().expect_err("they exclude each other").to_string();
    assert!(refused.starts_with("`max_retries` and `namespace`"), "{refused}");
}
