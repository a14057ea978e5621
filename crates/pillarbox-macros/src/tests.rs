//! What is rejected, and with which error.

use proc_macro2::TokenStream;
use quote::quote;
use syn::DeriveInput;

use crate::derive;

fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    derive(&syn::parse2::<DeriveInput>(input).expect("a type"))
}

/// All errors of a rejected type.
fn errors(input: TokenStream) -> Vec<String> {
    let error = expand(input).expect_err("it is refused");
    error.into_iter().map(|error| error.to_string()).collect()
}

/// The only error of a rejected type.
fn error(input: TokenStream) -> String {
    let errors = errors(input);
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].clone()
}

#[test]
fn what_is_missing_is_said_all_at_once_with_what_to_write() {
    let said = errors(quote! { struct OrderCreated { order: u64 } });
    assert_eq!(
        said,
        [
            "this event has no topic; write `#[event(topic = \"orders\", …)]`",
            "this event has no type; write `#[event(type = \"OrderCreated\")]`: the name that consumers know it by, \
             which a renamed Rust type must not change",
        ]
    );
}

#[test]
fn every_variant_needs_a_type_of_its_own() {
    let said = errors(quote! {
        #[event(topic = "orders")]
        enum Order { Created { order: u64 }, #[event(type = "OrderPaid")] Paid, Cancelled }
    });
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("`#[event(type = \"Created\")]`"), "{said:?}");
    assert!(said[1].contains("`#[event(type = \"Cancelled\")]`"), "{said:?}");
}

