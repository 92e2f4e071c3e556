//! The proxy by which this machine's network is left, where it has one.

use ringfence_egress::dial::UpstreamProxies;
use ringfence_enforce::SandboxUser;
use ringfence_policy::Grants;
use ringfence_provider::ProviderError;

/// What the variables of `person` say, where hosts can be reached at all.
pub(crate) fn outer(
    grants: &Grants,
    person: &SandboxUser,
) -> Result<UpstreamProxies, ProviderError> {
    if !grants.network.has_a_border() {
        return Ok(UpstreamProxies::default());
    }
    let read = UpstreamProxies::from_variables(|name| {
        person.proxies.get(name).map(|value| value.reveal().to_owned())
    });
    read.map_err(|unusable| ProviderError::NoWayOut {
        hint: format!(
            "let {0} be `http://HOST:PORT`, or `unset {0}` for a network that needs no proxy",
            unusable.variable()
        ),
        source: unusable.into(),
    })
}
