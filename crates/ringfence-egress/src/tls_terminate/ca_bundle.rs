//! Those whom this machine trusts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Where systems keep theirs: Debian, Fedora, SUSE, Alpine and the BSDs.
pub const PLACES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The variable by which a person names another one.
pub const VARIABLE: &str = "SSL_CERT_FILE";

/// Certificates of those who vouch for hosts.
#[derive(Debug, Clone)]
pub struct CaBundle {
    text: String,
    roots: RootCertStore,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum CaBundleError {
    /// The file cannot be read.
    #[error("the certificates in {} cannot be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no certificate in it.
    #[error("no certificate is in {}", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// It is not said from where the path leads.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// Which.
        path: PathBuf,
    },
    /// No file is where systems keep it.
    #[error("this machine's certificates are nowhere")]
    Nowhere,
}

impl CaBundle {
    /// The one that is `named`, or else this machine's.
    pub fn of_host(named: Option<&Path>) -> Result<Self, CaBundleError> {
        match named {
            // From the project, which may be anybody's, nobody is trusted.
            Some(path) if path.is_relative() => {
                Err(CaBundleError::Relative { path: path.to_owned() })
            }
            Some(path) => Self::read(path),
            None => Self::read(
                PLACES
                    .iter()
                    .map(Path::new)
                    .find(|place| place.exists())
                    .ok_or(CaBundleError::Nowhere)?,
            ),
        }
    }

    fn read(path: &Path) -> Result<Self, CaBundleError> {
        let unreadable = |source| CaBundleError::Unreadable { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(unreadable)?;
        let mut roots = RootCertStore::empty();
        // Some bundles hold a few that nobody can read any more.
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok),
        );
        if roots.is_empty() {
            return Err(CaBundleError::Empty { path: path.to_owned() });
        }
        // Between the certificates there may be names in whatever encoding.
        Ok(Self { text: String::from_utf8_lossy(&bytes).into_owned(), roots })
    }

    /// The same with one more, in the form of a file.
    pub fn with(&self, certificate: &str) -> String {
        let end = if self.text.ends_with('\n') { "" } else { "\n" };
        format!("{}{end}{certificate}", self.text)
    }

    pub(super) fn roots(&self) -> RootCertStore {
        self.roots.clone()
    }
}
