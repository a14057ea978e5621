//! What a `log` destination can say: nothing.

use serde::{Deserialize, Serialize};

/// A destination of `type = "log"`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// The shortest configuration that works, on a local server. The first key has the address.
pub(crate) const MINIMAL: &str = "";
