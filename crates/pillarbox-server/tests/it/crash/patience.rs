//! Waiting for facts, and taking turns on a small machine.

use std::fs::{File, TryLockError};
use std::future::Future;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to see.
pub(crate) async fn eventually<T, F>(what: &str, patience: Duration, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + patience;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain: {what}");
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// How much of the machine a test takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Others may run beside it.
    Light,
    /// Keeps both cores busy: beside another its short leases would end for want of a processor.
    Heavy,
}

/// A turn on this machine: one heavy test, or several light ones, also from other processes. Ends when
/// it is dropped.
pub(crate) struct Turn {
    _file: File,
}

impl Turn {
    pub(crate) async fn take(weight: Weight) -> Self {
        let path = std::env::temp_dir().join("pillarbox-crash-tests.lock");
        let file = File::create(path).expect("the temporary folder can be written to");
        let look = || async {
            let locked = match weight {
                Weight::Light => file.try_lock_shared(),
                Weight::Heavy => file.try_lock(),
            };
            match locked {
                Ok(()) => Some(()),
                Err(TryLockError::WouldBlock) => None,
                Err(TryLockError::Error(error)) => panic!("the file cannot be locked: {error}"),
            }
        };
        eventually("the other crash tests end", Duration::from_secs(900), look).await;
        Self { _file: file }
    }
}
