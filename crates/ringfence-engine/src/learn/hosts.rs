//! Hosts that a command tried to reach.

use ringfence_api::{Denial, Operation};
use ringfence_policy::policy::PortChoice;
use ringfence_policy::{HostPattern, HostReason, HostRule, NetworkMode, guarded_kind};

use super::comments::describe_denial;
use super::{LearnDraft, LearnedRule};

impl LearnDraft<'_> {
    /// Adds the hosts and ports of flags, so that the file works without them.
    pub(super) fn add_host_flags(&mut self) {
        let flags = &self.request.flags;
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

    /// Adds the hosts of `denials` that only lack an entry, and returns them and the rest. Denied
    /// hosts stay denied, and addresses in the local network are left to the user.
    pub(super) fn add_missing_hosts<'d>(
        &mut self,
        denials: Vec<&'d Denial>,
    ) -> (Vec<LearnedRule>, Vec<&'d Denial>) {
        let (mut opened, mut rest) = (Vec::new(), Vec::new());
        for denial in denials {
            let Some(rule) = self.missing_rule(denial) else {
                rest.push(denial);
                continue;
            };
            let text = rule.to_string();
            let list = &mut self.policy.network.allow;
            if !list.contains(&text) {
                let why = format!("needed; {}", describe_denial(denial));
                self.comments.set(format!("network.allow.{}", list.len()), why.clone());
                list.push(text.clone());
                opened.push(LearnedRule { what: text, why });
            }
        }
        (opened, rest)
    }

    /// The reason a host stays denied.
    pub(super) fn host_denial_reason(&self, denial: &Denial) -> String {
        if self.resolved.grants.network.mode == NetworkMode::None {
            return "the network is off; run `ringfence learn --net allow-list` to see the hosts the command needs".into();
        }
        match HostRule::parse(&denial.target).map(|rule| rule.subject) {
            Ok(HostPattern::Range(range)) => match guarded_kind(range.first()) {
                Some(what) => format!("it is {what}, which only you can allow"),
                None => denial.rule.clone(),
            },
            Ok(_) | Err(_) => denial.rule.clone(),
        }
    }

    /// The rule that would allow a denied connection, if no rule covers it.
    fn missing_rule(&self, denial: &Denial) -> Option<HostRule> {
        let rules = &self.resolved.grants.network;
        if denial.operation != Operation::Connect || rules.mode != NetworkMode::AllowList {
            return None;
        }
        // A target has the syntax of a rule.
        let HostRule { subject, port } = HostRule::parse(&denial.target).ok()?;
        let decision = match (&subject, port) {
            (HostPattern::Name(name), None) => rules.decide_lookup(name),
            (HostPattern::Name(name), Some(port)) => rules.decide_name(name, port),
            (HostPattern::Range(range), Some(port)) if guarded_kind(range.first()).is_none() => {
                rules.decide_address(range.first(), port, None, &[])
            }
            _ => return None,
        };
        if decision.reason == HostReason::Unlisted { decision.remedy() } else { None }
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
