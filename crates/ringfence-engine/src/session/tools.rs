//! The parts of a session that the file tools of its agent need.

use std::sync::{Arc, Mutex};

use ringfence_audit::RecordSubject;
use ringfence_policy::Grants;
use ringfence_provider::ProviderError;

use super::{Session, lock};
use crate::{EngineError, ResolvedPolicy};

impl Session {
    /// A function that returns the grants in force in the sandbox. Like commands, it fails while a
    /// narrowing is pending, and after the end of the session. An unchanged policy is the same
    /// `Arc`.
    pub fn grants_source(
        self: &Arc<Self>,
    ) -> impl Fn() -> Result<Arc<Grants>, EngineError> + Send + Sync + use<> {
        let opened = Arc::downgrade(self);
        let known: Mutex<Option<(Arc<ResolvedPolicy>, Arc<Grants>)>> = Mutex::new(None);
        move || {
            let session = opened.upgrade().ok_or(ProviderError::Gone { what: "session" })?;
            let resolved = session.policy_for_start()?;
            let mut known = lock(&known);
            if let Some((policy, grants)) = &*known
                && Arc::ptr_eq(policy, &resolved)
            {
                return Ok(grants.clone());
            }
            let grants = Arc::new(resolved.grants.clone());
            *known = Some((resolved, grants.clone()));
            Ok(grants)
        }
    }

    /// The agent and the session, as in audit records.
    pub fn record_subject(&self) -> RecordSubject {
        RecordSubject { agent: self.request.agent.clone(), session: self.request.session.clone() }
    }
}
