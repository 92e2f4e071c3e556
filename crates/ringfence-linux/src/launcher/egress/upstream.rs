//! Upstream proxy of the host's network, if it needs one.

use ringfence_api::HostFacts;
use ringfence_egress::dial::UpstreamProxies;
use ringfence_policy::Grants;
use ringfence_provider::ProviderError;

/// The proxies of the environment variables of `user`, if any host can be reached.
pub(crate) fn upstream_proxies(
    grants: &Grants,
    user: &HostFacts,
) -> Result<UpstreamProxies, ProviderError> {
    if !grants.network.needs_egress() {
        return Ok(UpstreamProxies::default());
    }
    let read = UpstreamProxies::from_environment(|name| {
        user.proxies.get(name).map(|value| value.reveal().to_owned())
    });
    read.map_err(|unusable| ProviderError::UpstreamProxyUnusable {
        hint: format!(
            "set {0} to `http://HOST:PORT`, or run `unset {0}` for a network that needs no proxy",
            unusable.variable()
        ),
        source: unusable.into(),
    })
}
