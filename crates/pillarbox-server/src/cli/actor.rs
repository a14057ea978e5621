//! Who runs the command: the user of the operating system, on this machine. The database's own role limits what the command
//! can do; the name is for the audit.

use clap::Args;
use pillarbox_store::Actor;
use pillarbox_store::actor::{Kind, Permission, Reach};

/// Why it is run.
#[derive(Debug, Args)]
pub(super) struct Because {
    /// Record a reason in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Because {
    /// As it was given.
    pub(super) fn text(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The operator with the reason.
    pub(super) fn operator(&self) -> Actor {
        match &self.reason {
            Some(reason) => operator().because(reason),
            None => operator(),
        }
    }
}

/// The user, who may do what the database role may do.
pub(super) fn operator() -> Actor {
    let host = rustix::system::uname();
    let name = format!("{}@{}", user(), host.nodename().to_string_lossy());
    Actor::new(Kind::Operator, name, Reach::System, Permission::ALL)
}

/// By the real id of the process and not by a variable, which anyone can set.
fn user() -> String {
    let id = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(id, &users).map_or_else(|| format!("uid {id}"), str::to_owned)
}

/// The name of a user in the format of `/etc/passwd`.
fn name_of(id: u32, users: &str) -> Option<&str> {
    let id = id.to_string();
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_id() {
        let users = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:100::/home/alice:/bin/sh\nbroken\n";
        assert_eq!(name_of(1000, users), Some("alice"));
        assert_eq!(name_of(100, users), None);
    }

    #[test]
    fn the_operator_is_named_after_the_user_and_the_machine() {
        let name = user();
        assert!(!name.is_empty() && !name.contains(':'), "{name}");
        assert_eq!(operator(), Because { reason: None }.operator());
    }
}
