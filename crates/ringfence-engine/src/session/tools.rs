//! Tools in process beside a session's shell.

use std::sync::{Arc, Mutex};

use ringfence_audit::RecordSubject;
use ringfence_policy::Grants;
use ringfence_tools::{FileTools, OnUnrecorded, ToolError};

use super::{Session, lock};
use crate::{EngineError, ResolvedPolicy};

impl Session {
    /// Tools for whom the session is for, under the policy that holds in its sandbox, whichever
    /// that is by then. As nothing more is begun in a session that still allows more than its
    /// policy, so it is with its tools; and they end with it.
    pub fn tools(self: &Arc<Self>, tell: Box<OnUnrecorded>) -> Result<FileTools, EngineError> {
        let opened = Arc::downgrade(self);
        let known: Mutex<Option<(Arc<ResolvedPolicy>, Arc<Grants>)>> = Mutex::new(None);
        let holds = move || {
            let resolved = opened.upgrade().ok_or("the session has ended")?.policy_to_begin()?;
            let mut known = lock(&known);
            if let Some((of, grants)) = &*known
                && Arc::ptr_eq(of, &resolved)
            {
                return Ok(grants.clone());
            }
            let grants = Arc::new(resolved.grants.clone());
            *known = Some((resolved, grants.clone()));
            Ok(grants)
        };
        let who =
            RecordSubject { agent: self.asked.agent.clone(), session: self.asked.session.clone() };
        FileTools::open_with(Box::new(holds), who, self.asked.cwd.clone(), tell)
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
