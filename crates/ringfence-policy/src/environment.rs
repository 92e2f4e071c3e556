//! Filter of environment variables.

mod checked;

use std::ffi::OsString;

use crate::builtin::{ENV_ALLOW, ENV_DENY};
use crate::grants::EnvironmentRules;
pub use checked::ValueCheck;

/// The search path of the `clean` profile.
pub const CLEAN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables of the `clean` profile that keep the caller's value.
const CLEAN_KEPT: [&str; 5] = ["LANG", "LC_ALL", "HOME", "USER", "PWD"];

/// Variables of the `clean` profile with a fixed value.
const CLEAN_FIXED: [(&str, &str); 1] = [("PATH", CLEAN_PATH)];

/// Decision about an environment variable, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvDecision {
    /// The variable reaches the sandbox.
    Passes {
        /// The reason.
        because: EnvReason,
    },
    /// The variable does not reach the sandbox.
    Filtered {
        /// The reason.
        because: EnvReason,
    },
}

/// Reason for a decision about a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvReason {
    /// The policy sets it.
    Set,
    /// The user listed it by full name.
    Named,
    /// A glob of the deny list.
    Denied(String),
    /// A glob of the allow list.
    Allowed(String),
    /// No list contains it.
    Unlisted,
    /// The `clean` profile has exactly six variables.
    Clean,
}

impl EnvDecision {
    /// True if the variable reaches the sandbox.
    pub fn passes(&self) -> bool {
        matches!(self, EnvDecision::Passes { .. })
    }
}

