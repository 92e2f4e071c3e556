//! `ringfence serve`

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ringfence_engine::gather;
use ringfence_http::{Profile, ProviderFactory, Quotas, ServiceReady, ServiceSettings, serve};
use ringfence_local::places;

use super::resolve_args::{directory, duration};
use crate::error::CliError;
use crate::{messages, output};

/// Where the administrator's token may be given, rather than made up.
const TOKEN: &str = "RINGFENCE_ADMIN_TOKEN";

/// Serve skills and sandboxes of many tenants over HTTP
///
/// Each command of a tenant runs in a sandbox of its own, in which nothing of others is. The first
/// start makes a token for the administrator and prints it once; with it, tokens for tenants are
/// made. `GET /` is a page to watch, `/openapi.json` describes everything.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence serve
  RINGFENCE_ADMIN_TOKEN=$(openssl rand -hex 32) ringfence serve --data /srv/ringfence
  ringfence serve --listen 0.0.0.0:7420 --tls-cert cert.pem --tls-key key.pem --host skills.example.org
  curl -H \"Authorization: Bearer $TOKEN\" -F file=@skills.zip http://127.0.0.1:7420/v1/skills/alice/helper/upload

Exit status: 0 when it was told to end (TERM, INT), 125 if it cannot serve.")]
pub(crate) struct ServeArgs {
    /// Print the description of all that is served, OpenAPI 3.1, and do nothing else
    #[arg(long, exclusive = true)]
    openapi: bool,
    /// Where to listen; other machines need TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// Where everything is kept [default: the state directory's `ringfence/service`]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The policy that the first start writes: `sandbox` relies on the operating system alone,
    /// `filesecbox` also lists programs and refuses arguments [default: sandbox]
    #[arg(long, value_name = "PROFILE", value_enum)]
    profile: Option<Chosen>,
    /// A name under which it is reached, beside those of this machine's loopback
    #[arg(long, value_name = "NAME", value_parser = reached_name)]
    host: Vec<String>,
    /// An origin whose pages may use it from a browser
    #[arg(long, value_name = "URL")]
    origin: Vec<String>,
    /// A certificate with its chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How many commands run at the same time, of all tenants
    #[arg(long, value_name = "NUMBER", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    at_once: u32,
    /// How long those that run may take when it is told to end
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    grace: String,
}

/// The policy of a new service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Chosen {
    Sandbox,
    Filesecbox,
}

pub(crate) fn run(arguments: ServeArgs) -> Result<ExitCode, CliError> {
    if arguments.openapi {
        let document =
            serde_json::to_string_pretty(ringfence_http::openapi()).expect("it is plain data");
        output::text(&format!("{document}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let admin_token = match std::env::var(TOKEN) {
        Ok(word) => Some(word),
        Err(std::env::VarError::NotPresent) => None,
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(CliError::Words {
                what: format!("{TOKEN} is not text"),
                hint: format!("`unset {TOKEN}`"),
            });
        }
    };
    let data = match arguments.data {
        Some(data) => data,
        None => gather(&directory(None)?)?.facts.state.join("service").as_path().to_owned(),
    };
    let settings = ServiceSettings {
        listen: arguments.listen,
        data: data.clone(),
        profile: arguments.profile.map(|profile| match profile {
            Chosen::Sandbox => Profile::Sandbox,
            Chosen::Filesecbox => Profile::Filesecbox,
        }),
        admin_token,
        hosts: arguments.host,
        origins: arguments.origin,
        tls: arguments.tls_cert.zip(arguments.tls_key),
        quotas: Quotas::default(),
        at_once: arguments.at_once as usize,
        bounds: ringfence_http::UploadBounds::default(),
        patience: Duration::from_millis(duration(&arguments.grace)?),
    };
    let places = places();
    let place: ProviderFactory = Box::new(move || Box::new(places()));
    serve(settings, place, |ready| greet(ready, &data))
        .map_err(|source| CliError::Serve { source: Box::new(source) })?;
    Ok(ExitCode::SUCCESS)
}

/// A host name, or an address as it stands in a URL.
fn reached_name(word: &str) -> Result<String, String> {
    let address = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = address.map_or_else(
        || word.parse::<Ipv4Addr>().is_ok(),
        |address| address.parse::<Ipv6Addr>().is_ok(),
    );
    match is_address || ringfence_policy::HostName::new(word).is_ok() {
        true => Ok(word.to_owned()),
        false => {
            Err("it is no host name; write one without scheme and port, such as skills.example.org"
                .into())
        }
    }
}

fn greet(ready: &ServiceReady, data: &std::path::Path) {
    let scheme = if ready.is_secure { "https" } else { "http" };
    messages::note(&format!("serving at {scheme}://{}, data in {}", ready.address, data.display()));
    if let Some(token) = &ready.admin_token {
        messages::note(&format!("the administrator's token, told this once: {token}"));
    }
    if ready.resumed > 0 {
        messages::note(&format!(
            "{} commands waited when the service before this one ended, and are run now",
            ready.resumed
        ));
    }
    if ready.lost_sandboxes > 0 {
        messages::warning(&format!(
            "{} sandboxes stood when the service before this one ended, and ended with it",
            ready.lost_sandboxes
        ));
    }
    if ready.lost > 0 {
        messages::warning(&format!(
            "{} commands ran when the service before this one ended, and ended with it",
            ready.lost
        ));
    }
}
