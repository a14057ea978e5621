//! How many random cases a test tries.

/// As many as usual, times `PILLARBOX_TEST_CASES`, which is for nights in which there is more time than in a test run.
///
/// # Panics
/// When the variable is not a whole number.
pub fn cases(usual: u32) -> u32 {
    match std::env::var("PILLARBOX_TEST_CASES") {
        Ok(times) => usual.saturating_mul(times.parse().expect("PILLARBOX_TEST_CASES is a whole number")),
        Err(_) => usual,
    }
}
