//! The bench's program inside a sandbox: does one thing many times and prints the nanoseconds of
//! each.
//!
//! Measured inside, a row shows the cost of work in a running sandbox, without its setup.

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::TaskResult;
use crate::bench::POURED;

/// `open COUNT PATH`, `stat COUNT PATH`, `connect COUNT ADDRESS`, `crowd COUNT ADDRESS`, `download
/// COUNT ADDRESS`, `hook COUNT RINGFENCE TOOL NAME`, `loop COUNT COMMAND…` or `fresh COUNT
/// DIRECTORY COMMAND…`.
pub(crate) fn run(task: &[&str]) -> TaskResult {
    let [task, count, rest @ ..] = task else { return Err("probe: no task".into()) };
    let count = count.parse()?;
    let spent = match (*task, rest) {
        ("open", [path]) => calls(count, || File::open(path))?,
        ("stat", [path]) => calls(count, || fs::metadata(path))?,
        ("connect", [address]) => calls(count, || TcpStream::connect(address))?,
        ("crowd", [address]) => crowd(count, address)?,
        ("download", [address]) => calls(count, || download(address))?,
        // The last word is the contender's name, always ringfence.
        ("hook", [ringfence, tool, _]) => calls(count, || hook(ringfence, tool))?,
        ("loop", command) => commands(count, None, command)?,
        ("fresh", [directory, command @ ..]) => {
            commands(count, Some(Path::new(directory)), command)?
        }
        _ => return Err("probe: no such task".into()),
    };
    println!("{}", spent.as_nanos() as f64 / f64::from(count));
    Ok(())
}

/// The time in which a sandbox may be busy with its setup: its watcher starts after 25 ms and scans
/// everything once. That cost is not part of the measured work.
const SETTLE_TIME: Duration = Duration::from_millis(150);

fn calls<T>(count: u32, mut call: impl FnMut() -> io::Result<T>) -> io::Result<Duration> {
    call()?;
    let began = Instant::now();
    for _ in 0..count {
        black_box(call()?);
    }
    Ok(began.elapsed())
}

/// One call of Claude Code's hook, from start to end, before a call of this tool in the current
/// directory.
fn hook(ringfence: &str, tool: &str) -> io::Result<()> {
    let here = std::env::current_dir()?;
    let input = serde_json::json!({
        "session_id": "bench",
        "cwd": here,
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": { "command": "make test && git status", "file_path": here.join("README") },
        "tool_use_id": "toolu_bench",
    });
    let mut child = Command::new(ringfence)
        .args(["hook", "claude-code"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(input.to_string().as_bytes())?;
    let answered = child.wait_with_output()?;
    if answered.status.success() {
        Ok(())
    } else {
        Err(io::Error::other("the hook blocked the call"))
    }
}

/// Opens all connections at once, each in its own thread, and exchanges a byte on each while all
/// are open.
fn crowd(count: u32, address: &str) -> io::Result<Duration> {
    const STACK: usize = 64 * 1024;
    let (ready, connected) = (Barrier::new(count as usize + 1), Barrier::new(count as usize));
    let one = || {
        ready.wait();
        let stream = connect(address);
        connected.wait();
        let mut stream = stream?;
        stream.write_all(b"?")?;
        stream.read_exact(&mut [0])?;
        connected.wait();
        Ok(())
    };
    thread::scope(|scope| {
        let begun =
            (0..count).map(|_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, one));
        let threads: Vec<_> = begun.collect::<io::Result<_>>()?;
        ready.wait();
        let began = Instant::now();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("probe: a thread panicked")))
        });
        ended.collect::<io::Result<()>>().map(|()| began.elapsed())
    })
}

/// Connects, through the proxy if one is set.
fn connect(address: &str) -> io::Result<TcpStream> {
    match std::env::var("http_proxy") {
        Ok(proxy) => tunnel(proxy.trim_start_matches("http://"), address),
        Err(_) => TcpStream::connect(address),
    }
}

/// Receives everything from that address.
fn download(address: &str) -> io::Result<()> {
    let mut stream = connect(address)?;
    let mut buffer = vec![0; 256 * 1024];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 if received == POURED => return Ok(()),
            0 => return Err(io::Error::other(format!("probe: received only {received} bytes"))),
            length => received += length as u64,
        }
    }
}

fn tunnel(proxy: &str, address: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy)?;
    stream
        .write_all(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let is_open = head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.0 200");
    if is_open {
        Ok(stream)
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()))
    }
}

/// Runs `command` untimed until the sandbox has settled, at least once, and then `count` times
/// timed, each time with an empty `directory` if there is one. Returns `count` times the median, so
/// that other load on the host does not count.
fn commands(
    count: u32,
    directory: Option<&Path>,
    command: &[&str],
) -> Result<Duration, Box<dyn Error>> {
    let [program, arguments @ ..] = command else { return Err("probe: no command".into()) };
    let mut turns = Vec::new();
    // Opened before: only the command is timed, not the work of a shell around it.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let settled_at = Instant::now() + SETTLE_TIME;
    while turns.len() < count as usize {
        if let Some(directory) = directory {
            if directory.exists() {
                fs::remove_dir_all(directory)?;
            }
            fs::create_dir(directory)?;
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(null.try_clone()?).stdout(null.try_clone()?);
        let began = Instant::now();
        let status = command.status()?;
        if !status.success() {
            return Err(format!("probe: {program}: {status}").into());
        }
        if began >= settled_at {
            turns.push(began.elapsed());
        }
    }
    turns.sort();
    Ok(turns.get(turns.len() / 2).ok_or("probe: no turns")?.saturating_mul(count))
}
