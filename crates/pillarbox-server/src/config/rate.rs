//! The rate limit of a destination: `"100/s"`, `"30/m"`, or a table.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};

/// A rate as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// Attempts in a second, on average.
    pub(crate) per_second: f64,
    /// Attempts at once after a pause, if the table sets it.
    pub(crate) burst: Option<u32>,
}

/// `rate = { per_second = 100, burst = 20 }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    per_second: f64,
    burst: Option<u32>,
}

impl Rate {
    /// The dispatcher's rate. The default burst is one second's worth of attempts, at least one.
    ///
    /// # Errors
    /// The key and the error of an invalid value.
    pub(crate) fn resolve(
        self,
        burst: Option<u32>,
    ) -> Result<pillarbox_dispatch::Rate, (&'static str, String)> {
        if !self.per_second.is_finite() || self.per_second <= 0.0 {
            return Err((
                "rate",
                "`rate` must be more than 0 (to send nothing, pause the destination)".to_owned(),
            ));
        }
        let burst = match (self.burst, burst) {
            (Some(_), Some(_)) => {
                return Err(("burst", "`burst` is set twice (remove one)".to_owned()));
            }
            (Some(burst), None) | (None, Some(burst)) => burst,
            (None, None) => second_worth(self.per_second),
        };
        if burst == 0 {
            return Err((
                "burst",
                "`burst` must be at least 1: with 0 nothing is sent".to_owned(),
            ));
        }
        Ok(pillarbox_dispatch::Rate {
            per_second: self.per_second,
            burst,
        })
    }
}

fn second_worth(per_second: f64) -> u32 {
    let most = per_second.ceil().clamp(1.0, f64::from(u32::MAX));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to what fits on the line above"
    )]
    let burst = most as u32;
    burst
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate such as \"100/s\", \"30/m\" or { per_second = 100, burst = 20 }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Rate, E> {
                parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Rate, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Rate {
                    per_second: table.per_second,
                    burst: table.burst,
                })
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

fn parse(text: &str) -> Option<Rate> {
    let (number, unit) = text.split_once('/')?;
    let number: f64 = number.trim().parse().ok()?;
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(Rate {
        per_second: number / seconds,
        burst: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> pillarbox_dispatch::Rate {
        parse(text).expect("a rate").resolve(None).expect("a valid rate")
    }

    #[test]
    fn a_rate_is_per_second_minute_or_hour_with_a_seconds_worth_at_once() {
        for (text, per_second, burst) in [
            ("100/s", 100.0, 100),
            ("90 / m", 1.5, 2),
            ("36/h", 0.01, 1),
            ("0.5/s", 0.5, 1),
        ] {
            let rate = read(text);
            assert!((rate.per_second - per_second).abs() < 1e-9, "{text}: {rate:?}");
            assert_eq!(rate.burst, burst, "{text}");
        }
    }

    #[test]
    fn an_invalid_rate_is_rejected() {
        for text in ["100", "fast/s", "100/d", "/s", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["0/s", "-1/s", "inf/s", "NaN/m"] {
            let refused = parse(text).expect("a number and a unit").resolve(None);
            assert_eq!(refused.expect_err(text).0, "rate");
        }
    }

    #[test]
    fn a_burst_is_set_once_and_is_at_least_one() {
        let rate = |burst| Rate {
            per_second: 1.0,
            burst,
        };
        assert_eq!(rate(Some(7)).resolve(None).expect("good").burst, 7);
        assert_eq!(rate(None).resolve(Some(8)).expect("good").burst, 8);
        assert_eq!(rate(Some(7)).resolve(Some(8)).expect_err("twice").0, "burst");
        assert_eq!(rate(None).resolve(Some(0)).expect_err("nothing").0, "burst");
    }
}
