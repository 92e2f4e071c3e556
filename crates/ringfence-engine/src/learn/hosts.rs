//! Hosts that a command wanted to reach.

use ringfence_api::{Denial, Operation};
use ringfence_policy::policy::PortChoice;
use ringfence_policy::{HostPattern, HostReason, HostRule, NetworkMode, guarded};

use super::comments::who;
use super::{LearnDraft, LearnedRule};

impl LearnDraft<'_> {
    /// What flags say of hosts and ports has to stand in the file, to hold without them.
    pub(super) fn take_host_flags(&mut self) {
        let flags = &self.asked.flags;
        let network = &mut self.policy.network;
        for (key, flag, texts, list) in [
            ("allow", "--allow-host", &flags.allow_host, &mut network.allow),
            ("deny", "--deny-host", &flags.deny_host, &mut network.deny),
        ] {
            for text in texts {
                if !list.contains(text) {
                    self.comments.set(
                        format!("network.{key}.{}", list.len()),
                        format!("given as `{flag} {text}`"),
                    );
                    list.push(text.clone());
                }
            }
        }
        open_ports(&mut network.localhost, &flags.allow_localhost);
        open_ports(&mut network.bind, &flags.bind);
        if flags.net == Some(NetworkMode::AllowList) {
            network.mode = Some(NetworkMode::AllowList);
            self.comments.set("network.mode".into(), "given as `--net allow-list`".into());
        }
    }

    /// Adds the hosts of `denials` that nothing but an entry lacks for, and answers them with the
    /// rest. What is denied stays so, and what is near is for a person to think of.
    pub(super) fn open_hosts<'d>(
        &mut self,
        denials: Vec<&'d Denial>,
    ) -> (Vec<LearnedRule>, Vec<&'d Denial>) {
        let (mut opened, mut rest) = (Vec::new(), Vec::new());
        for denial in denials {
            let Some(rule) = self.wanted_host(denial) else {
                rest.push(denial);
                continue;
            };
            let text = rule.to_string();
            let list = &mut self.policy.network.allow;
            if !list.contains(&text) {
                let why = format!("wanted; {}", who(denial));
                self.comments.set(format!("network.allow.{}", list.len()), why.clone());
                list.push(text.clone());
                opened.push(LearnedRule { what: text, why });
            }
        }
        (opened, rest)
    }

    /// Why a host stays refused.
    pub(super) fn left_host(&self, denial: &Denial) -> String {
        if self.resolved.grants.network.mode == NetworkMode::None {
            return "the network is shut; `ringfence learn --net allow-list` notes which hosts are wanted".into();
        }
        match HostRule::parse(&denial.target).map(|rule| rule.subject) {
            Ok(HostPattern::Range(range)) => match guarded(range.first()) {
                Some(what) => format!("it is {what}, for you to allow"),
                None => denial.rule.clone(),
            },
            Ok(_) | Err(_) => denial.rule.clone(),
        }
    }

    /// The rule that would open what was refused, where none speaks of it.
    fn wanted_host(&self, denial: &Denial) -> Option<HostRule> {
        let rules = &self.resolved.grants.network;
        if denial.operation != Operation::Connect || rules.mode != NetworkMode::AllowList {
            return None;
        }
        // A target is written as a rule on it is.
        let HostRule { subject, port } = HostRule::parse(&denial.target).ok()?;
        let passage = match (&subject, port) {
            (HostPattern::Name(name), None) => rules.lookup(name),
            (HostPattern::Name(name), Some(port)) => rules.name(name, port),
            (HostPattern::Range(range), Some(port)) if guarded(range.first()).is_none() => {
                rules.address(range.first(), port, None, &[])
            }
            _ => return None,
        };
        if passage.ground == HostReason::Unlisted { passage.remedy() } else { None }
    }
}

fn open_ports(choice: &mut Option<PortChoice>, more: &[u16]) {
    if more.is_empty() || *choice == Some(PortChoice::All(true)) {
        return;
    }
    let mut ports = match choice.take() {
        Some(PortChoice::Some(ports)) => ports,
        Some(PortChoice::All(_)) | None => Vec::new(),
    };
    ports.extend(more);
    ports.sort_unstable();
    ports.dedup();
    *choice = Some(PortChoice::Some(ports));
}
