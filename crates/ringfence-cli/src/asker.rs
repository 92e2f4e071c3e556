//! Asking the person at the terminal, while whoever wants something waits.
//!
//! The terminal is the command's as well: it may print there, read from there, and have left it
//! in any state. So a question begins by ending whatever sequence was begun, shows nothing as
//! it came, takes only what is typed after it was shown, and is denied in every doubt. A
//! command cannot type. What it reads at the same time is lost to the question, never gained.

mod limits;
mod question;
mod tty;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{Ask, AskAnswer, Asker, visible};
use rustix::process::{Signal, getpid, kill_process};

use crate::messages;
use limits::AskLimits;
use question::{key_of, options_line, question, word_of};
use tty::{AskTty, TypedLine};

/// How long an answer may take, unless somebody says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Stands where the answer is typed.
const PROMPT: &str = "> ";

/// The person at the controlling terminal.
#[derive(Debug)]
pub(crate) struct TerminalAsker {
    tty: Option<AskTty>,
    patience: Duration,
    /// Held by whoever asks: one question at a time.
    turn: Mutex<AskLimits>,
    has_said_why: AtomicBool,
}

impl TerminalAsker {
    /// The terminal of this process, if it has one.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            tty: AskTty::open(),
            patience,
            turn: Mutex::new(AskLimits::default()),
            has_said_why: AtomicBool::new(false),
        }
    }

    /// Whether there is anybody to ask.
    pub(crate) fn is_there(&self) -> bool {
        self.tty.is_some()
    }

    /// Gives the terminal back, also from under an open question: nothing waits for it any more.
    pub(crate) fn close(&self) {
        if let Some(tty) = &self.tty {
            tty.close();
        }
    }

    fn put(&self, tty: &AskTty, ask: &Ask) -> AskAnswer {
        let until = Instant::now() + self.patience;
        let Some(open) = tty.begin() else { return AskAnswer::Deny };
        let shown = open.write(&question(ask, self.patience, tty.width()), until);
        // Whatever was typed before the question could be seen is no answer to it.
        if !shown || !open.forget_input() || !open.write(PROMPT, until) {
            return AskAnswer::Deny;
        }
        loop {
            let (answer, said) = match open.line(until) {
                TypedLine::Text(text) if text.is_empty() => (AskAnswer::Deny, "denied"),
                TypedLine::Text(text) => match answer(&text, &ask.options) {
                    Some(answer) => (answer, word_of(answer)),
                    None => {
                        open.write(&format!("{}\r\n{PROMPT}", options_line(&ask.options)), until);
                        continue;
                    }
                },
                TypedLine::Signal(signal) => {
                    open.write("denied\r\n", until);
                    drop(open);
                    // To us alone, and from us to the command: once, as if it had been typed.
                    let _ = kill_process(getpid(), signal);
                    return AskAnswer::Deny;
                }
                TypedLine::Late => (AskAnswer::Deny, "no answer: denied"),
                TypedLine::Gone => (AskAnswer::Deny, "denied"),
            };
            open.write(
                &format!("ringfence: {said}\r\n"),
                Instant::now() + Duration::from_millis(200),
            );
            return answer;
        }
    }

    fn say_why_not(&self, why: &str) {
        if !self.has_said_why.swap(true, Ordering::Relaxed) {
            messages::warning(&format!("nobody is asked, and what is refused stays so: {why}"));
        }
    }
}

impl Asker for TerminalAsker {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let mut limits = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tty) = &self.tty else {
            self.say_why_not("there is no terminal");
            return AskAnswer::Deny;
        };
        if limits.is_over() {
            return AskAnswer::Deny;
        }
        if !tty.is_ours() {
            self.say_why_not("the terminal is somebody else's at the moment");
            return AskAnswer::Deny;
        }
        let end = match limits.begin(Instant::now()) {
            Some(end) => Some(end),
            None => {
                let answer = self.put(tty, ask);
                let end = limits.note(answer);
                if end.is_none() {
                    return answer;
                }
                end
            }
        };
        if let Some(end) = end {
            self.note(&format!("{end}: everything further is denied without asking"));
        }
        AskAnswer::Deny
    }

    fn note(&self, text: &str) {
        if let Some(tty) = &self.tty {
            tty.write(
                &format!("\r\nringfence: {}\r\n", visible(text)),
                Instant::now() + Duration::from_millis(200),
            );
        }
    }
}

/// What a line says, if it is one of the options.
fn answer(text: &str, options: &[AskAnswer]) -> Option<AskAnswer> {
    options.iter().copied().find(|option| text.eq_ignore_ascii_case(key_of(*option)))
}

impl Drop for TerminalAsker {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the terminal may send us in the middle of a question.
fn passed_on(byte: u8, interrupt: u8, quit: u8) -> Option<Signal> {
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
    fn a_letter_is_an_answer_if_it_is_offered() {
        assert_eq!(answer("o", AskAnswer::ALL), Some(AskAnswer::AllowOnce));
        assert_eq!(answer("P", AskAnswer::ALL), Some(AskAnswer::AllowPermanent));
        assert_eq!(answer("p", &[AskAnswer::AllowOnce, AskAnswer::Deny]), None);
        for none in ["", "oo", " o", "yes", "\u{6f}\u{301}", "0"] {
            assert_eq!(answer(none, AskAnswer::ALL), None, "{none:?}");
        }
    }

    #[test]
    fn keys_that_are_switched_off_send_nothing() {
        assert_eq!(passed_on(3, 3, 28), Some(Signal::INT));
        assert_eq!(passed_on(28, 3, 28), Some(Signal::QUIT));
        assert_eq!(passed_on(0, 0, 0), None);
        assert_eq!(passed_on(b'o', 3, 28), None);
    }
}
