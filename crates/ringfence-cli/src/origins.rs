//! The origins of settings whose values carry none.

use ringfence_engine::{ResolvedPolicy, read_layers};
use ringfence_policy::{Flags, Origin, Policy, PolicyLayer, Source};

use crate::commands::resolve_args::ResolvedArgs;
use crate::error::CliError;

/// The files and flags behind a resolved policy.
pub(crate) struct PolicyOrigins<'a> {
    layers: Vec<PolicyLayer>,
    flags: &'a Flags,
}

impl<'a> PolicyOrigins<'a> {
    /// Reads the files that the policy was resolved from.
    pub(crate) fn read(resolved_args: &'a ResolvedArgs) -> Result<Self, CliError> {
        let ResolvedPolicy { surroundings, .. } = &resolved_args.resolved;
        Ok(Self {
            layers: read_layers(&resolved_args.request.files, &surroundings.facts)?,
            flags: &resolved_args.request.flags,
        })
    }

    /// Returns the origin of `text` in the list at `key`; built in, if no file has it.
    pub(crate) fn entry_origin(
        &self,
        key: &str,
        list: fn(&Policy) -> &[String],
        text: &str,
    ) -> Origin {
        let written = self.layers.iter().find_map(|layer| {
            let index = list(&layer.policy).iter().position(|entry| entry == text)?;
            Some(layer.origin(&format!("{key}.{index}"), text))
        });
        written.unwrap_or_else(|| Origin::new(Source::BuiltIn, text))
    }

    /// Returns the origin of the environment variable `name`.
    pub(crate) fn variable_origin(&self, name: &str) -> Origin {
        if self.flags.env.iter().any(|(flag, _)| flag == name) {
            return Origin::new(Source::Flag, format!("--env {name}"));
        }
        let setter =
            self.layers.iter().rev().find(|layer| layer.policy.environment.set.contains_key(name));
        match setter {
            Some(layer) => layer.origin("environment.set", name),
            None => {
                self.entry_origin("environment.allow", |policy| &policy.environment.allow, name)
            }
        }
    }

    /// Returns the origin of a setting: the flag, else the last file that sets it, else built in.
    pub(crate) fn setting_origin(
        &self,
        key: &str,
        flag: Option<&str>,
        sets_it: impl Fn(&Policy) -> bool,
    ) -> Origin {
        if let Some(flag) = flag {
            return Origin::new(Source::Flag, flag);
        }
        let layer = self.layers.iter().rev().find(|layer| sets_it(&layer.policy));
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
        check(&origins.variable_origin("A"), "/u:6 (user policy)");
        check(&origins.variable_origin("B"), "/p:3 (project policy)");
        check(&origins.variable_origin("C"), "a flag");
        check(&origins.variable_origin("D"), "built in");
        let found =
            origins.setting_origin("network.mode", None, |policy| policy.network.mode.is_some());
        check(&found, "/u:3 (user policy)");
        check(&origins.setting_origin("network.mode", Some("--net"), |_| false), "a flag");
    }
}
