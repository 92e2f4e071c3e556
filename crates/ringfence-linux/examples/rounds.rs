//! Cost of a command in a persistent shell of a sandbox, compared with a bash on pipes. `rounds
//! true|output COUNT bare|ringfence` prints the nanoseconds per command, or those of COUNT MiB of
//! output; the bench runs it.

use std::error::Error;
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_api::HostFacts;
use ringfence_api::ShellCommand;
use ringfence_linux::LocalProvider;
use ringfence_policy::{AbsPath, Facts, Flags, resolve};
use ringfence_provider::{Provider, Sandbox, SandboxShell, ShellSpec};

/// Commands before the measurement.
const WARM_UP: u32 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    ringfence_linux::enter_if_helper();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, count, who] = words.as_slice() else {
        return Err("rounds true|output COUNT bare|ringfence".into());
    };
    let count: u32 = count.parse()?;
    let bytes = u64::from(count) << 20;
    let nanoseconds = match (what.as_str(), who.as_str()) {
        ("true", "bare") => turns(count, &mut BareRun::start()?)?,
        ("true", "ringfence") => turns(count, &mut Ours::start()?)?,
        ("output", "bare") => once(bytes, &mut BareRun::start()?)?,
        ("output", "ringfence") => once(bytes, &mut Ours::start()?)?,
        _ => return Err("no such task".into()),
    };
    println!("{nanoseconds}");
    Ok(())
}

/// The measured shell.
trait Speaks {
    /// Runs `true`.
    fn turn(&mut self) -> Result<(), Box<dyn Error>>;

    /// Writes this many bytes, and reads them all.
    fn output(&mut self, bytes: u64) -> Result<(), Box<dyn Error>>;
}

fn turns(count: u32, who: &mut dyn Speaks) -> Result<f64, Box<dyn Error>> {
    (0..WARM_UP).try_for_each(|_| who.turn())?;
    let began = Instant::now();
    (0..count).try_for_each(|_| who.turn())?;
    Ok(began.elapsed().as_nanos() as f64 / f64::from(count))
}

fn once(bytes: u64, who: &mut dyn Speaks) -> Result<f64, Box<dyn Error>> {
    who.turn()?;
    let began = Instant::now();
    who.output(bytes)?;
    Ok(began.elapsed().as_nanos() as f64)
}

fn pour(bytes: u64) -> String {
    format!("head -c {bytes} /dev/zero")
}

/// A bash without a sandbox.
struct BareRun {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl BareRun {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut child =
            Command::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = BufReader::with_capacity(64 * 1024, child.stdout.take().ok_or("no output")?);
        Ok(Self { stdin: child.stdin.take(), stdout, child, line: String::new() })
    }

    fn send(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        Ok(self.stdin.as_mut().ok_or("no input")?.write_all(text.as_bytes())?)
    }
}

impl Speaks for BareRun {
    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        self.send("true; echo MARK $?\n")?;
        self.line.clear();
        self.stdout.read_line(&mut self.line)?;
        (self.line == "MARK 0\n")
            .then_some(())
            .ok_or_else(|| format!("bash said `{}`", self.line).into())
    }

    fn output(&mut self, bytes: u64) -> Result<(), Box<dyn Error>> {
        self.send(&format!("{}\n", pour(bytes)))?;
        let (mut left, mut buffer) = (bytes, vec![0; 64 * 1024]);
        while left > 0 {
            let size = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.stdout.read(&mut buffer[..size])? {
                0 => return Err("bash ended".into()),
                length => left -= black_box(length) as u64,
            }
        }
        Ok(())
    }
}

impl Drop for BareRun {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A shell in a sandbox. The shell is dropped first.
struct Ours {
    shell: Box<dyn SandboxShell>,
    _live_sandbox: Box<dyn Sandbox>,
    line: ShellCommand,
}

impl Ours {
    fn start() -> Result<Self, Box<dyn Error>> {
        let at = |path: OsString| AbsPath::new(path).ok_or("not an absolute path");
        let cwd = at(std::env::current_dir()?.into_os_string())?;
        let home = at(std::env::var_os("HOME").unwrap_or_else(|| "/".into()))?;
        let store = cwd.join(".rounds");
        let facts = Facts {
            state: store.join("state"),
            ..Facts::minimal(cwd.clone(), home, store.clone())
        };
        let user = HostFacts::without_settings(store.join("quarantine"));
        let grants = resolve(&[], &Flags::none(cwd.clone()), &facts)?;
        let live_sandbox = LocalProvider::default().prepare(&grants, &user)?.start_sandbox(&cwd)?;
        let variables = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
        let shell = live_sandbox.start_shell(&ShellSpec {
            program: "bash".into(),
            environment: variables,
            cwd,
        })?;
        let line =
            ShellCommand { deadline: Some(Duration::from_secs(60)), ..ShellCommand::new("true") };
        Ok(Self { shell, _live_sandbox: live_sandbox, line })
    }
}

impl Speaks for Ours {
    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let ran = self.shell.execute(&self.line, &mut |_, _| {})?;
        (ran.exit_code() == 0)
            .then_some(())
            .ok_or_else(|| format!("it ended with {}", ran.exit_code()).into())
    }

    fn output(&mut self, bytes: u64) -> Result<(), Box<dyn Error>> {
        let ran = self.shell.execute(
            &ShellCommand { text: pour(bytes).into(), ..self.line.clone() },
            &mut |_, _| {},
        )?;
        let all = ran.stdout.dropped + ran.stdout.bytes().len() as u64;
        (all == bytes).then_some(()).ok_or_else(|| format!("got {all} bytes of {bytes}").into())
    }
}
