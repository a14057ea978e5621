//! Secrets that prove where a message to a saga comes from.
//!
//! Ids, steps and attempts are guessable, so they prove nothing. A saga's row holds two tokens of 128 bits from the system's
//! random numbers. The attempt's token travels with the command, and only a receiver of the command can echo it. The saga's
//! own token travels with its timeouts and with requests of operators, so that a service cannot forge these.
//!
//! **If we die here** nothing happened: this only makes and compares tokens.

use std::fmt;
use std::hint::black_box;

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
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
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
