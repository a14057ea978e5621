//! What is proposed for which table.

use super::*;

fn column(name: &str, kind: &str) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        nullable: false,
    }
}

/// A table with these columns, the first of which is its primary key.
fn table(name: &str, columns: &[(&str, &str)]) -> Facts {
    Facts {
        table: name.to_owned(),
        columns: columns.iter().map(|(name, kind)| column(name, kind)).collect(),
        keys: columns
            .first()
            .map(|(name, _)| (*name).to_owned())
            .into_iter()
            .collect(),
        codes: BTreeMap::new(),
        sample: None,
    }
}

impl Facts {
    fn with_codes(mut self, column: &str, codes: &[&str]) -> Self {
        let codes = codes.iter().map(|code| (*code).to_owned()).collect();
        self.codes.insert(column.to_owned(), codes);
        self
    }
}

/// The table that a built-in layout is made for, with a few types where they matter.
fn made_for(name: &str) -> Facts {
    let layout = built_in(name).expect("a layout");
    let kind = |key: &str, column: &str| match key {
        "created_at" | "updated_at" | "processed_at" | "due_at" | "locked_until" | "locked_at" => {
            "timestamp with time zone"
        }
        "order" if column != "id" => "timestamp with time zone",
        "attempts" | "max_retries" | "event_version" => "integer",
        "status.column" if name == "family-hub" => "integer",
        "id" => "uuid",
        "payload" => "jsonb",
        _ => "text",
    };
    let mut columns: Vec<(&str, &str)> = Vec::new();
    for (key, column) in layout.named() {
        if columns.iter().all(|(known, _)| *known != column) {
            columns.push((column, kind(&key, column)));
        }
    }
    table(&layout.table, &columns)
}

#[test]
fn each_built_in_layout_is_found_by_its_table() {
    for name in built_ins() {
        let proposal = propose(&made_for(name)).expect("a proposal");
        assert_eq!(proposal.built_in, Some(*name));
        assert_eq!(Some(&proposal.layout), built_in(name).as_ref(), "{name}");
    }
}

#[test]
fn columns_beside_those_of_a_layout_do_no_harm() {
    let mut facts = made_for("arap");
    facts.columns.push(column("CorrelationId", "uuid"));
    facts.table = "shop.messages".to_owned();
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.built_in, Some("arap"));
    assert_eq!(proposal.layout.table, "shop.messages");
}

#[test]
fn codes_that_a_layout_does_not_know_are_pointed_out() {
    let facts = made_for("order-service").with_codes("status", &["NEW", "PARKED", "SENT"]);
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.built_in, Some("order-service"));
    assert!(
        proposal.warnings.iter().any(|it| it.contains("PARKED")),
        "{:?}",
        proposal.warnings
    );
}

#[test]
fn a_table_with_other_codes_is_not_taken_for_a_built_in_one() {
    let facts = made_for("order-service").with_codes("status", &["queued", "published"]);
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.built_in, None);
    let Status::Code {
        pending, delivered, ..
    } = &proposal.layout.status
    else {
        panic!("codes: {:?}", proposal.layout.status)
    };
    assert_eq!((pending.as_str(), delivered.as_str()), ("queued", "published"));
}

#[test]
fn renamed_columns_are_recognised_and_every_one_has_a_reason() {
    let facts = table(
        "shop.messages",
        &[
            ("id", "bigint"),
            ("event_name", "character varying(255)"),
            ("data", "jsonb"),
            ("occurred_at", "timestamp without time zone"),
            ("published_at", "timestamp without time zone"),
            ("RetryCount", "integer"),
            ("last_error", "text"),
        ],
    );
    let proposal = propose(&facts).expect("a proposal");
    let layout = &proposal.layout;
    assert_eq!(proposal.built_in, None);
    assert_eq!(layout.id, "id");
    assert_eq!(layout.payload, Payload::Column("data".to_owned()));
    assert_eq!(layout.event_type.as_deref(), Some("event_name"));
    assert_eq!(layout.created_at.as_deref(), Some("occurred_at"));
    assert_eq!(layout.order, ["occurred_at"]);
    assert_eq!(layout.processed_at.as_deref(), Some("published_at"));
    assert_eq!(layout.attempts.as_deref(), Some("RetryCount"));
    assert_eq!(layout.error.as_deref(), Some("last_error"));
    assert_eq!(layout.status, Status::Processed);
    assert_eq!(layout.check(), Ok(()));
    assert_eq!(proposal.reasons.len(), 7, "{:?}", proposal.reasons);
    assert!(proposal.warnings.iter().any(|it| it.contains("time zone")));
    assert!(proposal.warnings.iter().any(|it| it.contains("5 is a guess")));
}

