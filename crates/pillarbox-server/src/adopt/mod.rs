//! From a table to a layout: what `pillarbox adopt` proposes, and why.
//!
//! | file | what it does |
//! |---|---|
//! | `facts` | reads what the database knows about a table |
//! | `roles` | finds the role of a column by its name and type |
//! | `codes` | finds the meaning of a status code |
//! | `propose` | turns facts into a layout, or into reasons against one |
//! | `promises` | lists what Pillarbox promises for a layout |
//! | `toml` | writes a layout for `pillarbox.toml` |
//!
//! **If we die here** nothing was changed: all of it only reads.

pub(crate) mod codes;
pub(crate) mod facts;
pub(crate) mod promises;
pub(crate) mod propose;
pub(crate) mod roles;
pub(crate) mod toml;
