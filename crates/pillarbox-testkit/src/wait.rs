//! Waiting for an observed fact, with a deadline, and taking turns on a small machine.

use std::fs::{File, TryLockError};
use std::time::{Duration, Instant};

/// Long enough for anything on a busy machine. It costs time only where something is broken.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_millis(10);

/// Asks until the answer is yes, for at most [`TIMEOUT`].
///
/// # Panics
/// If the answer stays no.
pub async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_within(TIMEOUT, what, is_so).await;
}

/// Asks until the answer is yes.
///
/// # Panics
/// If the answer stays no for this long.
pub async fn until_within(timeout: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !is_so().await {
        assert!(Instant::now() < deadline, "timeout after {timeout:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Asks until there is a value, for at most [`TIMEOUT`].
///
/// # Panics
/// If there is none.
pub async fn until_some<T>(what: &str, value: impl AsyncFnMut() -> Option<T>) -> T {
    until_some_within(TIMEOUT, what, value).await
}

/// Asks until there is a value.
///
/// # Panics
/// If there is none for this long.
pub async fn until_some_within<T>(
    timeout: Duration,
    what: &str,
    mut value: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = value().await {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout after {timeout:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Tries until it succeeds, for at most [`TIMEOUT`], in a test without a runtime.
///
/// # Panics
/// With the last error, if it does not succeed.
pub fn until_ok_blocking<T>(what: &str, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(last) => assert!(
                Instant::now() < deadline,
                "timeout after {TIMEOUT:?}: {what}\nlast error: {last}"
            ),
        }
        std::thread::sleep(INTERVAL);
    }
}

/// How much of the machine a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Others may run beside it.
    Light,
    /// It keeps both cores busy. Beside another one, its short leases would expire for want of a processor.
    Heavy,
}

/// A share of this machine: one heavy test, or several light ones, also from other processes. Released when dropped.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits for the other tests that hold it.
    ///
    /// # Panics
    /// After fifteen minutes, or if the lock file in the temporary folder cannot be used.
    pub async fn acquire(load: Load) -> Self {
        let path = std::env::temp_dir().join("pillarbox-tests.lock");
        let file = File::create(path).expect("the lock file can be created");
        let try_lock = async || {
            let locked = match load {
                Load::Light => file.try_lock_shared(),
                Load::Heavy => file.try_lock(),
            };
            match locked {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => false,
                Err(TryLockError::Error(error)) => panic!("the lock file cannot be locked: {error}"),
            }
        };
        until_within(Duration::from_secs(900), "the machine is free", try_lock).await;
        Self { _file: file }
    }
}
