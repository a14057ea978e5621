//! The events that a type stands for: one for a struct, one per variant for an enum.

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Data, DeriveInput, Error, Fields, Ident, LitInt, LitStr, Path, Result, Variant};

use crate::attributes::{Attributes, Place};
use crate::parts::Parts;

/// A type whose values are events.
pub(crate) struct Typed {
    pub(crate) krate: Option<Path>,
    pub(crate) namespace: Option<LitStr>,
    pub(crate) topic: LitStr,
    /// One for a struct, one per variant for an enum.
    pub(crate) cases: Vec<Case>,
}

/// What a value of one shape is.
pub(crate) struct Case {
    /// The variant, if the type is an enum.
    pub(crate) variant: Option<Ident>,
    pub(crate) kind: LitStr,
    pub(crate) version: Option<LitInt>,
    pub(crate) parts: Parts,
}

/// Reports everything that is wrong, and not only the first thing.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    fn or<T>(self, value: Option<T>) -> Result<T> {
        match (self.0, value) {
            (None, Some(value)) => Ok(value),
            (Some(error), _) => Err(error),
            (None, None) => Err(Error::new(Span::call_site(), "this is no event")),
        }
    }
}

impl Typed {
    pub(crate) fn of(input: &DeriveInput) -> Result<Self> {
        let attributes = Attributes::at(Place::Type, &input.attrs)?;
        let mut errors = Errors::default();
        let topic = attributes.topic.clone().ok_or_else(|| {
            let sentence = "this event has no topic; write `#[event(topic = \"orders\", …)]`";
            Error::new(input.ident.span(), sentence)
        });
        let topic = errors.keep(topic);
        let cases = errors.keep(cases(input, &attributes));
        errors.or(topic.zip(cases)).map(|(topic, cases)| Self {
            krate: attributes.krate,
            namespace: attributes.namespace,
            topic,
            cases,
        })
    }
}

fn cases(input: &DeriveInput, attributes: &Attributes) -> Result<Vec<Case>> {
    match &input.data {
        Data::Struct(data) => Ok(vec![case(attributes, None, &input.ident, &data.fields)?]),
        Data::Enum(data) if data.variants.is_empty() => {
            let sentence = "an enum without variants has no values, and so no events";
            Err(Error::new(input.ident.span(), sentence))
        }
        Data::Enum(data) => {
            let mut errors = Errors::default();
            if let Some(kind) = &attributes.kind {
                errors.add(belongs_on_variants(kind, "type"));
            }
            if let Some(version) = &attributes.version {
                errors.add(belongs_on_variants(version, "version"));
            }
            let mut cases = Vec::new();
            for variant in &data.variants {
                cases.extend(errors.keep(of_variant(attributes, variant)));
            }
            errors.or(Some(cases))
        }
        Data::Union(_) => Err(Error::new(
            input.ident.span(),
            "a union has no JSON form; an event is a struct or an enum",
        )),
    }
}

fn belongs_on_variants(at: impl ToTokens, word: &str) -> Error {
    let sentence = format!(
        "each variant of an enum says its own `{word}`; write `#[event({word} = …)]` on the variants"
    );
    Error::new_spanned(at, sentence)
}

fn of_variant(on_type: &Attributes, variant: &Variant) -> Result<Case> {
    let on_variant = Attributes::at(Place::Variant, &variant.attrs)?;
    case(on_type, Some(&on_variant), &variant.ident, &variant.fields)
}

/// One shape of value. Error messages use its name.
fn case(
    on_type: &Attributes,
    on_variant: Option<&Attributes>,
    name: &Ident,
    fields: &Fields,
) -> Result<Case> {
    let mut errors = Errors::default();
    let own = on_variant.unwrap_or(on_type);
    let kind = own.kind.clone().ok_or_else(|| {
        let sentence = format!(
            "this event has no type; write `#[event(type = \"{name}\")]`: the name that consumers know it by, \
             which a renamed Rust type must not change"
        );
        Error::new(name.span(), sentence)
    });
    let kind = errors.keep(kind);
    let parts = errors.keep(Parts::of(on_type, on_variant, name, fields));
    errors.or(kind.zip(parts)).map(|(kind, parts)| Case {
        variant: on_variant.map(|_| name.clone()),
        kind,
        version: own.version.clone(),
        parts,
    })
}
