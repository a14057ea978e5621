//! From a table to a layout: what `pillarbox adopt` proposes, and why.
//!
//! | file | what it does |
//! |---|---|
//! | `facts` | what the database says about a table; reads only |
//! | `roles` | which column is what, by its name and type |
//! | `codes` | which value of a status is what |
//! | `propose` | from facts to a layout, or why there is none |
//! | `promises` | what holds for a table with such a layout |
//! | `written` | the layout as it stands in `pillarbox.toml` |
//!
//! **If we die here** nothing was changed: a look leaves no trace.

pub(crate) mod codes;
pub(crate) mod facts;
pub(crate) mod promises;
pub(crate) mod propose;
pub(crate) mod roles;
pub(crate) mod written;
