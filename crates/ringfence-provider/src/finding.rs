//! Findings of `ringfence doctor`.

/// One line of the diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorFinding {
    /// The checked feature.
    pub name: String,
    /// Its state.
    pub state: FindingState,
    /// The benefit if it is present, or the consequence if it is missing.
    pub text: String,
    /// A command that fixes the problem.
    pub fix: Option<String>,
}

impl DoctorFinding {
    /// A finding without a fix.
    pub fn new(name: impl Into<String>, state: FindingState, text: impl Into<String>) -> Self {
        Self { name: name.into(), state, text: text.into(), fix: None }
    }

    /// The finding with a command that fixes the problem.
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

/// The state of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingState {
    /// Present.
    Ok,
    /// Absent, with a consequence for some policies.
    Limited,
    /// Absent, and commands are refused.
    Missing,
}

impl FindingState {
    /// The state as a stable word.
    pub fn word(self) -> &'static str {
        match self {
            FindingState::Ok => "ok",
            FindingState::Limited => "limited",
            FindingState::Missing => "missing",
        }
    }
}
