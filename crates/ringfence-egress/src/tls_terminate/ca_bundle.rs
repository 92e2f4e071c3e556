//! CA certificates the system trusts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_api::ca_bundle::SYSTEM_BUNDLES;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A bundle of CA certificates.
#[derive(Debug, Clone)]
pub struct CaBundle {
    text: String,
    roots: RootCertStore,
}

/// Reason for an unusable bundle.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// The file cannot be read.
    #[error("cannot read the certificates in {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no certificate in it.
    #[error("no certificate found in {}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A relative path, which depends on the working directory.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// The file.
        path: PathBuf,
    },
    /// No system bundle exists.
    #[error("no system CA bundle found")]
    NotFound,
}

impl CaBundle {
    /// Reads the bundle at `named`, or else the system's.
    pub fn load(named: Option<&Path>) -> Result<Self, CaBundleError> {
        match named {
            // A relative path could name a file of the untrusted project.
            Some(path) if path.is_relative() => {
                Err(CaBundleError::Relative { path: path.to_owned() })
            }
            Some(path) => Self::read(path),
            None => Self::read(
                SYSTEM_BUNDLES
                    .iter()
                    .map(Path::new)
                    .find(|place| place.exists())
                    .ok_or(CaBundleError::NotFound)?,
            ),
        }
    }

    fn read(path: &Path) -> Result<Self, CaBundleError> {
        let unreadable = |source| CaBundleError::Unreadable { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(unreadable)?;
        let mut roots = RootCertStore::empty();
        // Some bundles have a few certificates that cannot be parsed.
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok),
        );
        if roots.is_empty() {
            return Err(CaBundleError::Empty { path: path.to_owned() });
        }
        // Comments between the certificates can have any encoding.
        Ok(Self { text: String::from_utf8_lossy(&bytes).into_owned(), roots })
    }

    /// PEM text of the bundle with one more certificate.
    pub fn pem_with(&self, certificate: &str) -> String {
        let end = if self.text.ends_with('\n') { "" } else { "\n" };
        format!("{}{end}{certificate}", self.text)
    }

    pub(super) fn roots(&self) -> RootCertStore {
        self.roots.clone()
    }
}
