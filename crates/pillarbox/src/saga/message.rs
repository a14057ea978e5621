//! What travels between a saga and the services: headers on ordinary events, whatever the broker and the language.
//!
//! | header | on a command | on a reply |
//! |---|---|---|
//! | `saga-name` | which kind of saga | echoed |
//! | `saga-id` | which one | echoed |
//! | `saga-step` | which step | echoed |
//! | `saga-action` | `command` or `compensation` | echoed |
//! | `saga-attempt` | which try, from 1 | echoed |
//! | `saga-token` | the secret of this attempt | echoed |
//! | `saga-outcome` | – | `done`, `failed` or `refused` |
//! | `saga-reason` | – | why, in a few words, for operators; optional |
//!
//! A saga's own messages to itself have the same headers, with `saga-outcome: timeout`, or with `saga-ask: resume` or
//! `saga-ask: compensate` for an operator's request. Their token is the saga's own, which no service sees.
//!
//! **If we die here** nothing happened: this only reads and writes headers.

use std::collections::BTreeMap;

use super::machine::Input;
use super::state::{Action, Answer, Attempt};
use super::token::Token;
use crate::event::Event;

/// Which kind of saga.
pub const NAME: &str = "saga-name";
/// Which one.
pub const ID: &str = "saga-id";
/// Which step.
pub const STEP: &str = "saga-step";
/// To do it or to undo it.
pub const ACTION: &str = "saga-action";
/// Which try.
pub const ATTEMPT: &str = "saga-attempt";
/// The secret that proves a message.
pub const TOKEN: &str = "saga-token";
/// What a service answers.
pub const OUTCOME: &str = "saga-outcome";
/// Why, for operators.
pub const REASON: &str = "saga-reason";
/// An operator's request.
pub const ASK: &str = "saga-ask";

/// The outcome that a saga sends to itself.
pub(crate) const TIMEOUT: &str = "timeout";

/// The event type of a timeout.
pub const TIMEOUT_TYPE: &str = "SagaTimeout";
/// The event type of an operator's request.
pub const ASK_TYPE: &str = "SagaAsk";

/// What an operator can ask of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Send the current command again now, with all its attempts.
    Resume,
    /// Give up and undo what was done.
    Compensate,
}

impl Ask {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Compensate => "compensate",
        }
    }
}

/// A message that was received: its headers and its payload, wherever they come from.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    headers: BTreeMap<String, &'a str>,
    /// A header that came in two spellings: each reader could take another one of them.
    repeated: Option<String>,
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Takes what a broker delivered: a map of headers, or pairs. Names of headers count in any case.
    pub fn new<N, V>(headers: impl IntoIterator<Item = (&'a N, &'a V)>, payload: &'a [u8]) -> Self
    where
        N: AsRef<str> + ?Sized + 'a,
        V: AsRef<str> + ?Sized + 'a,
    {
        let lower = |(name, value): (&'a N, &'a V)| (name.as_ref().to_ascii_lowercase(), value.as_ref());
        let ours = |(name, _): &(String, &str)| name.starts_with("saga-");
        let mut message = Self {
            headers: BTreeMap::new(),
            repeated: None,
            payload,
        };
        for (name, value) in headers.into_iter().map(lower).filter(ours) {
            if message.headers.insert(name.clone(), value).is_some() {
                message.repeated = Some(name);
            }
        }
        message
    }

    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name).copied()
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Is it for a saga of this name?
    pub(crate) fn is_for(&self, name: &str) -> bool {
        self.header(NAME) == Some(name) && (self.header(OUTCOME).or(self.header(ASK))).is_some()
    }

    /// # Errors
    /// When the headers do not say what they should, with what is wrong.
    pub(crate) fn id(&self) -> Result<&'a str, String> {
        match &self.repeated {
            Some(name) => Err(format!("the header {name} is there more than once, in any case")),
            None => self.required(ID),
        }
    }

    /// # Errors
    /// When there is none.
    pub(crate) fn token(&self) -> Result<Token, String> {
        Ok(Token::new(self.required(TOKEN)?))
    }

    /// # Errors
    /// When the headers do not say what they should, with what is wrong.
    pub(crate) fn input(&self) -> Result<Input, String> {
        if let Some(ask) = self.header(ASK) {
            return match ask {
                "resume" => Ok(Input::Resume(self.attempt()?)),
                "compensate" => Ok(Input::Compensate),
                other => Err(format!(
                    "the header {ASK} is {other:?}; it is \"resume\" or \"compensate\""
                )),
            };
        }
        let to = self.attempt()?;
        let outcome = self.required(OUTCOME)?;
        if outcome == TIMEOUT {
            return Ok(Input::TimedOut(to));
        }
        let answer = Answer::parse(outcome).ok_or_else(|| {
            format!("the header {OUTCOME} is {outcome:?}; it is \"done\", \"failed\" or \"refused\"")
        })?;
        let reason = self.header(REASON).map(str::to_owned);
        Ok(Input::Answered { to, answer, reason })
    }

    fn attempt(&self) -> Result<Attempt, String> {
        let (action, number) = (self.required(ACTION)?, self.required(ATTEMPT)?);
        let known = Action::parse(action).ok_or_else(|| {
            format!("the header {ACTION} is {action:?}; it is \"command\" or \"compensation\"")
        })?;
        Ok(Attempt {
            step: self.required(STEP)?.to_owned(),
            action: known,
            number: (number.parse())
                .map_err(|_| format!("the header {ATTEMPT} is {number:?}, which is no number"))?,
        })
    }

    fn required(&self, name: &str) -> Result<&'a str, String> {
        self.header(name).ok_or_else(|| {
            format!("the header {name} is missing; a reply echoes all saga-… headers of its command")
        })
    }
}

