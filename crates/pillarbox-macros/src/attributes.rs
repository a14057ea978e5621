//! Parses one `#[event(…)]`, as it is written.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, LitInt, LitStr, Path, Result, Token};

/// Where an attribute stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Type,
    Variant,
    Field,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Variant => "variant",
            Self::Field => "field",
        }
    }

    /// The words that are allowed here.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Type => &[
                "topic",
                "type",
                "version",
                "namespace",
                "destination",
                "severity",
                "key",
                "aggregate",
                "aggregate_id",
                "tenant",
                "dedupe_key",
                "id",
                "crate",
            ],
            Self::Variant => &["type", "version", "destination", "severity", "aggregate"],
            Self::Field => &[
                "key",
                "aggregate",
                "aggregate_id",
                "tenant",
                "dedupe_key",
                "severity",
                "id",
            ],
        }
    }
}

/// A part of an event that may differ from value to value. The dedupe key comes after the tenant that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Id,
    Tenant,
    Destination,
    Severity,
    Key,
    AggregateId,
    DedupeKey,
}

impl Part {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Tenant => "tenant",
            Self::Destination => "destination",
            Self::Severity => "severity",
            Self::Key => "key",
            Self::AggregateId => "aggregate_id",
            Self::DedupeKey => "dedupe_key",
        }
    }

    /// May it be the same text for every event?
    fn may_be_text(self) -> bool {
        match self {
            Self::Destination | Self::Severity => true,
            Self::Id | Self::Tenant | Self::Key | Self::AggregateId | Self::DedupeKey => false,
        }
    }
}

/// Where a part comes from.
#[derive(Clone)]
pub(crate) enum Source {
    /// The field that this stands on.
    Field(Span),
    /// A text, the same for every event.
    Text(LitStr),
    /// A function that is given the event.
    Function(Path),
}

/// All words of one attribute.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) topic: Option<LitStr>,
    pub(crate) kind: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) namespace: Option<LitStr>,
    pub(crate) krate: Option<Path>,
    pub(crate) aggregate: Option<LitStr>,
    pub(crate) parts: BTreeMap<Part, Source>,
}

impl Attributes {
    pub(crate) fn at(place: Place, attributes: &[Attribute]) -> Result<Self> {
        let mut merged = Self::default();
        for attribute in attributes {
            if attribute.path().is_ident("event") {
                attribute.parse_nested_meta(|meta| merged.read(place, &meta))?;
            }
        }
        Ok(merged)
    }

    fn read(&mut self, place: Place, meta: &ParseNestedMeta) -> Result<()> {
        let word = word(meta);
        if !place.words().contains(&word.as_str()) {
            return Err(meta.error(misplaced(&word, place)));
        }
        match word.as_str() {
            "topic" => once(&mut self.topic, meta, text),
            "type" => once(&mut self.kind, meta, text),
            "version" => once(&mut self.version, meta, version),
            "namespace" => once(&mut self.namespace, meta, text),
            "crate" => once(&mut self.krate, meta, path),
            "aggregate" => {
                once(&mut self.aggregate, meta, text)?;
                if place == Place::Field {
                    // It says both: of what kind, and that this field is which one.
                    return self.part(Part::AggregateId, meta, Source::Field(meta.path.span()));
                }
                Ok(())
            }
            "id" => self.source(Part::Id, place, meta),
            "tenant" => self.source(Part::Tenant, place, meta),
            "destination" => self.source(Part::Destination, place, meta),
            "severity" => self.source(Part::Severity, place, meta),
            "key" => self.source(Part::Key, place, meta),
            "aggregate_id" => self.source(Part::AggregateId, place, meta),
            "dedupe_key" => self.source(Part::DedupeKey, place, meta),
            _ => Err(meta.error(misplaced(&word, place))),
        }
    }

