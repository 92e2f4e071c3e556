//! An authority that exists for one sandbox, and in the memory of whoever serves it alone.

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

/// Vouches for whatever name it is asked to.
pub struct SandboxCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// All hosts have one key: none of them is told apart by it.
    key: KeyPair,
}

impl fmt::Debug for SandboxCa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn failed(error: impl fmt::Display) -> io::Error {
    io::Error::other(format!("cannot make a certificate: {error}"))
}

/// The key is gone with the sandbox, and the clocks of those who look need not be right.
fn always(mut parameters: CertificateParams) -> CertificateParams {
    parameters.not_before = date_time_ymd(2000, 1, 1);
    parameters.not_after = date_time_ymd(2049, 12, 31);
    parameters
}

impl SandboxCa {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let mut parameters = always(CertificateParams::default());
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "ringfence, for this sandbox only");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let own = KeyPair::generate().map_err(failed)?;
        let certificate = parameters.self_signed(&own).map_err(failed)?.der().clone();
        let key = KeyPair::generate().map_err(failed)?;
        Ok(Self { issuer: Issuer::new(parameters, own), certificate, key })
    }

    /// Its certificate in the form that is put into bundles.
    pub fn pem(&self) -> String {
        let text = base64(&self.certificate);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// A certificate for `name`.
    pub(super) fn vouch_for(&self, name: &HostName) -> io::Result<CertifiedKey> {
        let mut parameters = always(CertificateParams::new([name.to_string()]).map_err(failed)?);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        // What is longer does not fit, and nobody reads it.
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