impl<'a> From<&'a Event> for Message<'a> {
    fn from(event: &'a Event) -> Self {
        Self::new(&event.headers, event.payload.as_bytes())
    }
}

/// A command as the service sees it that is to carry it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Which kind of saga.
    pub name: String,
    /// Which one. With [`step`](Attempt::step) what a service knows a piece of work by, on whatever attempt.
    pub id: String,
    /// Which try at which step.
    pub attempt: Attempt,
    /// What proves that a reply comes from a receiver of this command.
    pub token: Token,
}

impl Command {
    /// Reads a command. `None` if the message is none.
    pub fn read(message: &Message<'_>) -> Option<Self> {
        if message.repeated.is_some() || message.header(OUTCOME).or(message.header(ASK)).is_some() {
            return None;
        }
        Some(Self {
            name: message.header(NAME)?.to_owned(),
            id: message.header(ID)?.to_owned(),
            attempt: message.attempt().ok()?,
            token: message.token().ok()?,
        })
    }

    /// Makes an event the reply to this command: to be enqueued in the transaction that did the work. What it carries is
    /// the application's own, and so is where it goes: the saga's address, as a rule.
    #[must_use]
    pub fn reply(&self, answer: Answer, event: Event) -> Event {
        addressed(event, &self.name, &self.id, Some(&self.attempt), &self.token)
            .header(OUTCOME, answer.as_str())
    }
}

/// The event with the headers that say what it is about, and prove it.
pub(crate) fn addressed(event: Event, name: &str, id: &str, about: Option<&Attempt>, token: &Token) -> Event {
    let event = event
        .header(NAME, name)
        .header(ID, id)
        .header(TOKEN, token.as_str());
    match about {
        Some(attempt) => event
            .header(STEP, &attempt.step)
            .header(ACTION, attempt.action.as_str())
            .header(ATTEMPT, attempt.number.to_string()),
        None => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command {
            name: "order".to_owned(),
            id: "42".to_owned(),
            attempt: Attempt {
                step: "payment".to_owned(),
                action: Action::Compensation,
                number: 3,
            },
            token: Token::new("s3cret"),
        }
    }

    #[test]
    fn a_reply_says_what_it_is_the_reply_to() {
        let event = command().reply(Answer::Failed, Event::new("payments", "replies"));
        let event = event.header("Saga-Reason", "no money");
        let message = Message::from(&event);
        assert!(message.is_for("order") && !message.is_for("refund"));
        assert_eq!(message.id(), Ok("42"));
        assert_eq!(message.token(), Ok(Token::new("s3cret")));
        let expected = Input::Answered {
            to: command().attempt,
            answer: Answer::Failed,
            reason: Some("no money".to_owned()),
        };
        assert_eq!(message.input(), Ok(expected));
        assert_eq!(Command::read(&message), None, "a reply is no command");
    }

    #[test]
    fn a_command_is_read_as_it_was_written() {
        let command = command();
        let event = addressed(
            Event::new("a", "b"),
            "order",
            "42",
            Some(&command.attempt),
            &command.token,
        );
        assert_eq!(Command::read(&Message::from(&event)), Some(command));
        assert!(
            !Message::from(&event).is_for("order"),
            "a command is for a service"
        );
        assert_eq!(Command::read(&Message::from(&Event::new("a", "b"))), None);
    }

    #[test]
    fn two_spellings_of_a_header_are_an_error() {
        let reply = command().reply(Answer::Failed, Event::new("a", "b"));
        let twice = reply.header("Saga-Outcome", "done");
        let error = Message::from(&twice).id().expect_err("which one counts?");
        assert!(
            error.contains("the header saga-outcome is there more than once"),
            "{error}"
        );
        let given = command();
        let sent = addressed(
            Event::new("a", "b"),
            "order",
            "42",
            Some(&given.attempt),
            &given.token,
        );
        let twice = sent.header("SAGA-ID", "43");
        assert_eq!(Command::read(&Message::from(&twice)), None);
    }

    #[test]
    fn what_is_wrong_with_a_header_is_said() {
        let sound = command().reply(Answer::Done, Event::new("a", "b"));
        for (name, value, says) in [
            (OUTCOME, "ok", "it is \"done\", \"failed\" or \"refused\""),
            (ACTION, "undo", "it is \"command\" or \"compensation\""),
            (ATTEMPT, "third", "which is no number"),
            (ASK, "stop", "it is \"resume\" or \"compensate\""),
        ] {
            let event = sound.clone().header(name, value);
            let error = Message::from(&event).input().expect_err("unsound");
            assert!(error.contains(says), "{error}");
        }
        let mut event = sound;
        event.headers.remove(STEP);
        let error = Message::from(&event).input().expect_err("unsound");
        assert!(error.contains("the header saga-step is missing"), "{error}");
    }
}
