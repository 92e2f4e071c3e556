//! Grants that allow a denied access.

use std::path::Path;

use ringfence_api::{Denial, Operation};
use ringfence_policy::HostRule;

use crate::protocol::{GrantAccess, SandboxGrant};

/// The grant that would allow this access, if one can.
pub(crate) fn grant_for(denial: &Denial) -> Option<SandboxGrant> {
    let grant = exact_grant_for(denial)?;
    if grant.access == GrantAccess::Connect {
        return Some(grant);
    }
    // A path that does not exist yet is created in its parent directory.
    let target = Path::new(&grant.path);
    let path = if target.exists() || grant.access == GrantAccess::Read {
        target
    } else {
        target.parent()?
    };
    Some(SandboxGrant { path: path.to_str()?.to_owned(), ..grant })
}

/// The grant for exactly the denied path or host.
pub(crate) fn exact_grant_for(denial: &Denial) -> Option<SandboxGrant> {
    if Denial::SANDBOX_RULES.contains(&denial.rule.as_str()) {
        return None;
    }
    if denial.operation == Operation::Connect {
        return HostRule::parse(&denial.target)
            .ok()
            .map(|rule| SandboxGrant { path: rule.to_string(), access: GrantAccess::Connect });
    }
    if !denial.target.starts_with('/') {
        return None;
    }
    let opens = match denial.operation {
        Operation::Read | Operation::Execute => GrantAccess::Read,
        Operation::Write | Operation::Create | Operation::Rename => GrantAccess::Write,
        Operation::Connect | Operation::Call | Operation::Command => return None,
    };
    Some(SandboxGrant { path: denial.target.clone(), access: opens })
}
