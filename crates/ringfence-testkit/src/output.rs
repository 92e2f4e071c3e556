//! The result of a command.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The output and exit status of a command.
#[derive(Debug)]
pub struct TestOutput {
    /// The exit status; a signal is 128 + its number.
    pub status: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// The time limit of one command.
const TIME_LIMIT: Duration = Duration::from_secs(120);

impl TestOutput {
    /// Runs `command` to its end, with `input` for it to read.
    #[track_caller]
    pub fn run(command: &mut Command, input: &[u8]) -> TestOutput {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let mut stdin = child.stdin.take().expect("piped just above");
        let input = input.to_vec();
        // A command need not read its input.
        thread::spawn(move || drop(stdin.write_all(&input)));
        finish(child)
    }

    /// Standard output as text, without the final newline.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Asserts that the command succeeded, and returns its output.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert!(
            self.status == 0,
            "status {}\nstdout: {}\nstderr: {}",
            self.status,
            self.text(),
            self.stderr_text()
        );
        self.text()
    }

    /// Asserts that the command ended with `status`.
    #[track_caller]
    pub fn expect_status(&self, status: i32) -> &Self {
        assert!(
            self.status == status,
            "status {} instead of {status}\nstdout: {}\nstderr: {}",
            self.status,
            self.text(),
            self.stderr_text()
        );
        self
    }
}

/// Waits for `child` and collects its output.
#[track_caller]
pub fn finish(mut child: Child) -> TestOutput {
    let collect = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut bytes);
            }
            bytes
        })
    };
    drop(child.stdin.take());
    let stdout = collect(child.stdout.take().map(|stream| Box::new(stream) as _));
    let stderr = collect(child.stderr.take().map(|stream| Box::new(stream) as _));
    let status = wait_at_most(&mut child, TIME_LIMIT);
    let (stdout, stderr) = (
        stdout.join().expect("reading does not panic"),
        stderr.join().expect("reading does not panic"),
    );
    let Some(status) = status else {
        panic!(
            "did not end within {TIME_LIMIT:?}\nstdout: {}\nstderr: {}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        )
    };
    TestOutput {
        status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        signal: status.signal(),
        stdout,
        stderr,
    }
}

/// The status of `child`; `None` if it did not end in time and was killed.
pub fn wait_at_most(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Sends a signal by number.
#[track_caller]
pub fn signal(pid: u32, number: i32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id is not zero");
    let signal = rustix::process::Signal::from_named_raw(number).expect("a signal with a name");
    rustix::process::kill_process(pid, signal)
        .unwrap_or_else(|error| panic!("kill {pid:?}: {error}"));
}

/// True if `is_so` becomes true within `limit`.
pub fn becomes_true(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
