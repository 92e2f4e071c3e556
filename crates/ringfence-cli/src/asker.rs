//! Asks the user at the terminal, while the process that made the access waits.
//!
//! The command also uses the terminal: it may print there, read from there, and leave it in any
//! state. So a question first resets the terminal, escapes all names, accepts only input typed
//! after it was shown, and denies in doubt. A command cannot type. Input that the command reads
//! meanwhile is lost to the question, which can only cause a denial.

mod limits;
mod question;
mod tty;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_api::{Ask, AskAnswer, Asker, escape_hidden, lock};
use rustix::process::{Signal, getpid, kill_process};

use crate::messages;
use limits::AskLimits;
use question::{answer_key, confirmation, options_line, question};
use tty::{AskTty, TypedLine};

/// The default time limit of an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The prompt for the answer.
const PROMPT: &str = "> ";

/// Asks the user at the controlling terminal.
#[derive(Debug)]
pub(crate) struct TerminalAsker {
    tty: Option<AskTty>,
    answer_timeout: Duration,
    /// Held while a question is open: one question at a time.
    turn: Mutex<AskLimits>,
    has_warned: AtomicBool,
}

impl TerminalAsker {
    /// Opens the terminal of this process, if it has one.
    pub(crate) fn new(answer_timeout: Duration) -> Self {
        Self {
            tty: AskTty::open(),
            answer_timeout,
            turn: Mutex::new(AskLimits::default()),
            has_warned: AtomicBool::new(false),
        }
    }

    /// True if there is a terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        self.tty.is_some()
    }

    /// Restores the terminal, even during an open question: no process waits for its answer.
    pub(crate) fn close(&self) {
        if let Some(tty) = &self.tty {
            tty.close();
        }
    }

    fn put_question(&self, tty: &AskTty, ask: &Ask) -> AskAnswer {
        let until = Instant::now() + self.answer_timeout;
        let Some(open) = tty.enter_raw_mode() else { return AskAnswer::Deny };
        let shown = open.write(&question(ask, self.answer_timeout, tty.width()), until);
        // Input typed before the question was visible is not an answer.
        if !shown || !open.discard_input() || !open.write(PROMPT, until) {
            return AskAnswer::Deny;
        }
        loop {
            let (answer, message) = match open.read_line(until) {
                TypedLine::Text(text) if text.is_empty() => (AskAnswer::Deny, "denied"),
                TypedLine::Text(text) => match answer(&text, &ask.options) {
                    Some(answer) => (answer, confirmation(answer)),
                    None => {
                        open.write(&format!("{}\r\n{PROMPT}", options_line(&ask.options)), until);
                        continue;
                    }
                },
                TypedLine::Signal(signal) => {
                    open.write("denied\r\n", until);
                    drop(open);
                    // Only to this process, which forwards it: the command gets it once.
                    let _ = kill_process(getpid(), signal);
                    return AskAnswer::Deny;
                }
                TypedLine::Late => (AskAnswer::Deny, "no answer: denied"),
                TypedLine::Gone => (AskAnswer::Deny, "denied"),
            };
            open.write(
                &format!("ringfence: {message}\r\n"),
                Instant::now() + Duration::from_millis(200),
            );
            return answer;
        }
    }

    fn warn_once(&self, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            messages::print_warning(&format!("cannot ask, so accesses are denied: {why}"));
        }
    }
}

impl Asker for TerminalAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let mut limits = lock(&self.turn);
        let Some(tty) = &self.tty else {
            self.warn_once("there is no terminal");
            return AskAnswer::Deny;
        };
        if limits.is_over() {
            return AskAnswer::Deny;
        }
        if !tty.is_in_foreground() {
            self.warn_once("ringfence is not in the foreground of the terminal");
            return AskAnswer::Deny;
        }
        let end = match limits.count_question(Instant::now()) {
            Some(end) => Some(end),
            None => {
                let answer = self.put_question(tty, ask);
                let end = limits.count_answer(answer);
                if end.is_none() {
                    return answer;
                }
                end
            }
        };
        if let Some(end) = end {
            self.note(&format!("{end}: further accesses are denied without asking"));
        }
        AskAnswer::Deny
    }

    fn note(&self, text: &str) {
        if let Some(tty) = &self.tty {
            tty.write(
                &format!("\r\nringfence: {}\r\n", escape_hidden(text)),
                Instant::now() + Duration::from_millis(200),
            );
        }
    }
}

/// Parses a line as one of the offered answers.
fn answer(text: &str, options: &[AskAnswer]) -> Option<AskAnswer> {
    options.iter().copied().find(|option| text.eq_ignore_ascii_case(answer_key(*option)))
}

impl Drop for TerminalAsker {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the signal of a key typed during a question.
fn signal_for_key(byte: u8, interrupt: u8, quit: u8) -> Option<Signal> {
    match byte {
        0 => None,
        byte if byte == interrupt => Some(Signal::INT),
        byte if byte == quit => Some(Signal::QUIT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letter_is_an_answer_only_if_offered() {
        assert_eq!(answer("o", AskAnswer::ALL), Some(AskAnswer::AllowOnce));
        assert_eq!(answer("P", AskAnswer::ALL), Some(AskAnswer::AllowPermanent));
        assert_eq!(answer("p", &[AskAnswer::AllowOnce, AskAnswer::Deny]), None);
        for none in ["", "oo", " o", "yes", "\u{6f}\u{301}", "0"] {
            assert_eq!(answer(none, AskAnswer::ALL), None, "{none:?}");
        }
    }

    #[test]
    fn disabled_signal_keys_send_nothing() {
        assert_eq!(signal_for_key(3, 3, 28), Some(Signal::INT));
        assert_eq!(signal_for_key(28, 3, 28), Some(Signal::QUIT));
        assert_eq!(signal_for_key(0, 0, 0), None);
        assert_eq!(signal_for_key(b'o', 3, 28), None);
    }
}
