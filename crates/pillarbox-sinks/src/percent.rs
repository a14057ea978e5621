//! What is percent-encoded where.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC};

/// All but what may stand in a URI as itself (RFC 3986, unreserved).
pub(crate) const URI: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What the CloudEvents bindings for HTTP and NATS encode in the value of a header; what is not ASCII as well.
pub(crate) const HEADER: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
