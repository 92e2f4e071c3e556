//! What lets through what was refused.

use std::path::Path;

use ringfence_api::{Denial, Operation};
use ringfence_policy::HostRule;

use crate::protocol::{Grant, Opens};

/// What would let this through, if a grant can.
pub(crate) fn what_opens(denial: &Denial) -> Option<Grant> {
    let grant = what_was_opened(denial)?;
    if grant.opens == Opens::Connecting {
        return Some(grant);
    }
    // What is yet to be made is made in a directory.
    let target = Path::new(&grant.path);
    let path =
        if target.exists() || grant.opens == Opens::Reading { target } else { target.parent()? };
    Some(Grant { path: path.to_str()?.to_owned(), ..grant })
}

/// What an answer has opened in place, and nothing around it.
pub(crate) fn what_was_opened(denial: &Denial) -> Option<Grant> {
    if Denial::OF_THE_SANDBOX.contains(&denial.rule.as_str()) {
        return None;
    }
    if denial.operation == Operation::Connect {
        return HostRule::parse(&denial.target)
            .ok()
            .map(|rule| Grant { path: rule.to_string(), opens: Opens::Connecting });
    }
    if !denial.target.starts_with('/') {
        return None;
    }
    let opens = match denial.operation {
        Operation::Read | Operation::Execute => Opens::Reading,
        Operation::Write | Operation::Create | Operation::Rename => Opens::Writing,
        Operation::Connect | Operation::Call | Operation::Command => return None,
    };
    Some(Grant { path: denial.target.clone(), opens })
}
