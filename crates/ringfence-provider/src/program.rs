//! Commands that a program of this host runs: `bwrap`, `ssh`, `docker`.

use std::env;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus as ProgramStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringfence_api::{CommandRequest, ExitStatus, Outcome, StdioMode, StreamOutput};
use ringfence_policy::{AbsPath, Access, Grants, Verdict};

use crate::ProviderError;

/// Finds the requested program on the command's own `PATH`.
///
/// # Errors
///
/// [`ProviderError::NotStarted`] if `grants` do not show the working directory, and
/// [`ProviderError::NotExecuted`] if they show no program of this name.
pub fn find_program(request: &CommandRequest, grants: &Grants) -> Result<AbsPath, ProviderError> {
    let name = &request.command[0];
    let not_executed = |kind: io::ErrorKind| ProviderError::NotExecuted {
        command: name.to_string_lossy().into_owned(),
        source: kind.into(),
    };
    let is_shown = |path: &AbsPath| grants.verdict(path, Access::Execute) == Verdict::Allowed;
    if !is_shown(&request.cwd) {
        return Err(ProviderError::NotStarted {
            command: name.to_string_lossy().into_owned(),
            hint: format!("`ringfence explain read {}` shows the rule", request.cwd),
            source: "the policy does not allow the working directory".into(),
        });
    }
    let found = if name.as_encoded_bytes().contains(&b'/') {
        Some(request.cwd.join(name)).filter(|path| path.as_path().exists())
    } else {
        let path = request.variables.iter().find(|(name, _)| name == "PATH");
        let path =
            path.map_or_else(|| "/usr/local/bin:/usr/bin:/bin".into(), |(_, path)| path.clone());
        let mut candidates =
            env::split_paths(&path).map(|directory| request.cwd.join(directory).join(name));
        candidates.find(|path| path.as_path().is_file())
    };
    let found = found.filter(is_shown).ok_or_else(|| not_executed(io::ErrorKind::NotFound))?;
    if found.as_path().is_file() {
        Ok(found)
    } else {
        Err(not_executed(io::ErrorKind::PermissionDenied))
    }
}

/// Starts `program`, which runs the requested command, and waits for its end.
///
/// The outcome has the program's output and exit status; the program is killed at the deadline of
/// the request. The standard input is the caller's.
pub fn run_program(program: &mut Command, request: &CommandRequest) -> io::Result<Outcome> {
    let begun = Instant::now();
    let (stream, limit): (fn() -> Stdio, usize) = match request.stdio {
        StdioMode::Capture { limit } => (Stdio::piped, limit),
        StdioMode::Inherit => (Stdio::inherit, 0),
    };
    let mut child = program.stdout(stream()).stderr(stream()).spawn()?;
    let stdout = collect_output(child.stdout.take(), limit);
    let stderr = collect_output(child.stderr.take(), limit);
    let (status, timed_out) = wait(&mut child, begun, request.deadline)?;
    let code = match status.code() {
        // 137: killed.
        None if timed_out => 137,
        None => return Err(io::Error::other(format!("the program ended by {status}"))),
        Some(code) => code,
    };
    let lost = |_| io::Error::other("the thread that reads the output panicked");
    Ok(Outcome {
        stdout: stdout.join().map_err(lost)?,
        stderr: stderr.join().map_err(lost)?,
        timed_out,
        duration_ms: begun.elapsed().as_millis() as u64,
        status: ExitStatus::Exited(code),
        ..Outcome::default()
    })
}

/// Waits for the end; true if the time limit ended the program.
fn wait(
    child: &mut Child,
    begun: Instant,
    deadline: Option<Duration>,
) -> io::Result<(ProgramStatus, bool)> {
    let Some(deadline) = deadline else { return Ok((child.wait()?, false)) };
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        let left = deadline.saturating_sub(begun.elapsed());
        if left.is_zero() {
            child.kill()?;
            return Ok((child.wait()?, true));
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Reads a stream to its end in a thread of its own. Keeps its first and last bytes, `limit` in
/// all, and counts the rest. A stream that is not captured is empty.
fn collect_output(
    stream: Option<impl Read + Send + 'static>,
    limit: usize,
) -> JoinHandle<StreamOutput> {
    thread::spawn(move || {
        let mut output = StreamOutput::default();
        let Some(mut stream) = stream else { return output };
        let (most, mut buffer) = (limit - limit / 2, vec![0; 64 * 1024]);
        // An error ends the stream: the bytes before it count.
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            let (head, rest) = buffer[..count].split_at(count.min(most - output.head.len()));
            output.head.extend_from_slice(head);
            output.tail.extend_from_slice(rest);
            let surplus = output.tail.len().saturating_sub(limit / 2);
            output.tail.drain(..surplus);
            output.dropped += surplus as u64;
        }
        output
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &'static [u8], limit: usize, expect: (&[u8], &[u8], u64)) {
        let output = collect_output(Some(bytes), limit).join().unwrap();
        assert_eq!((output.head.as_slice(), output.tail.as_slice(), output.dropped), expect);
    }

    #[test]
    fn output_beyond_the_limit_is_cut_in_the_middle() {
        check(b"", 4, (b"", b"", 0));
        check(b"abcd", 4, (b"ab", b"cd", 0));
        check(b"abcdefg", 4, (b"ab", b"fg", 3));
        check(b"abcdefg", 5, (b"abc", b"fg", 2));
        check(b"abc", 0, (b"", b"", 3));
        check(b"abc", usize::MAX, (b"abc", b"", 0));
        static LONG: [u8; 200_000] = [7; 200_000];
        check(&LONG, 100_001, (&LONG[..50_001], &LONG[..50_000], 99_999));
    }

    #[test]
    fn stream_that_is_not_captured_is_empty() {
        let output = collect_output(None::<&[u8]>, 4).join().unwrap();
        assert_eq!(output, StreamOutput::default());
    }
}
