//! What lets through what was refused.

use std::path::Path;

use ringfence_api::{Denial, Operation};

use crate::protocol::{Grant, Opens};

/// What would let this through, if a grant can.
pub(crate) fn what_opens(denial: &Denial) -> Option<Grant> {
    if Denial::OF_THE_SANDBOX.contains(&denial.rule.as_str()) || !denial.target.starts_with('/') {
        return None;
    }
    let opens = match denial.operation {
        Operation::Read | Operation::Execute => Opens::Reading,
        Operation::Write | Operation::Create | Operation::Rename => Opens::Writing,
        Operation::Connect | Operation::Call => return None,
    };
    // What is yet to be made is made in a directory.
    let target = Path::new(&denial.target);
    let path = if target.exists() || opens == Opens::Reading { target } else { target.parent()? };
    Some(Grant { path: path.to_str()?.to_owned(), opens })
}
