//! The command of a connection: it has at most one at a time.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ringfence_api::lock;
use ringfence_engine::session::{CommandControl, StartDecision};
use rustix::time::Timespec;

use super::client_peer::ClientPeer;

/// The command of a connection.
#[derive(Default)]
pub(super) struct CommandSlot {
    phase: Mutex<CommandPhase>,
    changed: Condvar,
}

#[derive(Default)]
enum CommandPhase {
    #[default]
    Idle,
    /// It waits for the shell.
    Queued,
    /// It was interrupted while it waited.
    Unwanted,
    Running(Arc<CommandControl>),
}

impl CommandSlot {
    fn set(&self, phase: CommandPhase) {
        *lock(&self.phase) = phase;
        self.changed.notify_all();
    }

    /// Takes the slot; returns false if the connection has a command.
    pub(super) fn take(&self) -> bool {
        let mut phase = lock(&self.phase);
        let is_idle = matches!(*phase, CommandPhase::Idle);
        if is_idle {
            *phase = CommandPhase::Queued;
        }
        is_idle
    }

    /// Marks the command as running, unless it was interrupted meanwhile.
    pub(super) fn begin(&self, control: Arc<CommandControl>) -> StartDecision {
        let mut phase = lock(&self.phase);
        if matches!(*phase, CommandPhase::Unwanted) {
            return StartDecision::Left;
        }
        *phase = CommandPhase::Running(control);
        self.changed.notify_all();
        StartDecision::Taken
    }

    /// Marks the command as ended: from now on an interrupt does nothing. It would hit the next
    /// command of the shell.
    pub(super) fn end(&self) {
        self.set(CommandPhase::Unwanted);
    }

    /// Frees the slot.
    pub(super) fn free(&self) {
        self.set(CommandPhase::Idle);
    }

    /// Interrupts the command, if there is one.
    pub(super) fn interrupt(&self) {
        // The lock is held meanwhile: the next command belongs to another connection.
        let mut phase = lock(&self.phase);
        match &*phase {
            CommandPhase::Queued => *phase = CommandPhase::Unwanted,
            CommandPhase::Running(control) => control.interrupter.interrupt(),
            CommandPhase::Idle | CommandPhase::Unwanted => {}
        }
        self.changed.notify_all();
    }

    /// Feeds the command's standard input; no bytes close it. Waits while the command is queued,
    /// or has too much unread, unless the client leaves.
    pub(super) fn feed(&self, peer: &ClientPeer, bytes: &[u8]) {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let Some(control) = self.wait_for_start(peer) else { return };
        let Some(feeder) = &control.feeder else { return };
        if bytes.is_empty() {
            feeder.close();
        }
        let is_running = || matches!(*lock(&self.phase), CommandPhase::Running(_));
        while let Err(error) = feeder.feed(bytes)
            // Any other error: the command has closed its standard input.
            && error.kind() == io::ErrorKind::WouldBlock
            && is_running()
            && !peer.waits_for(LOOK)
        {}
    }

    /// Returns the controls of the running command; `None` if there is none.
    fn wait_for_start(&self, peer: &ClientPeer) -> Option<Arc<CommandControl>> {
        const LOOK: Duration = Duration::from_millis(50);
        let mut phase = lock(&self.phase);
        loop {
            match &*phase {
                CommandPhase::Running(control) => return Some(control.clone()),
                CommandPhase::Queued if !peer.is_gone() => {}
                _ => return None,
            }
            phase =
                self.changed.wait_timeout(phase, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