impl EnvironmentRules {
    /// The rules without any policy file.
    pub fn built_in() -> Self {
        Self {
            allow: ENV_ALLOW.iter().map(|name| (*name).to_owned()).collect(),
            deny: ENV_DENY.iter().map(|entry| entry.text.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Decides if the variable `name` passes.
    ///
    /// A variable that the policy sets always passes. A name that the user listed overrides a deny,
    /// a deny overrides an allow, and an unlisted variable does not pass.
    pub fn decide(&self, name: &str) -> EnvDecision {
        if self.set.contains_key(name) {
            return EnvDecision::Passes { because: EnvReason::Set };
        }
        if self.named.iter().any(|named| named == name) {
            return EnvDecision::Passes { because: EnvReason::Named };
        }
        if self.clean {
            let kept =
                CLEAN_KEPT.contains(&name) || CLEAN_FIXED.iter().any(|(fixed, _)| *fixed == name);
            let because = EnvReason::Clean;
            return if kept {
                EnvDecision::Passes { because }
            } else {
                EnvDecision::Filtered { because }
            };
        }
        if let Some(glob) = self.deny.iter().find(|glob| name_matches(glob, name)) {
            return EnvDecision::Filtered { because: EnvReason::Denied(glob.clone()) };
        }
        match self.allow.iter().find(|glob| name_matches(glob, name)) {
            Some(glob) => EnvDecision::Passes { because: EnvReason::Allowed(glob.clone()) },
            None => EnvDecision::Filtered { because: EnvReason::Unlisted },
        }
    }

    /// The environment of the sandbox, from the caller's environment.
    ///
    /// A name that is not UTF-8 does not pass: no list can contain it.
    pub fn filter(
        &self,
        vars: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let fixed = if self.clean { &CLEAN_FIXED[..] } else { &[] };
        let is_fixed = |name: &str| fixed.iter().any(|(fixed, _)| *fixed == name);
        let passes = |name: &str| {
            !self.set.contains_key(name) && !is_fixed(name) && self.decide(name).passes()
        };
        let mut kept: Vec<_> = vars.filter(|(name, _)| name.to_str().is_some_and(passes)).collect();
        let unset = fixed.iter().filter(|(name, _)| !self.set.contains_key(*name));
        kept.extend(unset.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        kept.extend(
            self.set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))),
        );
        kept
    }
}

/// True if the name suggests a secret, by the built-in list.
pub fn looks_secret(name: &str) -> bool {
    ENV_DENY.iter().any(|entry| name_matches(entry.text, name))
}

/// Matches `*` and `?` in a name, case-insensitive: `aws_key` is as secret as `AWS_KEY`.
pub(crate) fn name_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                retry = Some((g + 1, n));
                g += 1;
            }
            Some(&c) if c == b'?' || c.eq_ignore_ascii_case(&name[n]) => {
                g += 1;
                n += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    g = after;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> EnvironmentRules {
        let mut rules = EnvironmentRules::built_in();
        rules.allow.push("MY_*".to_owned());
        rules.named.push("GITHUB_TOKEN".to_owned());
        rules.set.insert("SET_KEY".to_owned(), "1".to_owned());
        rules
    }

    #[track_caller]
    fn check(name: &str, expect: bool) {
        assert_eq!(rules().decide(name).passes(), expect, "{name}: {:?}", rules().decide(name));
    }

    #[track_caller]
    fn check_filter(rules: &EnvironmentRules, vars: &[(&str, &str)], expect: &[(&str, &str)]) {
        let os = |pairs: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect()
        };
        assert_eq!(rules.filter(os(vars).into_iter()), os(expect));
    }

    #[test]
    fn harmless_variables_pass_and_secrets_do_not() {
        for name in
            ["PATH", "HOME", "LC_TIME", "NODE_ENV", "DEBUG", "CI", "MY_COLOUR", "RUST_BACKTRACE"]
        {
            check(name, true);
        }
        for name in [
            "API_KEY",
            "my_key_2",
            "npm_config_token",
            "Aws_Profile",
            "GITHUB_ACTOR",
            "MY_SECRET",
            "KUBERNETES_SERVICE_HOST",
            "PGPASSWORD",
            "GL_PAT",
            "SENTRY_DSN",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "SSH_AUTH_SOCK",
            "WHATEVER",
            "",
        ] {
            check(name, false);
        }
    }

    #[test]
    fn named_and_set_variables_override_denies() {
        check("GITHUB_TOKEN", true);
        check("SET_KEY", true);
        check("GITHUB_TOKEN_2", false);
    }

    #[test]
    fn deny_beats_allow() {
        let rules = EnvironmentRules {
            allow: vec!["*".into()],
            deny: vec!["X*".into()],
            ..EnvironmentRules::default()
        };
        assert_eq!(
            rules.decide("XY"),
            EnvDecision::Filtered { because: EnvReason::Denied("X*".into()) }
        );
        assert_eq!(
            rules.decide("Y"),
            EnvDecision::Passes { because: EnvReason::Allowed("*".into()) }
        );
    }

    #[test]
    fn the_clean_profile_is_exactly_six_variables() {
        let mut clean = EnvironmentRules { clean: true, ..EnvironmentRules::built_in() };
        let vars = [
            ("PATH", "/evil"),
            ("HOME", "/h"),
            ("USER", "u"),
            ("PWD", "/p"),
            ("LANG", "de"),
            ("LC_ALL", "C"),
            ("TERM", "x"),
            ("LC_TIME", "C"),
        ];
        let six = [
            ("HOME", "/h"),
            ("USER", "u"),
            ("PWD", "/p"),
            ("LANG", "de"),
            ("LC_ALL", "C"),
            ("PATH", CLEAN_PATH),
        ];
        check_filter(&clean, &vars, &six);
        clean.set.insert("PATH".into(), "/mine".into());
        check_filter(&clean, &[("LANG", "de")], &[("LANG", "de"), ("PATH", "/mine")]);
    }

    #[test]
    fn stars_do_not_multiply() {
        assert!(!name_matches("*a*a*a*a*a*a*b", &"a".repeat(5000)));
        assert!(name_matches("*a*b", "xaxxB"));
        assert!(!name_matches("a", "ab"));
    }
}
