//! One single-valued setting over all layers.

use crate::error::PolicyError;
use crate::grants::{
    Asking, Fsync, HookSession, Mode, NetworkMode, Observe, OnError, OnGap, Origin, Source,
};
use crate::layer::PolicyLayer;
use crate::network::SniCheck;
use crate::tracked::TrackedMode;

/// A setting with an order from narrow to wide.
pub(super) trait SettingWidth: Copy + PartialEq {
    /// Rank of the value: larger is wider.
    fn width(self) -> u8;
    /// The word in the policy file.
    fn word(self) -> &'static str;
    /// The widest value that a project's file may choose.
    fn widest_for_projects() -> Self;
}

/// The current value and its bounds.
#[derive(Debug, Clone)]
pub(super) struct LayeredSetting<T> {
    key: &'static str,
    value: T,
    ceiling: Option<T>,
    chosen: ChosenBy,
    origin: Option<Origin>,
}

/// Layer that chose the current value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ChosenBy {
    Default,
    Project,
    /// The administrator or the user.
    Owner,
}

impl<T: SettingWidth> LayeredSetting<T> {
    pub(super) fn new(key: &'static str, default: T) -> Self {
        Self { key, value: default, ceiling: None, chosen: ChosenBy::Default, origin: None }
    }

    pub(super) fn value(&self) -> T {
        self.value
    }

    pub(super) fn ceiling(&self) -> Option<T> {
        self.ceiling
    }

    /// Position of the value; `None` for the default.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin.clone()
    }

    /// True if any layer or flag set the value.
    pub(super) fn is_chosen(&self) -> bool {
        self.chosen != ChosenBy::Default
    }

    pub(super) fn offer(
        &mut self,
        layer: &PolicyLayer,
        value: Option<T>,
        warnings: &mut Vec<String>,
    ) {
        let Some(value) = value else { return };
        let place = layer.position(self.key);
        let (key, word) = (self.key, value.word());
        match layer.source {
            Source::Managed => {
                self.ceiling = Some(value);
            }
            Source::Project => {
                let mut widest = T::widest_for_projects();
                if self.chosen == ChosenBy::Owner && self.value.width() < widest.width() {
                    widest = self.value;
                }
                if value.width() > widest.width() {
                    warnings.push(format!(
                        "{place}`{key} = {word}` is ignored: a project's file cannot widen it; \
                         put it into ~/.config/ringfence/policy.toml or use a flag"
                    ));
                    return;
                }
            }
            _ => {
                // A repository inside the directory would be less confined than its user chose.
                let widest = self.value.width().max(T::widest_for_projects().width());
                if layer.is_of_enclosing() && value.width() > widest {
                    warnings.push(format!(
                        "{place}`{key} = {word}` is ignored: a policy for a directory around the \
                         project cannot widen it; set it for the project or use a flag"
                    ));
                    return;
                }
                if let Some(ceiling) =
                    self.ceiling.filter(|ceiling| value.width() > ceiling.width())
                {
                    let ceiling = ceiling.word();
                    warnings.push(format!("{place}`{key} = {word}` is ignored: the managed policy allows `{ceiling}` at most"));
                    return;
                }
            }
        }
        self.value = value;
        self.origin = Some(layer.origin(self.key, &format!("{key} = {word}")));
        self.chosen =
            if layer.source == Source::Project { ChosenBy::Project } else { ChosenBy::Owner };
    }

    pub(super) fn flag(&mut self, flag: &'static str, value: Option<T>) -> Result<(), PolicyError> {
        let Some(value) = value else { return Ok(()) };
        if let Some(ceiling) = self.ceiling.filter(|ceiling| value.width() > ceiling.width()) {
            return Err(PolicyError::BeyondCeiling { flag, ceiling: ceiling.word().into() });
        }
        self.value = value;
        self.origin = Some(Origin::new(Source::Flag, flag));
        self.chosen = ChosenBy::Owner;
        Ok(())
    }
}

impl SettingWidth for Mode {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        Mode::word(self)
    }

    fn widest_for_projects() -> Self {
        Mode::WorkspaceWrite
    }
}

impl SettingWidth for HookSession {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        match self {
            HookSession::Call => "call",
            HookSession::Conversation => "conversation",
        }
    }

    fn widest_for_projects() -> Self {
        HookSession::Conversation
    }
}

impl SettingWidth for NetworkMode {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        NetworkMode::word(self)
    }

    fn widest_for_projects() -> Self {
        NetworkMode::AllowList
    }
}

/// Fewer checks are wider.
impl SettingWidth for SniCheck {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        SniCheck::word(self)
    }

    fn widest_for_projects() -> Self {
        SniCheck::Check
    }
}

impl SettingWidth for OnGap {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        match self {
            OnGap::Refuse => "refuse",
            OnGap::Run => "run",
        }
    }

    fn widest_for_projects() -> Self {
        OnGap::Refuse
    }
}

impl SettingWidth for OnError {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        match self {
            OnError::Refuse => "refuse",
            OnError::Run => "run",
        }
    }

    fn widest_for_projects() -> Self {
        OnError::Refuse
    }
}

/// Fewer syncs are wider.
impl SettingWidth for Fsync {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::End => "end",
            Fsync::Never => "never",
        }
    }

    fn widest_for_projects() -> Self {
        Fsync::Never
    }
}

impl SettingWidth for TrackedMode {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        TrackedMode::word(self)
    }

    fn widest_for_projects() -> Self {
        TrackedMode::Open
    }
}

/// Fewer reports are wider.
impl SettingWidth for Observe {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        Observe::word(self)
    }

    fn widest_for_projects() -> Self {
        Observe::Denials
    }
}

/// A prompt is wider: the user may allow the access.
impl SettingWidth for Asking {
    fn width(self) -> u8 {
        self as u8
    }

    fn word(self) -> &'static str {
        Asking::word(self)
    }

    fn widest_for_projects() -> Self {
        Asking::Never
    }
}

/// Confinement of commands: `false` is wider.
impl SettingWidth for bool {
    fn width(self) -> u8 {
        u8::from(!self)
    }

    fn word(self) -> &'static str {
        if self { "true" } else { "false" }
    }

    fn widest_for_projects() -> Self {
        true
    }
}

/// A permission: `true` is wider.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PermissionSetting(pub(super) bool);

impl SettingWidth for PermissionSetting {
    fn width(self) -> u8 {
        u8::from(self.0)
    }

    fn word(self) -> &'static str {
        if self.0 { "true" } else { "false" }
    }

    fn widest_for_projects() -> Self {
        PermissionSetting(false)
    }
}
