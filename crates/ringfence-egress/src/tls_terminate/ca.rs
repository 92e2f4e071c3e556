//! CA of one sandbox, kept only in the memory of the process that serves it.

use std::fmt;
use std::io;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use ringfence_api::base64;
use ringfence_policy::HostName;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// Issues certificates for any name.
pub struct SandboxCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// All host certificates share one key.
    key: KeyPair,
}

impl fmt::Debug for SandboxCa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SandboxCa").finish_non_exhaustive()
    }
}

fn failed(error: impl fmt::Display) -> io::Error {
    io::Error::other(format!("cannot make a certificate: {error}"))
}

/// The key dies with the sandbox, and the clocks of its programs may be wrong.
fn set_long_validity(mut parameters: CertificateParams) -> CertificateParams {
    parameters.not_before = date_time_ymd(2000, 1, 1);
    parameters.not_after = date_time_ymd(2049, 12, 31);
    parameters
}

impl SandboxCa {
    /// Creates a new CA.
    pub fn new() -> io::Result<Self> {
        let mut parameters = set_long_validity(CertificateParams::default());
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "ringfence, for this sandbox only");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let own = KeyPair::generate().map_err(failed)?;
        let certificate = parameters.self_signed(&own).map_err(failed)?.der().clone();
        let key = KeyPair::generate().map_err(failed)?;
        Ok(Self { issuer: Issuer::new(parameters, own), certificate, key })
    }

    /// Its certificate as PEM.
    pub fn pem(&self) -> String {
        let text = base64(&self.certificate);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// Issues a certificate for `name`.
    pub(super) fn issue(&self, name: &HostName) -> io::Result<CertifiedKey> {
        let mut parameters =
            set_long_validity(CertificateParams::new([name.to_string()]).map_err(failed)?);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        // A common name has at most 64 characters, and clients ignore it.
        if name.as_str().len() <= 64 {
            parameters.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate =
            parameters.signed_by(&self.key, &self.issuer).map_err(failed)?.der().clone();
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key.into()).map_err(failed)?;
        Ok(CertifiedKey::new(vec![certificate], key))
    }
}
