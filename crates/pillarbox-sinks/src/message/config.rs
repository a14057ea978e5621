//! The keys of a destination for its messages.

use percent_encoding::utf8_percent_encode;
pub use pillarbox::compress::MAX_DECOMPRESSED;
use pillarbox::{Delivery, Outcome};
use serde::{Deserialize, Serialize};

use crate::percent;
use crate::registry::ConfigError;
use crate::size::Size;
use crate::template::Template;

/// The keys for messages, which every destination has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The format of messages.
    pub format: Format,
    /// The template of the CloudEvents attribute `source`; `/{namespace}` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Template>,
    /// Are compressed payloads sent compressed, instead of decompressed?
    pub compressed: bool,
    /// With `compressed`: payloads larger than this are compressed before they are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compress_over: Option<Size>,
    /// The size limit of a decompressed payload; [`MAX_DECOMPRESSED`] by default. A larger one is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_decompressed: Option<Size>,
}

/// The format of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Format {
    /// The payload is the body. The other fields are headers that begin with `pillarbox-`.
    #[default]
    #[serde(rename = "plain")]
    Plain,
    /// CloudEvents in binary mode: the payload is the body, the attributes are headers.
    #[serde(rename = "cloudevents")]
    CloudEvents,
    /// CloudEvents in structured mode: attributes and payload in one JSON object.
    #[serde(rename = "cloudevents-structured")]
    CloudEventsStructured,
}

/// The format of messages, with what it needs.
#[derive(Debug, Clone, Default)]
pub(crate) enum Form {
    #[default]
    Plain,
    Binary(Source),
    Structured(Source),
}

/// The template of the CloudEvents attribute `source`.
#[derive(Debug, Clone)]
pub(crate) struct Source(Template);

impl Config {
    /// The names of the keys, which separate them from those of the sink.
    pub const KEYS: [&'static str; 5] = [
        "format",
        "source",
        "compressed",
        "compress_over",
        "max_decompressed",
    ];

    /// The checked format.
    pub(crate) fn form(&self) -> Result<Form, ConfigError> {
        if self.compressed && self.max_decompressed.is_some() {
            let problem = "has no effect with `compressed = true`; keep one";
            return Err(ConfigError::at("max_decompressed", problem));
        }
        if self.compress_over.is_some() && !self.compressed {
            let problem = "needs `compressed = true`, because the receivers get compressed payloads";
            return Err(ConfigError::at("compress_over", problem));
        }
        if self.compress_over.is_some() && !cfg!(feature = "zstd") {
            let problem = "needs a build with the feature `zstd`";
            return Err(ConfigError::at("compress_over", problem));
        }
        match self.format {
            Format::Plain if self.source.is_some() => {
                let problem = "is an attribute of CloudEvents; set `format = \"cloudevents\"`, or remove it";
                Err(ConfigError::at("source", problem))
            }
            Format::Plain => Ok(Form::Plain),
            Format::CloudEvents => Ok(Form::Binary(self.source()?)),
            Format::CloudEventsStructured if self.compressed => {
                let problem = "excludes `format = \"cloudevents-structured\"`, which has the payload inside of its JSON; \
                               remove it, or use `format = \"cloudevents\"`";
                Err(ConfigError::at("compressed", problem))
            }
            Format::CloudEventsStructured => Ok(Form::Structured(self.source()?)),
        }
    }

    /// What payloads need before they are sent, unless they are sent as they are stored.
    pub(crate) fn recoder(&self) -> Option<crate::message::Recoder> {
        if self.compressed {
            return (self.compress_over).map(|over| crate::message::Recoder::compressing(over.0));
        }
        let limit = self.max_decompressed.map_or(MAX_DECOMPRESSED, |size| size.0);
        Some(crate::message::Recoder::decompressing(limit))
    }

