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

fn webhook(rest: &str) -> String {
    format!("[database]\nurl = \"a.db\"\n[[destination]]\nname = \"h\"\ntype = \"webhook\"\n{rest}\n")
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
        webhook("url = \"https://h/\"\nheaders = { x-shop = \"hunter2\" }"),
        webhook("url = \"https://h/\"\n[destination.headers]\nx-shop = '{topic} hunter2'"),
        webhook("url = \"https://hunter2@h/\""),
        webhook("url = \"https://h/hooks/hunter2XXXXXXXXXX\""),
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
    for without in [
        webhook(
            "url = \"https://h/{topic}\"\nheaders = { x-tenant = \"{tenant_id}\", accept = \"text/html\" }",
        ),
        webhook("url = \"https://h/\"\nheaders = { x-token = { env = \"PATH\" } }"),
    ] {
        assert_eq!(file(&without, 0o644), [""; 0]);
    }
}

#[test]
fn a_secret_file_that_others_can_read_or_change_is_a_warning_and_strict_refuses_it() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("writes");
    let set =
        |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
    let secret = path.display();
    for key in [
        format!("bearer = {{ file = \"{secret}\" }}"),
        format!("signing_secrets = [{{ file = \"{secret}\" }}]"),
        format!("basic = {{ user = \"u\", password = {{ file = \"{secret}\" }} }}"),
    ] {
        let text = format!(
            "[database]\nurl = \"a.db\"\n[[destination]]\nname = \"h\"\ntype = \"webhook\"\nurl = \"https://h/\"\n{key}\n"
        );
        set(0o640);
        assert_eq!(warnings(&text, &[]), [""; 0]);
        set(0o606);
        let expected = [
            format!("p.toml:7: every user of this machine can read the secret in {secret} (chmod o-r)"),
            format!("p.toml:7: every user of this machine can change the secret in {secret} (chmod o-w)"),
        ];
        let found = warnings(&text, &[]);
        assert!(found.iter().take(2).eq(&expected), "{key}: {found:#?}");
        let error = wrong(&format!("{text}[security]\nstrict = true\n"));
        assert!(error.contains("refused by `strict`"), "{error}");
    }
}

#[test]
fn the_key_of_a_client_certificate_is_a_secret_file() {
    use std::os::unix::fs::PermissionsExt;

    let key = tempfile::NamedTempFile::new().expect("a file");
    std::fs::set_permissions(key.path(), std::fs::Permissions::from_mode(0o644)).expect("its mode");
    let path = key.path().display();
    let text = format!(
        "database.url = \"a.db\"\n[[destination]]\nname = \"n\"\ntype = \"nats\"\nurl = \"tls://n\"\nstream = \"s\"\n\
         tls = {{ cert_file = \"{path}\", key_file = \"{path}\" }}\n"
    );
    let found = warnings(&text, &[]);
    assert!(
        found
            .iter()
            .any(|warning| warning.contains("can read the secret in")),
        "{found:#?}"
    );
}

#[test]
fn an_api_that_other_machines_reach_is_a_warning_and_strict_refuses_it() {
    let open =
        format!("[database]\nurl = \"a.db\"\n[http]\nlisten = \"0.0.0.0:7700\"\nallow_remote = true\n{LOG}");
    let expected = "p.toml:5: the API has no authentication, and other machines can reach it at 0.0.0.0:7700";
    let found = warnings(&open, &[]);
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    assert!(wrong(&format!("{open}[security]\nstrict = true\n")).contains("refused by `strict`"));
    let local = open.replace("0.0.0.0", "127.0.0.1");
    good(&format!("{local}[security]\nstrict = true\n"));
}

#[test]
fn probes_need_a_port_of_their_own() {
    let http = |listen: &str, ops: &str| {
        format!("[database]\nurl = \"a.db\"\n[http]\nlisten = \"{listen}\"\nops_listen = \"{ops}\"\n{LOG}")
    };
    for ops in ["127.0.0.1:7700", "0.0.0.0:7700", "[::]:7700"] {
        let error = wrong(&http("127.0.0.1:7700", ops));
        let expected =
            format!("p.toml:5: `ops_listen` ({ops}) and `listen` (127.0.0.1:7700) cannot have one port");
        assert!(error.starts_with(&expected), "{error}");
    }
    good(&http("127.0.0.1:7700", "127.0.0.1:7701"));
    good(&http("127.0.0.1:7700", "127.0.0.2:7700"));
    good(&http("127.0.0.1:0", "127.0.0.1:0"));
}

#[test]
fn a_file_that_others_can_change_is_a_warning() {
    let warnings = file(&format!("database.url = \"a.db\"\n{LOG}"), 0o602);
    assert_eq!(
        warnings,
        ["p.toml: every user of this machine can change the configuration (chmod o-w)"]
    );
}
