//! The code: `impl ToEvent`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Path, parse_quote};

use crate::attributes::Part;
use crate::meaning::{Case, Typed};
use crate::parts::Value;

pub(crate) fn expand(input: &DeriveInput, typed: &Typed) -> TokenStream {
    let pillarbox: Path = typed.krate.clone().unwrap_or_else(|| parse_quote!(::pillarbox));
    let name = &input.ident;
    let mut generics = input.generics.clone();
    // Also of a type without parameters: the compiler then says of the type that it lacks serde's derive.
    generics
        .make_where_clause()
        .predicates
        .push(parse_quote!(Self: #pillarbox::typed::Serialize));
    let (parameters, arguments, conditions) = generics.split_for_impl();
    let namespace = match &typed.namespace {
        Some(namespace) => namespace.to_token_stream(),
        None => quote!(::core::env!("CARGO_PKG_NAME")),
    };
    let topic = &typed.topic;
    let arms = typed.cases.iter().map(|case| arm(&pillarbox, case));
    quote! {
        #[automatically_derived]
        impl #parameters #pillarbox::ToEvent for #name #arguments #conditions {
            fn to_event(
                &self,
            ) -> ::core::result::Result<::std::borrow::Cow<'_, #pillarbox::Event>, #pillarbox::typed::Error> {
                let mut event = #pillarbox::Event::new(#namespace, #topic).json(self)?;
                match self {
                    #(#arms)*
                }
                ::core::result::Result::Ok(::std::borrow::Cow::Owned(event))
            }
        }
    }
}

/// What one shape of value adds to the event.
fn arm(pillarbox: &Path, case: &Case) -> TokenStream {
    let variant = case.variant.iter();
    let (members, bindings): (Vec<_>, Vec<_>) = case.parts.bindings.iter().cloned().unzip();
    let kind = &case.kind;
    let version = case.version.iter();
    let aggregate = case.parts.aggregate.iter();
    let parts = case
        .parts
        .values
        .iter()
        .map(|(part, value)| set(pillarbox, *part, value));
    quote! {
        Self #(:: #variant)* { #(#members: #bindings,)* .. } => {
            event.event_type = ::core::option::Option::Some(::std::string::String::from(#kind));
            #(event.event_version = #version;)*
            #(event.aggregate_type = ::core::option::Option::Some(::std::string::String::from(#aggregate));)*
            #(#parts)*
        }
    }
}

fn set(pillarbox: &Path, part: Part, value: &Value) -> TokenStream {
    let text = || text(value);
    match part {
        Part::Id => {
            let id = converted(value, &quote!(#pillarbox::typed::Uuid));
            quote!(event.id = #id;)
        }
        Part::Tenant => {
            let tenant = converted(value, &quote!(::core::option::Option<#pillarbox::typed::Uuid>));
            quote!(event.tenant_id = #tenant;)
        }
        Part::Destination => {
            let text = text();
            quote!(event.destination = #text;)
        }
        Part::Severity => {
            let text = text();
            quote!(event.severity = #text;)
        }
        Part::Key => {
            let text = text();
            quote!(event.ordering_key = #text;)
        }
        Part::AggregateId => {
            let text = text();
            quote!(event.aggregate_id = #text;)
        }
        Part::DedupeKey => {
            let text = text();
            quote!(event.dedupe_key = #pillarbox::typed::dedupe_key(event.tenant_id, #text);)
        }
    }
}

/// An `Option<String>`.
fn text(value: &Value) -> TokenStream {
    match value {
        Value::Text(text) => quote!(::core::option::Option::Some(::std::string::String::from(#text))),
        Value::Function(path) => quote_spanned! {path.span()=>
            ::core::convert::Into::<::core::option::Option<::std::string::String>>::into(#path(self))
        },
        Value::Field {
            binding,
            is_option: true,
            span,
        } => quote_spanned! {*span=>
            ::core::option::Option::as_ref(#binding).map(::std::string::ToString::to_string)
        },
        Value::Field {
            binding,
            is_option: false,
            span,
        } => quote_spanned! {*span=>
            ::core::option::Option::Some(::std::string::ToString::to_string(#binding))
        },
    }
}

/// What converts into this type.
fn converted(value: &Value, target: &TokenStream) -> TokenStream {
    match value {
        Value::Text(text) => text.to_token_stream(), // refused before: neither an id nor a tenant is a text
        Value::Function(path) => quote_spanned! {path.span()=>
            ::core::convert::Into::<#target>::into(#path(self))
        },
        Value::Field { binding, span, .. } => quote_spanned! {*span=>
            ::core::convert::Into::<#target>::into(::core::clone::Clone::clone(#binding))
        },
    }
}
