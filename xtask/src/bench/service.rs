//! The service under load: commands of skills over loopback, each in its own sandbox.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Pace;

/// The name of the row.
pub(super) const NAME: &str = "service";
const CLIENTS: usize = 16;
const CONCURRENT: usize = 200;
const TOKEN: &str = "bench-0123456789abcdef";
/// The default policy, with `true` among the programs.
const POLICY: &str = "version = 1\n[environment]\nprofile = \"clean\"\n[commands]\nallow-binaries = [\"@strict\", \"true\"]\n\
    deny-arguments = [\"@strict\"]\nanchor-arguments = \".\"\n[limits]\nwall = \"300s\"\ncpu = \"300s\"\nmemory = \"512MiB\"\nprocesses = 128\n\
    open-files = 1024\nfile-size = \"256MiB\"\ndisk = \"256MiB\"\noutput = \"8MiB\"\n";

/// The result of the measurement.
pub(super) struct Load {
    per_second: f64,
    median: Duration,
    worst: Duration,
    /// The number of concurrent commands that succeeded, and the time for all.
    crowd: (usize, Duration),
    /// Resident KiB after a warm-up, after many more executions, and their number.
    memory: (u64, u64, u64),
}

impl Load {
    /// Each bar with its result, and true if it is reached.
    fn bars(&self) -> [(String, bool); 4] {
        let (before, after, more) = self.memory;
        [
            (
                format!(
                    "{:.0} executions a second at {CLIENTS} clients (bar: 150)",
                    self.per_second
                ),
                self.per_second >= 150.0,
            ),
            (
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms (bar: 100 ms)",
                    millis(self.median),
                    millis(self.worst)
                ),
                self.worst < Duration::from_millis(100),
            ),
            (
                format!(
                    "{} of {CONCURRENT} concurrent commands succeeded, in {:.1} s",
                    self.crowd.0,
                    self.crowd.1.as_secs_f64()
                ),
                self.crowd.0 == CONCURRENT,
            ),
            (
                format!(
                    "{before} KiB resident, {after} KiB after {more} more executions (bar: at most 10 % more)"
                ),
                after <= before + before / 10,
            ),
        ]
    }

    pub(super) fn missed(&self) -> usize {
        self.bars().iter().filter(|(_, is_reached)| !is_reached).count()
    }

    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        for (text, is_reached) in self.bars() {
            let _ = writeln!(out, "{NAME:<14} {text}: {}", if is_reached { "ok" } else { "FAIL" });
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "clients": CLIENTS, "perSecond": self.per_second, "p50Ms": millis(self.median), "p99Ms": millis(self.worst),
            "atOnce": self.crowd.0, "residentKib": [self.memory.0, self.memory.1], "executions": self.memory.2,
        })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

pub(super) fn measure(
    ringfence: &Path,
    scratch: &Path,
    pace: Pace,
) -> Result<Load, Box<dyn Error>> {
    let is_quick = pace == Pace::Quick;
    let server = Server::start(ringfence, scratch)?;
    let warm = Duration::from_secs(1);
    run_for(&server, warm)?;
    let (mut times, took) = run_for(&server, Duration::from_secs(if is_quick { 4 } else { 15 }))?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let crowd = crowd(&server);
    run_many(&server, if is_quick { 500 } else { 2_000 })?;
    let before = server.resident()?;
    let more = if is_quick { 2_000 } else { 20_000 };
    run_many(&server, more)?;
    let after = server.resident()?;
    Ok(Load {
        per_second: times.len() as f64 / took.as_secs_f64(),
        median: at(0.5),
        worst: at(0.99),
        crowd,
        memory: (before, after, more),
    })
}

/// Runs all clients for some time. Returns the time of each request.
fn run_for(server: &Server, time: Duration) -> Result<(Vec<Duration>, Duration), Box<dyn Error>> {
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    let all: Vec<Result<Vec<Duration>, String>> = thread::scope(|scope| {
        let work = || {
            let mut client =
                LoadClient::connect(server.address).map_err(|error| error.to_string())?;
            let mut times = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.execute("true")?;
                times.push(begun.elapsed());
            }
            Ok(times)
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
            .collect()
    });
    let took = begun.elapsed();
    let mut times = Vec::new();
    for one in all {
        times.extend(one?);
    }
    Ok((times, took))
}

