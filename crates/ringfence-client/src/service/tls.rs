//! TLS with a server.

use std::env;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_api::ca_bundle::{BUNDLE_VARIABLE, SYSTEM_BUNDLES};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{ReadWrite, RemoteError, TlsHandshake};

/// Trusts the certificates of this file, or else the system's.
pub(super) fn load(ca: Option<&Path>) -> Result<TlsHandshake, RemoteError> {
    let named = ca.map(Path::to_owned).or_else(|| {
        env::var_os(BUNDLE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
    });
    let path = named
        .or_else(|| SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|place| place.exists()))
        .ok_or(RemoteError::NoRoots)?;
    let unusable = |source| RemoteError::Roots { path: path.clone(), source };
    let bytes = std::fs::read(&path).map_err(unusable)?;
    let mut roots = RootCertStore::empty();
    // Some bundles hold certificates that no parser accepts; they are skipped.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok));
    if roots.is_empty() {
        let what = "the file has no certificate";
        return Err(unusable(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| RemoteError::Tls { source: io::Error::other(error) })?;
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    Ok(Box::new(move |host, stream| handshake(&config, host, stream)))
}

fn handshake(
    config: &Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<Box<dyn ReadWrite>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Box::new(stream))
}
