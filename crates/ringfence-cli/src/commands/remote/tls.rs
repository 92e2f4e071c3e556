//! The TLS configuration of the client.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_egress::tls_terminate::{BUNDLE_VARIABLE, SYSTEM_BUNDLES};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::RemoteError;

/// Trusts the certificates of this file, or else the system's.
pub(super) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, RemoteError> {
    let named = ca.map(Path::to_owned).or_else(|| {
        env::var_os(BUNDLE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
    });
    let path = named
        .or_else(|| SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|place| place.exists()))
        .ok_or(RemoteError::NoRoots)?;
    let bytes =
        std::fs::read(&path).map_err(|source| RemoteError::Roots { path: path.clone(), source })?;
    let mut roots = RootCertStore::empty();
    // Some bundles hold certificates that no parser accepts; they are skipped.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok));
    if roots.is_empty() {
        let source =
            std::io::Error::new(std::io::ErrorKind::InvalidData, "the file has no certificate");
        return Err(RemoteError::Roots { path, source });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(|source| RemoteError::Tls { source })?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
