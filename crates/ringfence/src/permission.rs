//! What lets through what was refused.

use std::path::Path;

use ringfence_api::{Denial, Operation};
use ringfence_policy::HostRule;

use crate::protocol::{GrantAccess, SandboxGrant};

/// What would let this through, if a grant can.
pub(crate) fn what_opens(denial: &Denial) -> Option<SandboxGrant> {
    let grant = what_was_opened(denial)?;
    if grant.opens == GrantAccess::Connecting {
        return Some(grant);
    }
    // What is yet to be made is made in a directory.
    let target = Path::new(&grant.path);
    let path = if target.exists() || grant.opens == GrantAccess::Reading {
        target
    } else {
        target.parent()?
    };
    Some(SandboxGrant { path: path.to_str()?.to_owned(), ..grant })
}

/// What an answer has opened in place, and nothing around it.
pub(crate) fn what_was_opened(denial: &Denial) -> Option<SandboxGrant> {
    if Denial::OF_THE_SANDBOX.contains(&denial.rule.as_str()) {
        return None;
    }
    if denial.operation == Operation::Connect {
        return HostRule::parse(&denial.target)
            .ok()
            .map(|rule| SandboxGrant { path: rule.to_string(), opens: GrantAccess::Connecting });
    }
    if !denial.target.starts_with('/') {
        return None;
    }
    let opens = match denial.operation {
        Operation::Read | Operation::Execute => GrantAccess::Reading,
        Operation::Write | Operation::Create | Operation::Rename => GrantAccess::Writing,
        Operation::Connect | Operation::Call | Operation::Command => return None,
    };
    Some(SandboxGrant { path: denial.target.clone(), opens })
}
