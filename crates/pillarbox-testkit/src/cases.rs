//! How many random cases a test tries.

/// The usual number times `PILLARBOX_TEST_CASES`, which is for runs that may take hours.
///
/// # Panics
/// If the variable is not a whole number.
pub fn cases(usual: u32) -> u32 {
    match std::env::var("PILLARBOX_TEST_CASES") {
        Ok(times) => usual.saturating_mul(times.parse().expect("PILLARBOX_TEST_CASES is a whole number")),
        Err(_) => usual,
    }
}
