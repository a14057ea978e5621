//! Secrets that prove where a message to a saga comes from.
//!
//! Ids, steps and attempts are guessable, so they prove nothing. A saga's row holds two secrets of 128 bits from the system's
//! random numbers. From the first the token of each attempt is made, also of one that is over. It travels with the command, and only a
//! receiver of the command can echo it. The second is the saga's own token. It travels with its timeouts and with requests of
//! operators, so that a service cannot forge these.
//!
//! **If we die here** nothing happened: this only makes and compares tokens.

use std::fmt;
use std::hint::black_box;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::state::Attempt;
use crate::error::StoreError;

/// The secret in the header `saga-token`. Its `Debug` form hides it, and a comparison takes the same time wherever two differ.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token that was received.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// As the header has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| {
            StoreError::Other(format!(
                "a saga's token cannot be made: the system gives no random numbers: {error}"
            ))
        })?;
        Ok(Self::of_bytes(bytes))
    }

    /// The token of an attempt, where this is the saga's secret. It tells nothing about the secret and other attempts.
    pub(crate) fn of_attempt(&self, attempt: &Attempt) -> Self {
        let Attempt { step, action, number } = attempt;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("HMAC takes keys of any length");
        // The length tells where the step ends, whatever it holds.
        mac.update(format!("{} {step} {action} {number}", step.len()).as_bytes());
        let hash = mac.finalize().into_bytes();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        Self::of_bytes(bytes)
    }

    fn of_bytes(bytes: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(bytes)))
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.0.as_bytes());
        let differences = ours
            .iter()
            .zip(theirs)
            .fold(0, |found, (a, b)| black_box(found | (a ^ b)));
        ours.len() == theirs.len() && differences == 0
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saga::state::Action;

    #[test]
    fn each_attempt_of_each_saga_has_a_token_of_its_own() {
        let of = |secret: &str, step: &str, action, number| {
            let step = step.to_owned();
            Token::new(secret).of_attempt(&Attempt { step, action, number })
        };
        let tokens = [
            of("a", "pay", Action::Command, 1),
            of("b", "pay", Action::Command, 1),
            of("a", "ship", Action::Command, 1),
            of("a", "pay", Action::Compensation, 1),
            of("a", "pay", Action::Command, 2),
            of("a", "pay command 1", Action::Command, 1),
        ];
        for (place, token) in tokens.iter().enumerate() {
            assert!(token.0.len() == 32 && !tokens[..place].contains(token));
        }
        assert_eq!(tokens[0], of("a", "pay", Action::Command, 1));
        // It never changes: services answer commands that an earlier version sent.
        assert_eq!(tokens[0].as_str(), "481c7cefc08279c598d6266573eb03c4");
    }

    #[test]
    fn random_tokens_have_128_bits_and_differ() {
        let tokens: Vec<Token> = (0..100)
            .map(|_| Token::random().expect("random numbers"))
            .collect();
        for (place, token) in tokens.iter().enumerate() {
            assert!(token.0.len() == 32 && token.0.bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert!(!tokens[..place].contains(token));
        }
    }

    #[test]
    fn only_the_same_text_is_the_same_token() {
        let token = Token::new("abc");
        assert_eq!(token, Token::new("abc"));
        for other in ["", "ab", "abcd", "abd", "bbc", "ABC"] {
            assert_ne!(token, Token::new(other));
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