fn run_many(server: &Server, number: u64) -> Result<(), Box<dyn Error>> {
    let left = AtomicU64::new(number);
    let take = || {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    };
    let all: Vec<Result<(), String>> = thread::scope(|scope| {
        let work = || {
            let mut client =
                LoadClient::connect(server.address).map_err(|error| error.to_string())?;
            while take() {
                client.execute("true")?;
            }
            Ok(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err("a client panicked".into())))
            .collect()
    });
    all.into_iter().collect::<Result<(), String>>().map_err(Into::into)
}

/// Many concurrent commands, each of which takes a while.
fn crowd(server: &Server) -> (usize, Duration) {
    let begun = Instant::now();
    let ended = thread::scope(|scope| {
        let work = || {
            let mut client =
                LoadClient::connect(server.address).map_err(|error| error.to_string())?;
            client.execute("python3 -c 'import time; time.sleep(3)'")
        };
        let clients: Vec<_> = (0..CONCURRENT).map(|_| scope.spawn(work)).collect();
        clients.into_iter().filter_map(|client| client.join().ok()?.ok()).count()
    });
    (ended, begun.elapsed())
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(ringfence: &Path, scratch: &Path) -> Result<Self, Box<dyn Error>> {
        let data = scratch.join("service");
        fs::DirBuilder::new().mode(0o700).create(&data)?;
        fs::write(data.join("policy.toml"), POLICY)?;
        let mut command = Command::new(ringfence);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .env("RINGFENCE_ADMIN_TOKEN", TOKEN);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let address = line
            .split("://")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| format!("the service does not start: {line}"))?;
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let server = Self { child, address };
        server.quotas()?;
        server.upload(scratch)?;
        Ok(server)
    }

    /// Sets quotas that are high enough for all clients.
    fn quotas(&self) -> Result<(), Box<dyn Error>> {
        let body = json!({ "executions": 256, "sandboxes": 1, "storageBytes": 1 << 30, "requestsPerSecond": 100_000 }).to_string();
        let mut client = LoadClient::connect(self.address)?;
        client.send("PUT", "/v1/tenants/bench/quotas", "application/json", body.as_bytes())?;
        Ok(())
    }

    fn upload(&self, scratch: &Path) -> Result<(), Box<dyn Error>> {
        let skill = scratch.join("skill/tool");
        fs::create_dir_all(&skill)?;
        fs::write(skill.join("SKILL.md"), "---\nname: tool\ndescription: does nothing\n---\n")?;
        let archive = scratch.join("skill.zip");
        let zipped = Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .arg(&archive)
            .arg("tool/")
            .current_dir(scratch.join("skill"))
            .status()?;
        if !zipped.success() {
            return Err("python3 -m zipfile cannot create an archive".into());
        }
        let mut body =
            b"--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"s.zip\"\r\n\r\n"
                .to_vec();
        body.extend(fs::read(&archive)?);
        body.extend(b"\r\n--edge--\r\n");
        let mut client = LoadClient::connect(self.address)?;
        client.send(
            "POST",
            "/v1/skills/bench/load/upload",
            "multipart/form-data; boundary=edge",
            &body,
        )?;
        Ok(())
    }

    fn resident(&self) -> Result<u64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One keep-alive connection.
struct LoadClient(BufReader<TcpStream>);

impl LoadClient {
    fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn execute(&mut self, line: &str) -> Result<(), String> {
        let body = json!({ "command": line }).to_string();
        let answer = self.send(
            "POST",
            "/v1/skills/bench/load/tool/execute",
            "application/json",
            body.as_bytes(),
        );
        let answer: Value = serde_json::from_slice(&answer.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        if answer["exitCode"] == 0 { Ok(()) } else { Err(format!("a command failed: {answer}")) }
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> std::io::Result<Vec<u8>> {
        let address = self.0.get_ref().peer_addr()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let is_success = line.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
        let mut length = 0;
        loop {
            let mut header = String::new();
            self.0.read_line(&mut header)?;
            match header.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap_or(0)
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        if is_success {
            Ok(answer)
        } else {
            Err(std::io::Error::other(format!(
                "{}: {}",
                line.trim(),
                String::from_utf8_lossy(&answer)
            )))
        }
    }
}