    fn source(&self) -> Result<Source, ConfigError> {
        match &self.source {
            None => Ok(Source::default()),
            Some(template) => Source::new(template.clone()),
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self(Template::parse("/{namespace}").expect("`namespace` is a known name"))
    }
}

impl Source {
    fn new(template: Template) -> Result<Self, ConfigError> {
        let problem = if template.source().is_empty() {
            "is empty; CloudEvents need one, such as \"https://shop.example/{namespace}\""
        } else if !template.without_fields().bytes().all(is_uri) {
            "has a character that is not allowed in a URI; percent-encode it"
        } else {
            return Ok(Self(template));
        };
        Err(ConfigError::at("source", problem))
    }

    /// The source of one event. It is always a valid URI reference.
    pub(super) fn render(&self, delivery: &Delivery, destination: &str) -> Result<String, Outcome> {
        let encode = |value: &str, _, out: &mut String| out.extend(utf8_percent_encode(value, percent::URI));
        let rendered = self.0.render_with(delivery, destination, encode);
        let source = rendered.map_err(|missing| Outcome::reject(missing.to_string()))?;
        if source.is_empty() {
            return Err(Outcome::reject(
                "the event makes an empty `source`, which CloudEvents does not allow",
            ));
        }
        Ok(source)
    }
}

/// Is the byte allowed in a URI (RFC 3986: unreserved, reserved, or the `%` of an encoded one)?
fn is_uri(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::delivery;
    use pillarbox::Event;

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    fn refused(text: &str) -> ConfigError {
        parse(text).unwrap().form().err().unwrap()
    }

    #[test]
    fn the_keys_are_those_that_are_written() {
        let all = parse(
            "format = \"cloudevents\"\nsource = \"/x\"\ncompressed = true\ncompress_over = \"1KiB\"\nmax_decompressed = \"1KiB\"",
        );
        let written = toml::to_string(&all.unwrap()).unwrap();
        for key in Config::KEYS {
            assert!(written.contains(key), "{written}");
        }
        assert_eq!(written.lines().count(), Config::KEYS.len());
    }

    #[test]
    fn plain_and_decompressed_is_the_default() {
        let config = parse("").unwrap();
        assert_eq!(config, Config::default());
        assert!(matches!(config.form(), Ok(Form::Plain)));
        assert!(config.recoder().is_some());
        assert!(parse("compressed = true").unwrap().recoder().is_none());
        let compressing = parse("compressed = true\ncompress_over = \"64KiB\"").unwrap();
        assert!(compressing.recoder().is_some() && compressing.form().is_ok());
    }

    #[test]
    fn contradicting_keys_are_refused() {
        for (text, key) in [
            ("source = \"/shop\"", "source"),
            (
                "compressed = true\nformat = \"cloudevents-structured\"",
                "compressed",
            ),
            (
                "compressed = true\nmax_decompressed = \"1MiB\"",
                "max_decompressed",
            ),
            ("compress_over = \"1MiB\"", "compress_over"),
            ("format = \"cloudevents\"\nsource = \"\"", "source"),
            (
                "format = \"cloudevents\"\nsource = \"/my shop/{topic}\"",
                "source",
            ),
            (
                "format = \"cloudevents-structured\"\nsource = \"/größe\"",
                "source",
            ),
        ] {
            assert_eq!(refused(text).key, key, "{text}");
        }
        assert!(
            parse("format = \"xml\"")
                .unwrap_err()
                .contains("cloudevents-structured")
        );
    }

    #[test]
    fn a_source_is_a_uri_whatever_the_event_is_called() {
        let delivery = delivery(Event::new("my shop/ü", "orders").header("empty", ""));
        let render = |source: Source| source.render(&delivery, "partner");
        assert_eq!(render(Source::default()).unwrap(), "/my%20shop%2F%C3%BC");
        let template = |text| Source::new(Template::parse(text).unwrap()).unwrap();
        assert_eq!(
            render(template("https://shop.example/{topic}#x")).unwrap(),
            "https://shop.example/orders#x"
        );
        for text in ["{header.empty}", "{severity}"] {
            assert_eq!(render(template(text)).unwrap_err().name(), "reject");
        }
    }
}
