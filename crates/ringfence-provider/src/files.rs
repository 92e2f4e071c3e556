//! Files in and out of a live sandbox, by a program in it: it has the rights of every command.

use std::io;
use std::time::Duration;

use ringfence_api::StdinInput;
use ringfence_policy::AbsPath;

use crate::{ProcessSpec, ProcessStdio, ProviderError, Sandbox};

/// The time limit of one file.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes kept of an error message.
const MESSAGE: usize = 4096;

pub(crate) fn put<S: Sandbox + ?Sized>(
    sandbox: &S,
    path: &AbsPath,
    content: &[u8],
) -> Result<(), ProviderError> {
    let input = StdinInput::from(content.to_vec());
    run(sandbox, "write a file", "exec cat > \"$1\"", path, input, MESSAGE).map(drop)
}

pub(crate) fn get<S: Sandbox + ?Sized>(
    sandbox: &S,
    path: &AbsPath,
    limit: usize,
) -> Result<Vec<u8>, ProviderError> {
    let what = "read a file";
    // One byte more tells a file of the limit from a longer one.
    let kept = limit.saturating_add(1);
    let line = format!("exec head -c {kept} < \"$1\"");
    let content = run(sandbox, what, &line, path, StdinInput::Empty, kept.max(MESSAGE))?;
    if content.len() > limit {
        let source = io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("`{path}` has more than {limit} bytes"),
        );
        return Err(ProviderError::System { what, source });
    }
    Ok(content)
}

/// Runs a shell line with the path as `$1`. Returns its output.
fn run<S: Sandbox + ?Sized>(
    sandbox: &S,
    what: &'static str,
    line: &str,
    path: &AbsPath,
    input: StdinInput,
    limit: usize,
) -> Result<Vec<u8>, ProviderError> {
    let failed = |kind: io::ErrorKind, text: String| ProviderError::System {
        what,
        source: io::Error::new(kind, text),
    };
    let inside = sandbox.paths().to_guest(path).ok_or_else(|| {
        failed(io::ErrorKind::NotFound, format!("`{path}` is not in the sandbox"))
    })?;
    let process = sandbox.start_process(&ProcessSpec {
        command: ["/bin/sh", "-c", line, "sh"]
            .map(Into::into)
            .into_iter()
            .chain([inside.as_path().into()])
            .collect(),
        environment: [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LC_ALL", "C")]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        cwd: AbsPath::root(),
        streams: ProcessStdio::Pipes { input, limit },
        deadline: Some(TIMEOUT),
    })?;
    let outcome = process.wait(&mut |_, _| {})?;
    if outcome.exit_code() != 0 {
        let message = String::from_utf8_lossy(&outcome.stderr.bytes()).trim_end().to_owned();
        let text = format!("`{path}`: status {}: {message}", outcome.exit_code());
        return Err(failed(io::ErrorKind::Other, text));
    }
    Ok(outcome.stdout.bytes())
}
