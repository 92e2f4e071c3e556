//! TLS configuration.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::ServeError;

pub(super) fn acceptor(chain: &Path, key: &Path) -> Result<TlsAcceptor, ServeError> {
    let wrong = |path: &Path, source: Box<dyn std::error::Error + Send + Sync>| ServeError::Tls {
        path: path.to_owned(),
        source,
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(chain).and_then(Iterator::collect);
    let certificates = certificates.map_err(|error| wrong(chain, error.into()))?;
    if certificates.is_empty() {
        return Err(wrong(chain, "the file contains no certificate".into()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error.into()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|error| wrong(chain, error.into()))?;
    let config = config
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|error| wrong(key, error.into()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