#[test]
fn a_claim_that_is_written_down_makes_the_counter_count_claims() {
    let facts = table(
        "jobs.outbox",
        &[
            ("id", "uuid"),
            ("payload", "text"),
            ("state", "text"),
            ("attempts", "integer"),
            ("locked_until", "timestamp with time zone"),
        ],
    )
    .with_codes("state", &["new", "processing", "done", "failed"]);
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.layout.counts, Counts::Claims);
    assert_eq!(proposal.layout.check(), Ok(()));
    assert_eq!(proposal.warnings, Vec::<String>::new());
}

#[test]
fn rows_in_processing_without_a_lease_are_left_alone() {
    let facts = table("o.o", &[("id", "uuid"), ("payload", "jsonb"), ("status", "text")])
        .with_codes("status", &["pending", "processing", "sent"]);
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.layout.check(), Ok(()));
    assert_eq!(proposal.warnings.len(), 1, "once is enough");
    assert!(
        proposal.warnings[0].contains("left alone"),
        "{:?}",
        proposal.warnings
    );
}

#[test]
fn limits_of_rows_with_namespaces_are_not_heeded_and_that_is_said() {
    let facts = table(
        "o.o",
        &[
            ("id", "uuid"),
            ("payload", "jsonb"),
            ("namespace", "text"),
            ("max_retries", "integer"),
            ("sent_at", "timestamp with time zone"),
        ],
    );
    let proposal = propose(&facts).expect("a proposal");
    assert_eq!(proposal.layout.check(), Ok(()));
    assert_eq!(proposal.layout.max_retries, None);
    assert!(
        proposal.warnings[0].contains("max_retries"),
        "{:?}",
        proposal.warnings
    );
}

#[test]
fn a_flag_tells_what_was_sent() {
    let facts = table(
        "o.o",
        &[("id", "bigint"), ("body", "text"), ("is_published", "boolean")],
    );
    let proposal = propose(&facts).expect("a proposal");
    let Status::Code {
        column,
        pending,
        delivered,
        ..
    } = &proposal.layout.status
    else {
        panic!("codes: {:?}", proposal.layout.status)
    };
    assert_eq!([column, pending, delivered], ["is_published", "false", "true"]);
}

#[test]
fn debezium_rows_that_are_deleted_at_once_are_said_to_be_invisible() {
    let proposal = propose(&made_for("debezium")).expect("a proposal");
    assert!(proposal.warnings.iter().any(|it| it.contains("invisible")));
}

#[test]
fn a_table_that_cannot_be_an_outbox_is_refused_with_every_reason() {
    let customers = table(
        "shop.customers",
        &[
            ("id", "uuid"),
            ("email", "text"),
            ("created_at", "timestamp with time zone"),
        ],
    );
    let against = propose(&customers).expect_err("no outbox");
    assert_eq!(against.len(), 2, "{against:?}");
    assert!(
        against[0].contains("payload") && against[1].contains("no column shows the state"),
        "{against:?}"
    );

    let mut keyless = made_for("arap");
    keyless.keys.clear();
    let against = propose(&keyless).expect_err("no key");
    assert!(against[0].contains("identifies a row"), "{against:?}");

    let articles = table(
        "cms.articles",
        &[("id", "uuid"), ("content", "text"), ("status", "text")],
    )
    .with_codes("status", &["draft", "published"]);
    let against = propose(&articles).expect_err("nothing waits");
    assert!(against[0].contains("draft, published"), "{against:?}");
}

#[test]
fn the_nearest_built_in_layout_is_named_with_what_is_there_of_it() {
    let mut facts = made_for("order-service");
    facts.columns.retain(|column| column.name != "error_message");
    let (name, found, of) = nearest(&facts).expect("a near one");
    assert_eq!((name, of - found), ("order-service", 1));
    assert_eq!(nearest(&table("a.b", &[("x", "text")])), None);
}

#[test]
fn text_that_is_no_json_is_not_called_so() {
    let sampled = |facts: Facts, not_json| {
        let sample = Sample {
            column: "payload".to_owned(),
            rows: 9,
            not_json,
        };
        let facts = Facts {
            sample: Some(sample),
            ..facts
        };
        propose(&facts).expect("a proposal")
    };
    let own = table(
        "shop.mails",
        &[
            ("id", "uuid"),
            ("payload", "text"),
            ("sent_at", "timestamp with time zone"),
        ],
    );
    for facts in [made_for("order-service"), own] {
        let other = sampled(facts.clone(), 2);
        assert_eq!(
            other.layout.content_type.as_deref(),
            Some("text/plain; charset=utf-8")
        );
        let said = |it: &String| it.contains("2 of 9 sampled rows are not JSON");
        assert!(other.warnings.iter().any(said), "{:?}", other.warnings);
        let json = sampled(facts, 0);
        assert_eq!(json.layout.content_type, None);
        assert!(json.warnings.iter().all(|it| !it.contains("JSON")));
    }
}
