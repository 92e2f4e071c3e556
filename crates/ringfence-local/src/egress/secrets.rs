//! Values that stay outside, and are put into requests on the way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_api::SecretValue;
use ringfence_egress::tls_terminate::{
    CaBundle, PLACES, SecretSwap, TerminateRequest, TlsTerminator, VARIABLE,
};
use ringfence_enforce::{CaTrust, SandboxUser};
use ringfence_policy::{AbsPath, Grants, SecretRule};
use ringfence_provider::ProviderError;

/// The values of one sandbox, and whoever puts them in.
#[derive(Debug)]
pub(crate) struct SecretInjector {
    ender: TlsTerminator,
    values: BTreeMap<String, SecretValue>,
}

impl SecretInjector {
    /// What `grants` ask for; `person` is told whom programs have to trust because of it.
    pub(crate) fn of(
        grants: &Grants,
        person: &mut SandboxUser,
    ) -> Result<Option<Arc<Self>>, ProviderError> {
        if !grants.network.ends_tls() {
            return Ok(None);
        }
        let hint = match &person.certificates {
            Some(_) => format!("let {VARIABLE} name a file with certificates, or unset it"),
            None => format!(
                "install the package `ca-certificates`, or let {VARIABLE} name a file with certificates"
            ),
        };
        let bundle = CaBundle::of_host(person.certificates.as_deref());
        let bundle =
            bundle.map_err(|source| ProviderError::NoTrust { hint, source: source.into() })?;
        let ender = TlsTerminator::new(&bundle)
            .map_err(|source| ProviderError::System { what: "make certificates", source })?;
        let mut places: Vec<AbsPath> =
            PLACES.iter().filter_map(|place| AbsPath::new(fs::canonicalize(place).ok()?)).collect();
        places.sort();
        places.dedup();
        person.trust = Some(CaTrust { bundle: bundle.with(&ender.certificate()), places });
        Ok(Some(Arc::new(Self { ender, values: person.sealed.clone() })))
    }

    /// What is to be put in for `secret`.
    pub(super) fn swap(&self, secret: &SecretRule) -> Option<SecretSwap> {
        let value = self.values.get(&secret.env)?.clone();
        Some(SecretSwap {
            name: secret.env.clone(),
            header: secret.header.clone(),
            placeholder: secret.placeholder(),
            value,
        })
    }

    /// Exchanges a connection to a host for one by which values are put in.
    pub(super) fn end(&self, host: OwnedFd, errand: TerminateRequest) -> io::Result<OwnedFd> {
        self.ender.end(host, errand)
    }
}
