//! `#[derive(Event)]`: makes a serde type an event.
//!
//! ```text
//! attributes: what was written ─▶ meaning, parts: what is true ─▶ expand: the code
//! ```
//!
//! A missing, unknown, duplicate or misplaced attribute is a compile error at its place, which says what to write. All
//! errors of a type are reported at once.
//!
//! Used through the crate `pillarbox`; its module `typed` is the manual.

mod attributes;
mod expand;
mod meaning;
mod parts;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `pillarbox::ToEvent` for a type that implements `serde::Serialize`.
///
/// `pillarbox::typed` lists what `#[event(…)]` takes.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

fn derive(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let typed = meaning::Typed::of(input)?;
    Ok(expand::expand(input, &typed))
}