#[test]
fn type_and_version_of_an_enum_stand_on_its_variants() {
    let said = errors(quote! {
        #[event(topic = "orders", type = "Order", version = 2)]
        enum Order { #[event(type = "OrderPaid")] Paid }
    });
    assert_eq!(
        said,
        [
            "each variant of an enum says its own `type`; write `#[event(type = …)]` on the variants",
            "each variant of an enum says its own `version`; write `#[event(version = …)]` on the variants",
        ]
    );
}

#[test]
fn an_unknown_word_is_refused_with_those_that_there_are() {
    let said = error(quote! { #[event(topik = "orders", type = "A")] struct A; });
    assert_eq!(
        said,
        "`topik` is unknown; a type takes `topic`, `type`, `version`, `namespace`, `destination`, `severity`, `key`, \
         `aggregate`, `aggregate_id`, `tenant`, `dedupe_key`, `id`, `crate`"
    );
    let said = error(quote! { #[event(topic = "a", type = "A")] struct A { #[event(name)] id: u64 } });
    assert!(
        said.starts_with("`name` is unknown; a field takes `key`"),
        "{said}"
    );
}

#[test]
fn a_word_in_the_wrong_place_is_refused_with_the_right_one() {
    let said = error(quote! { #[event(topic = "a", type = "A")] struct A { #[event(topic)] topic: String } });
    assert!(
        said.starts_with("`topic` belongs on a type; a field takes"),
        "{said}"
    );
    let said = error(quote! { #[event(topic = "a")] enum A { #[event(type = "A", namespace = "b")] A } });
    assert!(
        said.starts_with("`namespace` belongs on a type; a variant takes"),
        "{said}"
    );
}

#[test]
fn what_is_said_twice_is_refused() {
    for input in [
        quote! { #[event(topic = "a", topic = "b", type = "A")] struct A; },
        quote! { #[event(topic = "a", type = "A")] #[event(topic = "a")] struct A; },
    ] {
        assert_eq!(error(input), "`topic` is given twice; keep one");
    }
    let said = error(quote! { #[event(topic = "a", type = "A")] struct A { #[event(key, key)] id: u64 } });
    assert_eq!(said, "`key` is given twice; keep one");
    let said = error(quote! {
        #[event(topic = "a", type = "A")]
        struct A { #[event(key)] one: u64, #[event(key)] two: u64 }
    });
    assert_eq!(said, "two fields are the `key`; keep one");
    let said = error(quote! {
        #[event(topic = "a", type = "A", key = Self::key)]
        struct A { #[event(key)] one: u64 }
    });
    assert_eq!(said, "`key` is given here and on a field of `A`; keep one");
    let said = error(quote! {
        #[event(topic = "a", type = "A", aggregate = "order")]
        struct A { #[event(aggregate = "order")] one: u64 }
    });
    assert_eq!(said, "`aggregate` is given twice; keep one");
}

#[test]
fn a_version_below_one_is_refused() {
    for version in [
        quote!(0),
        quote!(-1),
        quote!("2"),
        quote!(3_000_000_000),
        quote!(1.5),
    ] {
        let said = error(quote! { #[event(topic = "a", type = "A", version = #version)] struct A; });
        assert_eq!(
            said, "`version` counts the shapes of the payload from 1; write `version = 1`",
            "{version}"
        );
    }
}

#[test]
fn a_text_that_is_none_or_empty_is_refused() {
    let said = error(quote! { #[event(topic = orders, type = "A")] struct A; });
    assert_eq!(said, "`topic` is a text; write `topic = \"…\"`");
    let said = error(quote! { #[event(topic, type = "A")] struct A; });
    assert_eq!(said, "`topic` is a text; write `topic = \"…\"`");
    let said = error(quote! { #[event(topic = "", type = "A")] struct A; });
    assert_eq!(said, "`topic` is empty; give it a name");
}

#[test]
fn what_differs_from_event_to_event_is_a_field_or_a_function() {
    for value in [quote!(key), quote!(key = "all"), quote!(key = 7)] {
        let said = error(quote! { #[event(topic = "a", type = "A", #value)] struct A; });
        assert_eq!(
            said,
            "`key` differs from event to event; name a function, `key = Self::key`, or say `#[event(key)]` on a field"
        );
    }
    let said =
        error(quote! { #[event(topic = "a", type = "A")] struct A { #[event(key = Self::k)] id: u64 } });
    assert_eq!(
        said,
        "on a field `key` stands alone: the field's value is what counts"
    );
}

#[test]
fn an_aggregate_has_a_kind_and_an_id() {
    let said = error(quote! { #[event(topic = "a", type = "A", aggregate = "order")] struct A { id: u64 } });
    assert!(said.contains("nothing says which one"), "{said}");
    let said =
        error(quote! { #[event(topic = "a", type = "A")] struct A { #[event(aggregate_id)] id: u64 } });
    assert!(said.contains("nothing says what kind of thing it is"), "{said}");
    let said = error(quote! {
        #[event(topic = "a", aggregate = "order")]
        enum A { #[event(type = "B")] B { #[event(aggregate_id)] id: u64 }, #[event(type = "C")] C { id: u64 } }
    });
    assert!(said.contains("nothing says which one"), "{said}");
}

#[test]
fn what_has_no_values_or_no_json_is_refused() {
    let said = error(quote! { #[event(topic = "a")] enum Never {} });
    assert_eq!(said, "an enum without variants has no values, and so no events");
    let said = error(quote! { #[event(topic = "a", type = "A")] union A { a: u8, b: i8 } });
    assert_eq!(said, "a union has no JSON form; an event is a struct or an enum");
}

#[test]
fn attributes_of_other_macros_are_kept() {
    let code = expand(quote! {
        #[serde(rename_all = "camelCase")]
        #[event(topic = "a", type = "A")]
        struct A { #[serde(skip)] id: u64 }
    });
    assert!(code.is_ok());
}

#[test]
fn the_crate_may_have_another_name() {
    let input = quote! { #[event(topic = "a", type = "A", crate = crate::outbox)] struct A; };
    let code = expand(input).expect("it is fine").to_string();
    assert!(code.contains("crate :: outbox :: ToEvent for A"), "{code}");
    assert!(!code.contains(":: pillarbox"), "{code}");
    let said = error(quote! { #[event(topic = "a", type = "A", crate = "outbox")] struct A; });
    assert_eq!(
        said,
        "`crate` is where pillarbox is to be found; write `crate = some::path`"
    );
}
