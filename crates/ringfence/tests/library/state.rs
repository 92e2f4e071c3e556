//! The shell keeps its state over many commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence::{
    Ask, AskAnswer, Asker, Command, SandboxBackend, SandboxSpec, SessionProvider, ShellState,
    block_on,
};
use ringfence_testkit::SECRET;

use crate::stage::{can_ask, says};

/// Allows the notes for the session and denies everything else; counts questions.
#[derive(Debug, Default)]
struct Notes(AtomicUsize);

impl Asker for Notes {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        self.0.fetch_add(1, Ordering::SeqCst);
        if ask.denial.target.ends_with("/notes.txt") {
            AskAnswer::AllowSession
        } else {
            AskAnswer::Deny
        }
    }
}

/// One of two hundred commands: most change the shell and undo it, or fail.
fn one(sandbox: &dyn SandboxBackend, number: usize) {
    let run = |line: String| sandbox.execute_blocking(line.into()).unwrap();
    match number {
        40 => {
            let refused = run("cat ~/.ssh/id_rsa".into());
            assert!(
                refused.blocked && refused.stdout.bytes.is_empty() && refused.exit_code == 1,
                "{refused:?}"
            );
        }
        80 => {
            let granted = run("cat ~/notes.txt".into());
            assert_eq!(
                (granted.stdout.text().as_ref(), granted.granted.len()),
                (SECRET, 1),
                "{granted:?}"
            );
        }
        120 => {
            let late = sandbox.execute_blocking(Command::new("sleep 60").timeout_ms(100)).unwrap();
            assert!(late.timed_out && late.shell == ShellState::Alive, "{late:?}");
        }
        160 => {
            let loops = sandbox
                .execute_blocking(Command::new("while :; do :; done").timeout_ms(100))
                .unwrap();
            assert!(loops.timed_out && loops.shell == ShellState::Alive, "{loops:?}");
        }
        _ => match number % 5 {
            0 if number > 80 => {
                assert_eq!(says(sandbox.execute_blocking("cat ~/notes.txt".into())), SECRET)
            }
            1 => assert_eq!(
                says(sandbox.execute_blocking(format!("(cd / && exit 3); echo {number}").into())),
                number.to_string()
            ),
            2 => assert_eq!(run(format!("sh -c 'exit {number}'")).exit_code, number as i32 % 256),
            3 => assert_eq!(run("echo one | grep two".into()).exit_code, 1),
            _ => assert_eq!(
                says(sandbox.execute_blocking(format!("cat <<END\n{number}\nEND").into())),
                number.to_string()
            ),
        },
    }
}

tests! { "state":
    /// Promise: session-state
    #[test]
    fn shell_state_survives_two_hundred_commands_a_denial_a_grant_and_timeouts(at) {
        if !can_ask() {
            return;
        }
        let asker = Arc::new(Notes::default());
        let options = SandboxSpec { asker: Some(asker.clone()), ..SandboxSpec::new(at) };
        let sandbox = block_on(SessionProvider::default().create(options)).unwrap();
        let made = "mkdir below && cd below && export KEPT='a  b' && kept() { echo \"$KEPT $1\"; } && \
            echo held >held && exec 7<held && rm held; sleep 1000 & echo $$ $!";
        let numbers = says(sandbox.execute_blocking(made.into()));
        (0..200).for_each(|number| one(&*sandbox, number));
        // One question for each of the two: a denial is cached for a while, and a grant never asks
        // again.
        assert_eq!(asker.0.load(Ordering::SeqCst), 2);
        let still = |line: &str| says(sandbox.execute_blocking(line.into()));
        assert_eq!(still("pwd"), at.join("below").to_str().unwrap());
        assert_eq!(still("sh -c 'echo \"$KEPT\"'"), "a  b");
        assert_eq!(still("kept here"), "a  b here");
        assert_eq!(still("kill -0 $(jobs -p) && echo $$ $(jobs -p)"), numbers);
        assert_eq!(still("cat <&7"), "held");
    }
}
