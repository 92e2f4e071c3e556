//! The controlling terminal, by a descriptor of our own.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpgrp};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr,
};

use super::passed_on;

/// Longer lines are no answer.
const LONGEST: usize = 16;

/// A terminal.
#[derive(Debug)]
pub(super) struct AskTty {
    fd: OwnedFd,
    mode: Mutex<TtyOwner>,
}

/// Whose the terminal's settings are.
#[derive(Debug)]
enum TtyOwner {
    /// The command's.
    Theirs,
    /// Ours, for a question, and then again so.
    Ours(Box<Termios>),
    /// The command's, and no question is begun any more.
    Closed,
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    /// A line, without its end.
    Text(String),
    /// A key that sends a signal.
    Signal(Signal),
    /// Nothing in time.
    Late,
    /// The terminal went away, or the person has ended its input.
    Gone,
}

impl AskTty {
    /// The terminal of this process.
    pub(super) fn open() -> Option<Self> {
        // Not waiting: a terminal that was stopped (Ctrl-S) must not keep a question waiting.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/tty", flags, FileMode::empty()).ok()?;
        Some(Self { fd, mode: Mutex::new(TtyOwner::Theirs) })
    }

    /// Whether we are in its foreground: whoever is not and reads is stopped.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.fd).is_ok_and(|group| group == getpgrp())
    }

    pub(super) fn width(&self) -> usize {
        tcgetwinsize(&self.fd)
            .map_or(80, |size| if size.ws_col == 0 { 80 } else { size.ws_col.into() })
    }

    fn mode(&self) -> MutexGuard<'_, TtyOwner> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the settings ours until the answer is dropped.
    pub(super) fn begin(&self) -> Option<RawTty<'_>> {
        let mut mode = self.mode();
        let TtyOwner::Theirs = *mode else { return None };
        let saved = tcgetattr(&self.fd).ok()?;
        let mut ours = saved.clone();
        ours.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
        ours.special_codes[SpecialCodeIndex::VMIN] = 1;
        ours.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.fd, OptionalActions::Now, &ours).ok()?;
        let keys = [
            SpecialCodeIndex::VINTR,
            SpecialCodeIndex::VQUIT,
            SpecialCodeIndex::VERASE,
            SpecialCodeIndex::VEOF,
        ];
        let keys = keys.map(|key| saved.special_codes[key]);
        *mode = TtyOwner::Ours(Box::new(saved));
        Some(RawTty { tty: self, keys })
    }

    /// Gives the settings back.
    fn end(&self, next: TtyOwner) {
        let mut mode = self.mode();
        if let TtyOwner::Ours(saved) = &*mode {
            let _ = tcsetattr(&self.fd, OptionalActions::Now, saved);
        }
        if !matches!(*mode, TtyOwner::Closed) {
            *mode = next;
        }
    }

    /// As [`Tty::end`], for good.
    pub(super) fn close(&self) {
        self.end(TtyOwner::Closed);
    }

    /// Writes all of `text`; `false` if that cannot be done in time.
    pub(super) fn write(&self, text: &str, until: Instant) -> bool {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if !self.wait(PollFlags::OUT, until) {
                return false;
            }
            match rustix::io::write(&self.fd, rest) {
                Ok(length) => rest = &rest[length..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Until it is ready, or `until`.
    fn wait(&self, what: PollFlags, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.fd, what)], Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// A terminal whose settings are ours.
#[derive(Debug)]
pub(super) struct RawTty<'a> {
    tty: &'a AskTty,
    /// Interrupt, quit, erase, end of input.
    keys: [u8; 4],
}

impl RawTty<'_> {
    pub(super) fn write(&self, text: &str, until: Instant) -> bool {
        self.tty.write(text, until)
    }

    /// Throws away what was typed so far; `false` if that fails or input keeps coming.
    ///
    /// The kernel passes typed bytes to the line discipline in the background, and a flush does not
    /// wait for that. `poll` does, so a flush counts only if nothing is there after it.
    pub(super) fn forget_input(&self) -> bool {
        const ROUNDS: usize = 32;
        (0..ROUNDS)
            .map_while(|_| tcflush(&self.tty.fd, QueueSelector::IFlush).ok())
            .any(|()| !self.has_input())
    }

    fn has_input(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut [PollFd::new(&self.tty.fd, PollFlags::IN)], Some(&now)), Ok(0))
    }

    /// The next line that is typed.
    pub(super) fn line(&self, until: Instant) -> TypedLine {
        let [interrupt, quit, erase, end] = self.keys;
        let mut line = String::new();
        loop {
            if !self.tty.wait(PollFlags::IN, until) {
                return TypedLine::Late;
            }
            let mut byte = [0];
            match rustix::io::read(&self.tty.fd, &mut byte) {
                Ok(1) => {}
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Ok(_) | Err(_) => return TypedLine::Gone,
            }
            let byte = byte[0];
            if let Some(signal) = passed_on(byte, interrupt, quit) {
                return TypedLine::Signal(signal);
            }
            match byte {
                b'\r' | b'\n' => {
                    self.write("\r\n", until);
                    return TypedLine::Text(line);
                }
                byte if byte == end && line.is_empty() => return TypedLine::Gone,
                byte if byte == erase || byte == 8 || byte == 127 => {
                    let taken = line.pop().map_or("", |_| "\x08 \x08");
                    self.write(taken, until);
                }
                // What is no letter is kept, so that the line is no answer.
                byte if line.len() < LONGEST => {
                    let shown = if byte.is_ascii_graphic() { byte as char } else { '?' };
                    line.push(shown);
                    self.write(shown.encode_utf8(&mut [0; 4]), until);
                }
                _ => {}
            }
        }
    }
}

impl Drop for RawTty<'_> {
    fn drop(&mut self) {
        self.tty.end(TtyOwner::Theirs);
    }
}
