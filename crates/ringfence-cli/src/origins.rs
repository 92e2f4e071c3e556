//! Where settings were written that carry no origin of their own.

use ringfence_engine::{ResolvedPolicy, layers};
use ringfence_policy::{Flags, Origin, Policy, PolicyLayer, Source};

use crate::commands::resolve_args::ResolvedArgs;
use crate::error::CliError;

/// The files and flags behind a resolved policy.
pub(crate) struct PolicyOrigins<'a> {
    layers: Vec<PolicyLayer>,
    flags: &'a Flags,
}

impl<'a> PolicyOrigins<'a> {
    /// Reads the files that `meant` was resolved from.
    pub(crate) fn of(meant: &'a ResolvedArgs) -> Result<Self, CliError> {
        let ResolvedPolicy { surroundings, .. } = &meant.resolved;
        Ok(Self { layers: layers(&meant.files, &surroundings.facts)?, flags: &meant.flags })
    }

    /// Who wrote `text` into the list at `key`; what no file has is built in.
    pub(crate) fn entry(&self, key: &str, list: fn(&Policy) -> &[String], text: &str) -> Origin {
        let written = self.layers.iter().find_map(|layer| {
            let place = list(&layer.policy).iter().position(|entry| entry == text)?;
            Some(layer.origin(&format!("{key}.{place}"), text))
        });
        written.unwrap_or_else(|| Origin::new(Source::BuiltIn, text))
    }

    /// Who set the variable `name`, or asked for it by name.
    pub(crate) fn variable(&self, name: &str) -> Origin {
        if self.flags.env.iter().any(|(flag, _)| flag == name) {
            return Origin::new(Source::Flag, format!("--env {name}"));
        }
        let setter =
            self.layers.iter().rev().find(|layer| layer.policy.environment.set.contains_key(name));
        match setter {
            Some(layer) => layer.origin("environment.set", name),
            None => self.entry("environment.allow", |policy| &policy.environment.allow, name),
        }
    }

    /// The strongest that says so at `key`: the flag, else the last file, else nobody.
    pub(crate) fn setting(
        &self,
        key: &str,
        flag: Option<&str>,
        says_so: impl Fn(&Policy) -> bool,
    ) -> Origin {
        if let Some(flag) = flag {
            return Origin::new(Source::Flag, flag);
        }
        let layer = self.layers.iter().rev().find(|layer| says_so(&layer.policy));
        layer.map_or_else(|| Origin::new(Source::BuiltIn, key), |layer| layer.origin(key, key))
    }

    pub(crate) fn flags(&self) -> &Flags {
        self.flags
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{AbsPath, parse};

    use super::*;

    fn path(text: &str) -> AbsPath {
        AbsPath::new(text).unwrap()
    }

    #[track_caller]
    fn check(found: &Origin, expect: &str) {
        assert_eq!(found.to_string(), expect);
    }

    #[test]
    fn settings_are_traced_to_their_lines() {
        let user = "version = 1\n[network]\nmode = \"none\"\n[environment]\nallow = [\n\"A\"]\n";
        let project = "version = 1\n[environment]\nset = { B = \"1\" }\n";
        let layers = vec![
            parse(user, &path("/u"), Source::User).unwrap(),
            parse(project, &path("/p"), Source::Project).unwrap(),
        ];
        let mut flags = Flags::none(path("/"));
        flags.env.push(("C".into(), None));
        let origins = PolicyOrigins { layers, flags: &flags };
        check(&origins.variable("A"), "/u:6 (user policy)");
        check(&origins.variable("B"), "/p:3 (project policy)");
        check(&origins.variable("C"), "a flag");
        check(&origins.variable("D"), "built in");
        let found = origins.setting("network.mode", None, |policy| policy.network.mode.is_some());
        check(&found, "/u:3 (user policy)");
        check(&origins.setting("network.mode", Some("--net"), |_| false), "a flag");
    }
}
