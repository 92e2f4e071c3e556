//! One setting over all layers.

use crate::error::PolicyError;
use crate::grants::{
    Asking, Fsync, HookSession, Mode, NetworkMode, Observe, OnError, OnGap, Origin, Source,
};
use crate::layer::PolicyLayer;
use crate::network::SniCheck;
use crate::tracked::TrackedMode;

/// A setting that is narrower or wider.
pub(super) trait SettingWidth: Copy + PartialEq {
    /// The wider, the larger.
    fn width(self) -> u8;
    /// As it is written.
    fn word(self) -> &'static str;
    /// The widest that a project's file may choose.
    fn widest_for_projects() -> Self;
}

/// The value so far, and what bounds it.
#[derive(Debug, Clone)]
pub(super) struct LayeredSetting<T> {
    key: &'static str,
    value: T,
    ceiling: Option<T>,
    chosen: ChosenBy,
    origin: Option<Origin>,
}

/// Who has chosen the value so far.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ChosenBy {
    Nobody,
    Project,
    /// The administrator or the user.
    Owner,
}

impl<T: SettingWidth> LayeredSetting<T> {
    pub(super) fn new(key: &'static str, default: T) -> Self {
        Self { key, value: default, ceiling: None, chosen: ChosenBy::Nobody, origin: None }
    }

    pub(super) fn value(&self) -> T {
        self.value
    }

    pub(super) fn ceiling(&self) -> Option<T> {
        self.ceiling
    }

    /// Where the value was written; `None` while nobody has chosen.
    pub(super) fn origin(&self) -> Option<Origin> {
        self.origin.clone()
    }

    /// Whether any layer or flag has chosen.
    pub(super) fn is_chosen(&self) -> bool {
        self.chosen != ChosenBy::Nobody
    }

    pub(super) fn offer(
        &mut self,
        layer: &PolicyLayer,
        wish: Option<T>,
        warnings: &mut Vec<String>,
    ) {
        let Some(wish) = wish else { return };
        let place = layer.place(self.key);
        let (key, word) = (self.key, wish.word());
        match layer.source {
            Source::Managed => {
                self.ceiling = Some(wish);
            }
            Source::Project => {
                let mut widest = T::widest_for_projects();
                if self.chosen == ChosenBy::Owner && self.value.width() < widest.width() {
                    widest = self.value;
                }
                if wish.width() > widest.width() {
                    warnings.push(format!(
                        "{place}`{key} = {word}` is ignored: a project's file cannot widen this; \
                         put it into ~/.config/ringfence/policy.toml or use a flag"
                    ));
                    return;
                }
            }
            _ => {
                if let Some(ceiling) = self.ceiling.filter(|ceiling| wish.width() > ceiling.width())
                {
                    let ceiling = ceiling.word();
                    warnings.push(format!("{place}`{key} = {word}` is ignored: the managed policy allows `{ceiling}` at most"));
                    return;
                }
            }
        }
        self.value = wish;
        self.origin = Some(layer.origin(self.key, &format!("{key} = {word}")));
        self.chosen =
            if layer.source == Source::Project { ChosenBy::Project } else { ChosenBy::Owner };
    }

    pub(super) fn flag(&mut self, flag: &'static str, wish: Option<T>) -> Result<(), PolicyError> {
        let Some(wish) = wish else { return Ok(()) };
        if let Some(ceiling) = self.ceiling.filter(|ceiling| wish.width() > ceiling.width()) {
            return Err(PolicyError::BeyondCeiling { flag, ceiling: ceiling.word() });
        }
        self.value = wish;
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

/// The less is looked at, the wider.
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

/// The less is certain to be kept, the wider.
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

/// The less is told, the wider.
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

/// Whoever asks may be told yes.
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

/// Whether commands are confined: `false` is the wide one.
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

/// Something that is left to somebody: `true` is the wide one.
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
