//! Secrets that stay outside the sandbox and are injected into requests.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::launcher::system_step::SystemStep;

use ringfence_api::{CaTrust, HostFacts, SecretValue};
use ringfence_egress::tls_terminate::{
    BUNDLE_VARIABLE, CaBundle, SYSTEM_BUNDLES, SecretSwap, TerminateRequest, TlsTerminator,
};
use ringfence_policy::{AbsPath, Grants, SecretRule};
use ringfence_provider::ProviderError;

/// Secrets of one sandbox, and the TLS terminator that injects them.
#[derive(Debug)]
pub(crate) struct SecretInjector {
    terminator: TlsTerminator,
    values: BTreeMap<String, SecretValue>,
}

impl SecretInjector {
    /// The injector that `grants` ask for, if any; adds its CA to the trust of `user`.
    pub(crate) fn from_grants(
        grants: &Grants,
        user: &mut HostFacts,
    ) -> Result<Option<Arc<Self>>, ProviderError> {
        if !grants.network.terminates_tls() {
            return Ok(None);
        }
        let hint = match &user.certificates {
            Some(_) => {
                format!(
                    "set {BUNDLE_VARIABLE} to a file with certificates, or run `unset {BUNDLE_VARIABLE}`"
                )
            }
            None => format!(
                "install the package `ca-certificates`, or set {BUNDLE_VARIABLE} to a file with certificates"
            ),
        };
        let bundle = CaBundle::load(user.certificates.as_deref());
        let bundle = bundle
            .map_err(|source| ProviderError::NoCaCertificates { hint, source: source.into() })?;
        let terminator = TlsTerminator::new(&bundle).during("create certificates")?;
        let mut places: Vec<AbsPath> = SYSTEM_BUNDLES
            .iter()
            .filter_map(|place| AbsPath::new(fs::canonicalize(place).ok()?))
            .collect();
        places.sort();
        places.dedup();
        user.trust = Some(CaTrust {
            bundle: bundle.pem_with(&terminator.certificate()),
            bundle_paths: places,
        });
        Ok(Some(Arc::new(Self { terminator, values: user.secrets.clone() })))
    }

    /// The replacement for the placeholder of `secret`.
    pub(super) fn swap(&self, secret: &SecretRule) -> Option<SecretSwap> {
        let value = self.values.get(&secret.env)?.clone();
        Some(SecretSwap {
            name: secret.env.clone(),
            header: secret.header.clone(),
            placeholder: secret.placeholder(),
            value,
        })
    }

    /// Wraps a connection to a host into one that injects secrets.
    pub(super) fn terminate(
        &self,
        host: OwnedFd,
        request: TerminateRequest,
    ) -> io::Result<OwnedFd> {
        self.terminator.terminate(host, request)
    }
}
