//! In-process file tools of a session.

use std::sync::{Arc, Mutex};

use ringfence_audit::RecordSubject;
use ringfence_policy::Grants;
use ringfence_tools::{FileTools, OnUnrecorded, ToolError};

use super::{Session, lock};
use crate::{EngineError, ResolvedPolicy};

impl Session {
    /// File tools for the session's agent, under the policy in force in its sandbox. Like commands,
    /// they refuse to work while a narrowing is pending. They end with the session.
    pub fn tools(
        self: &Arc<Self>,
        on_audit_error: Box<OnUnrecorded>,
    ) -> Result<FileTools, EngineError> {
        let opened = Arc::downgrade(self);
        let known: Mutex<Option<(Arc<ResolvedPolicy>, Arc<Grants>)>> = Mutex::new(None);
        let current_grants = move || {
            let resolved = opened.upgrade().ok_or("the session has ended")?.policy_for_start()?;
            let mut known = lock(&known);
            if let Some((policy, grants)) = &*known
                && Arc::ptr_eq(policy, &resolved)
            {
                return Ok(grants.clone());
            }
            let grants = Arc::new(resolved.grants.clone());
            *known = Some((resolved, grants.clone()));
            Ok(grants)
        };
        let subject = RecordSubject {
            agent: self.request.agent.clone(),
            session: self.request.session.clone(),
        };
        FileTools::open_with(
            Box::new(current_grants),
            subject,
            self.request.cwd.clone(),
            on_audit_error,
        )
        .map_err(EngineError::from)
    }
}

impl From<ToolError> for EngineError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Audit { source } => EngineError::Audit { source },
            source => EngineError::Tool { source: Box::new(source) },
        }
    }
}
