//! Permanent grants of ports of the host's loopback.

use std::net::Ipv4Addr;

use ringfence_policy::policy::PortChoice;
use ringfence_policy::{AbsPath, Grants, Origin, PolicyLayer, Source};

use super::AllowError;

/// The ports that files before `file` open, which a list in it would close.
pub(super) fn inherited(file: &AbsPath, layers: &[PolicyLayer]) -> Vec<u16> {
    let before = layers.iter().take_while(|layer| layer.file != *file);
    let lists = before
        .filter(|layer| layer.source != Source::Project)
        .filter_map(|layer| layer.policy.network.localhost.as_ref());
    match lists.last() {
        Some(PortChoice::Some(ports)) => ports.clone(),
        Some(PortChoice::All(_)) | None => Vec::new(),
    }
}

/// The entry that opens the port; an error with the reason that it stays closed.
pub(super) fn allowing_rule(port: u16, grants: &Grants) -> Result<Origin, AllowError> {
    let decision = grants.network.decide_host_loopback(Ipv4Addr::LOCALHOST.into(), port);
    if decision.is_open() {
        let mode = || Origin::new(Source::Mode, "the mode");
        return Ok(decision.origin().cloned().unwrap_or_else(mode));
    }
    Err(AllowError::ClosedPort { port, why: decision.why() })
}
