//! The parts of an event that may differ from value to value, and where each comes from.

use std::collections::BTreeMap;

use proc_macro2::Span;
use quote::format_ident;
use syn::spanned::Spanned;
use syn::{Error, Field, Fields, Ident, Index, LitStr, Member, Path, Result, Type};

use crate::attributes::{Attributes, Part, Place, Source};

/// How the code gets at a part.
#[derive(Clone)]
pub(crate) enum Value {
    Text(LitStr),
    Function(Path),
    Field {
        binding: Ident,
        is_option: bool,
        /// The field's type, for the span of compile errors.
        span: Span,
    },
}

/// All parts of one shape of value.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) values: BTreeMap<Part, Value>,
    pub(crate) aggregate: Option<LitStr>,
    /// The fields that values are taken from, and the names that they have meanwhile.
    pub(crate) bindings: Vec<(Member, Ident)>,
}

impl Parts {
    /// Merges the attributes of the fields, the variant and the type. The variant wins over the type.
    pub(crate) fn of(
        on_type: &Attributes,
        on_variant: Option<&Attributes>,
        name: &Ident,
        fields: &Fields,
    ) -> Result<Self> {
        let mut parts = Self::default();
        for (position, field) in fields.iter().enumerate() {
            parts.read_field(position, field)?;
        }
        let mut around = on_type.parts.clone();
        around.extend(on_variant.iter().flat_map(|attributes| attributes.parts.clone()));
        for (part, source) in around {
            parts.read_type(part, source, name)?;
        }
        let aggregate = on_variant.and_then(|attributes| attributes.aggregate.as_ref());
        let aggregate = aggregate.or(on_type.aggregate.as_ref());
        if let Some(aggregate) = aggregate {
            parts.name_aggregate(aggregate)?;
        }
        parts.check_aggregate(name)?;
        Ok(parts)
    }

    fn read_field(&mut self, position: usize, field: &Field) -> Result<()> {
        let attributes = Attributes::at(Place::Field, &field.attrs)?;
        if attributes.parts.is_empty() {
            return Ok(());
        }
        let binding = format_ident!("field_{position}", span = field.ty.span());
        for (part, source) in &attributes.parts {
            let value = Value::Field {
                binding: binding.clone(),
                is_option: is_option(&field.ty),
                span: field.ty.span(),
            };
            if self.values.insert(*part, value).is_some() {
                let sentence = format!("two fields are the `{}`; keep one", part.word());
                return Err(Error::new(span(source), sentence));
            }
        }
        if let Some(aggregate) = &attributes.aggregate {
            self.name_aggregate(aggregate)?;
        }
        self.bindings.push((member(position, field), binding));
        Ok(())
    }

    fn read_type(&mut self, part: Part, source: Source, name: &Ident) -> Result<()> {
        let at = span(&source);
        let value = match source {
            Source::Text(text) => Value::Text(text),
            Source::Function(path) => Value::Function(path),
            Source::Field(at) => {
                return Err(Error::new(at, "this stands on a field"));
            }
        };
        if self.values.insert(part, value).is_some() {
            let word = part.word();
            let sentence = format!("`{word}` is given here and on a field of `{name}`; keep one");
            return Err(Error::new(at, sentence));
        }
        Ok(())
    }

    fn name_aggregate(&mut self, aggregate: &LitStr) -> Result<()> {
        match self.aggregate.replace(aggregate.clone()) {
            Some(_) => Err(Error::new(
                aggregate.span(),
                "`aggregate` is given twice; keep one",
            )),
            None => Ok(()),
        }
    }

    /// What kind of thing, and which one: both or neither.
    fn check_aggregate(&self, name: &Ident) -> Result<()> {
        match (&self.aggregate, self.values.get(&Part::AggregateId)) {
            (Some(_), None) => Err(Error::new(
                name.span(),
                "`aggregate` says what kind of thing it happened to, and nothing says which one; \
                 write `#[event(aggregate_id)]` on a field, or `aggregate_id = Self::aggregate_id` on the type",
            )),
            (None, Some(_)) => Err(Error::new(
                name.span(),
                "`aggregate_id` says which one it happened to, and nothing says what kind of thing it is; \
                 write `#[event(aggregate = \"order\")]` on the type",
            )),
            (Some(_), Some(_)) | (None, None) => Ok(()),
        }
    }
}

fn span(source: &Source) -> Span {
    match source {
        Source::Field(span) => *span,
        Source::Text(text) => text.span(),
        Source::Function(path) => path.span(),
    }
}

fn member(position: usize, field: &Field) -> Member {
    match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(position)),
    }
}

/// By its name: a macro sees no types. An alias of another name is not recognised, and does not compile.
fn is_option(field: &Type) -> bool {
    let Type::Path(path) = field else {
        return false;
    };
    (path.path.segments.last()).is_some_and(|last| last.ident == "Option")
}
