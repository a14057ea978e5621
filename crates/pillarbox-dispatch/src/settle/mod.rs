//! Step 5 of 5: write the verdicts to the store.

pub(crate) mod settler;
