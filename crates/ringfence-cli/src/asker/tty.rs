//! The controlling terminal, opened on a separate fd.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use ringfence_api::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpgrp};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr,
};

use super::signal_for_key;

/// A longer line cannot be an answer.
const LONGEST: usize = 16;

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct AskTty {
    fd: OwnedFd,
    mode: Mutex<TtyOwner>,
}

/// The current owner of the terminal settings.
#[derive(Debug)]
enum TtyOwner {
    /// The command.
    Command,
    /// The question; holds the settings to restore.
    Question(Box<Termios>),
    /// The command, and no further question can begin.
    Closed,
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedLine {
    /// A line, without its end.
    Text(String),
    /// A key that sends a signal.
    Signal(Signal),
    /// A timeout.
    Late,
    /// The terminal is gone, or the user closed the input.
    Gone,
}

impl AskTty {
    /// Opens the terminal of this process.
    pub(super) fn open() -> Option<Self> {
        // Non-blocking: a terminal stopped with Ctrl-S must not block a question.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/tty", flags, FileMode::empty()).ok()?;
        Some(Self { fd, mode: Mutex::new(TtyOwner::Command) })
    }

    /// True if this process is in the foreground group: the kernel stops a background reader.
    pub(super) fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.fd).is_ok_and(|group| group == getpgrp())
    }

    pub(super) fn width(&self) -> usize {
        tcgetwinsize(&self.fd)
            .map_or(80, |size| if size.ws_col == 0 { 80 } else { size.ws_col.into() })
    }

    fn mode(&self) -> MutexGuard<'_, TtyOwner> {
        lock(&self.mode)
    }

    /// Sets raw mode until the returned guard is dropped.
    pub(super) fn enter_raw_mode(&self) -> Option<RawTty<'_>> {
        let mut mode = self.mode();
        let TtyOwner::Command = *mode else { return None };
        let saved = tcgetattr(&self.fd).ok()?;
        let mut raw = saved.clone();
        raw.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&self.fd, OptionalActions::Now, &raw).ok()?;
        let keys = [
            SpecialCodeIndex::VINTR,
            SpecialCodeIndex::VQUIT,
            SpecialCodeIndex::VERASE,
            SpecialCodeIndex::VEOF,
        ];
        let keys = keys.map(|key| saved.special_codes[key]);
        *mode = TtyOwner::Question(Box::new(saved));
        Some(RawTty { tty: self, keys })
    }

    /// Restores the command's settings.
    fn end(&self, next: TtyOwner) {
        let mut mode = self.mode();
        if let TtyOwner::Question(saved) = &*mode {
            let _ = tcsetattr(&self.fd, OptionalActions::Now, saved);
        }
        if !matches!(*mode, TtyOwner::Closed) {
            *mode = next;
        }
    }

    /// Restores the command's settings, and refuses further questions.
    pub(super) fn close(&self) {
        self.end(TtyOwner::Closed);
    }

    /// Writes all of `text`; returns `false` on failure or at the deadline `until`.
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

    /// Waits until the terminal is ready; returns `false` at the deadline `until`.
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

/// The terminal in raw mode.
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

    /// Discards pending input; returns `false` if that fails or input keeps arriving.
    ///
    /// The kernel passes typed bytes to the line discipline in the background, and a flush does not
    /// wait for that. `poll` does, so a flush counts only if nothing is there after it.
    pub(super) fn discard_input(&self) -> bool {
        const ROUNDS: usize = 32;
        (0..ROUNDS)
            .map_while(|_| tcflush(&self.tty.fd, QueueSelector::IFlush).ok())
            .any(|()| !self.has_input())
    }

    fn has_input(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut [PollFd::new(&self.tty.fd, PollFlags::IN)], Some(&now)), Ok(0))
    }

    /// Reads the next typed line.
    pub(super) fn read_line(&self, until: Instant) -> TypedLine {
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
            if let Some(signal) = signal_for_key(byte, interrupt, quit) {
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
                // A non-graphic byte is kept as `?`, so that the line matches no answer.
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
        self.tty.end(TtyOwner::Command);
    }
}