    fn source(&mut self, part: Part, place: Place, meta: &ParseNestedMeta) -> Result<()> {
        let source = match place {
            Place::Field => this_field(meta)?,
            Place::Type | Place::Variant if part.may_be_text() && is_text(meta) => Source::Text(text(meta)?),
            Place::Type | Place::Variant => function(meta)?,
        };
        self.part(part, meta, source)
    }

    fn part(&mut self, part: Part, meta: &ParseNestedMeta, source: Source) -> Result<()> {
        match self.parts.insert(part, source) {
            Some(_) => Err(meta.error(twice(part.word()))),
            None => Ok(()),
        }
    }
}

/// The word. A path of several words is unknown.
fn word(meta: &ParseNestedMeta) -> String {
    meta.path.get_ident().map(Ident::to_string).unwrap_or_default()
}

fn misplaced(word: &str, place: Place) -> String {
    let here = place.words().join("`, `");
    let places = [Place::Type, Place::Variant, Place::Field];
    match places.iter().find(|place| place.words().contains(&word)) {
        Some(right) => format!(
            "`{word}` belongs on a {}; a {} takes `{here}`",
            right.name(),
            place.name()
        ),
        None => format!("`{word}` is unknown; a {} takes `{here}`", place.name()),
    }
}

fn twice(word: &str) -> String {
    format!("`{word}` is given twice; keep one")
}

fn once<T>(
    slot: &mut Option<T>,
    meta: &ParseNestedMeta,
    read: fn(&ParseNestedMeta) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(meta.error(twice(&word(meta))));
    }
    *slot = Some(read(meta)?);
    Ok(())
}

fn is_text(meta: &ParseNestedMeta) -> bool {
    let ahead = meta.input.fork();
    ahead.parse::<Token![=]>().is_ok() && ahead.peek(LitStr)
}

/// `word = "text"`, which says something.
fn text(meta: &ParseNestedMeta) -> Result<LitStr> {
    let word = word(meta);
    if !is_text(meta) {
        return Err(meta.error(format!("`{word}` is a text; write `{word} = \"…\"`")));
    }
    let text: LitStr = meta.value()?.parse()?;
    if text.value().is_empty() {
        return Err(Error::new(
            text.span(),
            format!("`{word}` is empty; give it a name"),
        ));
    }
    Ok(text)
}

/// `version = 2`.
fn version(meta: &ParseNestedMeta) -> Result<LitInt> {
    let sentence = "`version` counts the shapes of the payload from 1; write `version = 1`";
    let number = meta.value().and_then(|value| value.parse::<LitInt>());
    match number {
        Ok(number) if number.base10_parse::<i32>().is_ok_and(|number| number >= 1) => Ok(number),
        Ok(number) => Err(Error::new(number.span(), sentence)),
        Err(error) => Err(Error::new(error.span(), sentence)),
    }
}

/// `crate = path`.
fn path(meta: &ParseNestedMeta) -> Result<Path> {
    let sentence = "`crate` is where pillarbox is to be found; write `crate = some::path`";
    let path = meta.value().and_then(|value| value.call(Path::parse_mod_style));
    path.map_err(|error| Error::new(error.span(), sentence))
}

/// The bare word on a field.
fn this_field(meta: &ParseNestedMeta) -> Result<Source> {
    if meta.input.peek(Token![=]) {
        let word = word(meta);
        return Err(meta.error(format!(
            "on a field `{word}` stands alone: the field's value is what counts"
        )));
    }
    Ok(Source::Field(meta.path.span()))
}

/// `word = Self::function`.
fn function(meta: &ParseNestedMeta) -> Result<Source> {
    let word = word(meta);
    let sentence = format!(
        "`{word}` differs from event to event; name a function, `{word} = Self::{word}`, or say `#[event({word})]` on a field"
    );
    let ahead = meta.input.fork();
    let is_path =
        ahead.parse::<Token![=]>().is_ok() && (ahead.peek(Ident::peek_any) || ahead.peek(Token![::]));
    if !is_path {
        return Err(meta.error(sentence));
    }
    meta.value()?.parse().map(Source::Function)
}
