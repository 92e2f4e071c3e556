//! The engines of `local`: the means by which it confines commands on this host.

use std::sync::OnceLock;
use std::{env, fs, io};

use ringfence_plan::HostSupport;
use ringfence_plan::landlock::Mediation;
use ringfence_policy::{AbsPath, ProviderOptions, ProviderSpec};
use ringfence_provider::ProviderError;
use rustix::rand::GetRandomFlags;

use crate::apply;
use crate::launcher::system_step::SystemStep;

/// The choice of an engine: the option `engine` of `local`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// Namespaces, and Landlock where the host forbids them.
    #[default]
    Auto,
    /// Namespaces, seccomp and a little of Landlock.
    Namespaces,
    /// Landlock and seccomp.
    Landlock,
}

impl EngineChoice {
    /// The name of the option.
    pub const OPTION: &'static str = "engine";
    const NAMES: [(&str, EngineChoice); 3] = [
        ("auto", EngineChoice::Auto),
        ("namespaces", EngineChoice::Namespaces),
        ("landlock", EngineChoice::Landlock),
    ];

    /// The choice in the options of `local`.
    ///
    /// # Errors
    ///
    /// An unknown option, or an unknown engine.
    pub fn from_options(options: &ProviderOptions) -> Result<Self, ProviderError> {
        if let Some(option) = options.find_unknown(&[Self::OPTION]) {
            return Err(ProviderError::unknown_option(
                ProviderSpec::LOCAL,
                option,
                &[Self::OPTION],
            ));
        }
        let Some(name) = options.get(Self::OPTION) else { return Ok(Self::default()) };
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, choice)| *choice).ok_or_else(|| ProviderError::InvalidOption {
            provider: ProviderSpec::LOCAL.into(),
            option: Self::OPTION.into(),
            value: name.into(),
            known: Self::NAMES.map(|(name, _)| name).join(", "),
        })
    }

    /// True if commands are confined by Landlock instead of namespaces here.
    pub(crate) fn is_landlock(self, support: &HostSupport) -> bool {
        match self {
            EngineChoice::Namespaces => false,
            EngineChoice::Landlock => true,
            EngineChoice::Auto => support.landlock > 0 && are_namespaces_forbidden(),
        }
    }
}

/// True if this host forbids the namespaces that a sandbox needs. Tried only where the host's
/// settings give a reason to, because trying costs a fork.
fn are_namespaces_forbidden() -> bool {
    static FORBIDDEN: OnceLock<bool> = OnceLock::new();
    *FORBIDDEN.get_or_init(|| is_suspicious() && apply::probe().is_some())
}

/// The process that decides about paths in a sandbox without namespaces: the notify handler, if the
/// kernel lets this process have one. A process below another notify handler may have none.
pub(crate) fn mediation() -> Mediation {
    static FOUND: OnceLock<Mediation> = OnceLock::new();
    *FOUND.get_or_init(|| if apply::can_mediate() { Mediation::Handler } else { Mediation::None })
}

fn is_suspicious() -> bool {
    let setting = |name: &str| {
        fs::read_to_string(format!("/proc/sys/{name}")).map(|text| text.trim().to_owned())
    };
    let is = |name, value| setting(name).is_ok_and(|found| found == value);
    let has_filter = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line == "Seccomp:\t2"));
    has_filter
        || is("user/max_user_namespaces", "0")
        || is("kernel/unprivileged_userns_clone", "0")
        || is("kernel/apparmor_restrict_unprivileged_userns", "1")
}

/// A new path for the temporary files of restricted commands. Other users cannot guess it.
pub(crate) fn scratch_path(support: &HostSupport) -> Result<AbsPath, ProviderError> {
    if support.landlock == 0 {
        let text = "this kernel has no Landlock, or it is not in the boot parameter `lsm=`";
        let source = io::Error::other(text);
        return Err(ProviderError::System { what: "confine commands by Landlock", source });
    }
    let what = "choose a directory for temporary files";
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random[..], GetRandomFlags::empty()).during(what)?;
    let directory = fs::canonicalize(env::temp_dir()).during(what)?;
    let directory = AbsPath::new(directory).ok_or(io::ErrorKind::InvalidInput).during(what)?;
    Ok(directory.join(format!("ringfence-{:016x}", u64::from_ne_bytes(random))))
}
