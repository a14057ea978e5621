//! Where the servers are.

/// The value of a variable that `scripts/services env` prints.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run scripts/test, or eval \"$(scripts/services start)\" first")
    })
}

/// A name that nobody else has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::now_v7().simple())
}
