//! Authenticates to the servers, and keeps the client library from reconnecting.
//!
//! The client library reconnects by itself and then sends what waits in its queue: events whose attempts ended long ago.
//! No option turns that off. But it asks for credentials before it sends to a server, and it never sends again without
//! them. So they are given once. A lost connection stays lost, and the sink opens another.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

/// How the sink authenticates. Holds secrets, so it is not printable.
pub(super) enum Identity {
    /// Not at all.
    Anonymous,
    /// A user with a password.
    User { name: String, password: String },
    /// A token.
    Token(String),
    /// A JWT of the user, signed by its account, and the key that the JWT is for.
    Credentials { jwt: String, key: Box<KeyPair> },
}

impl Identity {
    /// Reads a credentials file.
    ///
    /// # Errors
    /// When it is invalid. The error never repeats its content.
    pub(super) fn from_credentials(text: &str) -> Result<Self, &'static str> {
        let jwt = block(text, "NATS USER JWT").ok_or("holds no user JWT; give a .creds file")?;
        let seed = block(text, "USER NKEY SEED").ok_or("holds no user key; give a .creds file")?;
        let key = KeyPair::from_seed(seed).map_err(|_| "holds an invalid user key; give a .creds file")?;
        Ok(Self::Credentials {
            jwt: jwt.to_owned(),
            key: Box::new(key),
        })
    }

    /// Names the credentials in an error.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Anonymous => "a client without a password".to_owned(),
            Self::User { name, .. } => format!("the user `{name}` or its password"),
            Self::Token(_) => "the token".to_owned(),
            Self::Credentials { .. } => "the credentials".to_owned(),
        }
    }

    fn answer(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        match self {
            Self::Anonymous => {}
            Self::User { name, password } => {
                auth.username = Some(name.clone());
                auth.password = Some(password.clone());
            }
            Self::Token(token) => auth.token = Some(token.clone()),
            Self::Credentials { jwt, key } => {
                auth.jwt = Some(jwt.clone());
                auth.signature = Some(key.sign(nonce).map_err(AuthError::new)?);
            }
        }
        Ok(auth)
    }
}

/// Authenticates once.
pub(super) fn once(identity: Arc<Identity>) -> impl Fn(Vec<u8>) -> Ready<Result<Auth, AuthError>> {
    let asked = AtomicBool::new(false);
    move |nonce| {
        ready(if asked.swap(true, Ordering::SeqCst) {
            Err(AuthError::new("this client was connected before"))
        } else {
            identity.answer(&nonce)
        })
    }
}

/// The line after `-----BEGIN NAME-----`.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begin = format!("BEGIN {name}");
    let mut lines = text.lines().skip_while(|line| !line.contains(&begin));
    lines.nth(1).map(str::trim).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn credentials(seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\nheader.claims.signature\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    #[test]
    fn a_credentials_file_proves_by_its_key_who_it_is() {
        let key = KeyPair::new_user();
        let identity = Identity::from_credentials(&credentials(&key.seed().unwrap())).unwrap();
        let auth = identity.answer(b"nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("header.claims.signature"));
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn what_is_no_credentials_file_is_not_repeated() {
        for text in [
            "hunter2",
            &credentials("hunter2"),
            "-----BEGIN NATS USER JWT-----\n",
        ] {
            let problem = Identity::from_credentials(text).err().unwrap();
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn the_second_time_there_is_no_answer() {
        let ask = once(Arc::new(Identity::Token("t".to_owned())));
        let first = ask(Vec::new()).now_or_never().unwrap().unwrap();
        assert_eq!(first.token.as_deref(), Some("t"));
        assert!(ask(Vec::new()).now_or_never().unwrap().is_err());
    }
}
