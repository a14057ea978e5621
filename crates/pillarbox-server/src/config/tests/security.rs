//! `[security]`, and what it warns about.

use super::{LOG, environment, good, warnings, wrong};
use crate::config::Draft;
use crate::config::security::FileMode;

const EXPOSED: &str = "[database]\nurl = \"postgres://u:hunter2@db/d?sslmode=require\"\n\
    [[destination]]\nname = \"hook\"\ntype = \"webhook\"\nurl = \"http://partner/\"\nbearer = \"hunter2\"\n";

#[test]
fn what_travels_unencrypted_or_unverified_is_one_warning_for_each_setting() {
    let warnings = warnings(EXPOSED, &[]);
    let [database, hook] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(
        database
            .starts_with("p.toml:2: `url` has sslmode=require for db:5432: the connection is encrypted, but"),
        "{database}"
    );
    assert!(
        hook.starts_with(
            "p.toml:6: destination `hook`: `url` sends the token unencrypted to partner (write https://)"
        ),
        "{hook}"
    );
    assert!(good(EXPOSED).destinations[0].exposure.is_some());
}

#[test]
fn strict_refuses_what_is_a_warning_otherwise() {
    let error = wrong(&format!("{EXPOSED}[security]\nstrict = true\n"));
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    for line in lines {
        assert!(line.ends_with("; refused by `strict` under [security]"), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    let safe = EXPOSED
        .replace("require", "verify-full")
        .replace("http://", "https://");
    assert!(good(&format!("{safe}[security]\nstrict = true\n")).strict);
    let here = EXPOSED
        .replace("@db/", "@localhost/")
        .replace("//partner", "//127.0.0.1");
    good(&format!("{here}[security]\nstrict = true\n"));
}

fn file(text: &str, mode: u32) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).expect("its mode");
    let mode = FileMode::of(file.path());
    let (_, warnings) = Draft::of("p.toml", text, &environment(&[]), mode)
        .and_then(Draft::finish)
        .expect("a good configuration");
    warnings.iter().map(|warning| warning.line("p.toml")).collect()
}

#[test]
fn a_file_with_a_secret_that_others_can_read_is_a_warning() {
    let with_secrets = [
        format!("database.url = \"postgres://u:hunter2@localhost/d\"\n{LOG}"),
        format!("database.url = \"postgres://localhost/d?user=u&password=hunter2\"\n{LOG}"),
        "database.url = \"a.db\"\n[[destination]]\nname = \"h\"\ntype = \"webhook\"\n\
         url = \"https://h/\"\nsigning_secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n"
            .to_owned(),
        "database.url = \"a.db\"\n[[destination]]\nname = \"h\"\ntype = \"webhook\"\n\
         url = \"https://h/\"\nheaders = { Authorization = \"hunter2\" }\n"
            .to_owned(),
    ];
    for text in &with_secrets {
        let warnings = file(text, 0o644);
        assert!(
            warnings.len() == 1 && warnings[0].contains("every user of this machine can read (chmod 640"),
            "{text}: {warnings:?}"
        );
        assert!(
            warnings[0].starts_with("p.toml:") && !warnings[0].contains("hunter2"),
            "{warnings:?}"
        );
        assert_eq!(file(text, 0o640), [""; 0]);
    }
    let without = format!(
        "database.url = \"postgres://u@localhost/d\"\n{LOG}[[destination]]\nname = \"h\"\ntype = \"webhook\"\n\
         url = \"https://h/\"\nbearer = {{ env = \"PATH\" }}\n[[route]]\nto = \"h\"\n"
    );
    assert_eq!(file(&without, 0o644), [""; 0]);
}

#[test]
fn a_file_that_others_can_change_is_a_warning() {
    let warnings = file(&format!("database.url = \"a.db\"\n{LOG}"), 0o602);
    assert_eq!(
        warnings,
        ["p.toml: every user of this machine can change the configuration (chmod o-w)"]
    );
}
