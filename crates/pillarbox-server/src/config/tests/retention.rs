//! `[retention]`

use pillarbox_dispatch::Delivered;

use super::{good, with, wrong};

#[test]
fn delivered_rows_are_kept_unless_they_are_to_be_deleted_at_once() {
    assert_eq!(good(&with("")).dispatch.delivered, Delivered::Keep);
    assert_eq!(good(&with("[retention]")).dispatch.delivered, Delivered::Keep);
    let config = good(&with("[retention]\ndelivered = \"0s\""));
    assert_eq!(config.dispatch.delivered, Delivered::Delete);
    assert_eq!(config.effective()["retention"]["delivered"], "0s");
}

#[test]
fn only_zero_is_supported() {
    for (value, found) in [
        ("\"30 days\"", "string \"30 days\""),
        ("\"forever\"", "string \"forever\""),
        ("0", "integer `0`"),
        ("true", "boolean `true`"),
    ] {
        assert_eq!(
            wrong(&with(&format!("[retention]\ndelivered = {value}"))),
            format!(
                "p.toml:3: `retention.delivered`: expected \"0s\", the only duration that is supported (remove the key to \
                 keep the rows), found {found}"
            )
        );
    }
}
