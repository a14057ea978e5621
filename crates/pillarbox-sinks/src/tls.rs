//! The TLS settings of every sink: a private CA and a client certificate.
//!
//! The CAs of the system stay trusted, unless the page of a sink says otherwise. Verification cannot be turned off.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::registry::ConfigError;

/// The `tls` table of a destination.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// PEM file with the certificates of private authorities.
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate and its chain, for servers that require one.
    pub cert_file: Option<PathBuf>,
    /// PEM file with the key of `cert_file`.
    pub key_file: Option<PathBuf>,
}

/// The content of the files.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<Identity>,
}

/// The client certificate and its key, both PEM.
pub(crate) struct Identity {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<Loaded, ConfigError> {
        let ca = self
            .ca_file
            .as_deref()
            .map(|path| read("tls.ca_file", path))
            .transpose()?;
        let identity = match (&self.cert_file, &self.key_file) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(Identity {
                cert: read("tls.cert_file", cert)?,
                key: read("tls.key_file", key)?,
            }),
            (Some(_), None) => {
                return Err(ConfigError::at(
                    "tls.key_file",
                    "is missing; `tls.cert_file` needs its key",
                ));
            }
            (None, Some(_)) => {
                return Err(ConfigError::at(
                    "tls.cert_file",
                    "is missing; `tls.key_file` needs its certificate",
                ));
            }
        };
        Ok(Loaded { ca, identity })
    }
}

/// Installs a cryptography provider for TLS if the program has installed none. Without one the first connection panics.
pub(crate) fn ensure_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread installed one first.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let bytes = std::fs::read(path).map_err(|error| {
        ConfigError::at(
            key,
            format!("names {}, which cannot be read: {error}", path.display()),
        )
    })?;
    // The TLS library would ignore another file (DER, an empty one) silently, and every connection would fail.
    if !bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        return Err(ConfigError::at(
            key,
            format!("names {}, which is not a PEM file", path.display()),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let tls = Tls {
            cert_file: Some("cert.pem".into()),
            ..Tls::default()
        };
        assert_eq!(tls.load().err().unwrap().key, "tls.key_file");
    }

    #[test]
    fn a_file_that_is_not_there_or_not_pem_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let tls = Tls {
            ca_file: Some(path.clone()),
            ..Tls::default()
        };
        assert!(tls.load().err().unwrap().problem.contains("cannot be read"));
        std::fs::write(&path, b"\x30\x82").unwrap();
        assert!(tls.load().err().unwrap().problem.contains("not a PEM file"));
    }
}
