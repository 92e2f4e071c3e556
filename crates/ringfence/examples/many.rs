//! Measures the cost of many sandboxes, and checks that nothing is left of them.
//!
//! `many idle COUNT ringfence` prints the bytes that each of COUNT idle sandboxes takes, without
//! its shell. `many soak LIVES AT_ONCE` opens, uses and ends LIVES sandboxes one after the other
//! and AT_ONCE at once, prints this process's resources before and after, and fails if they grew.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence::{SandboxBackend, SandboxSpec, SessionProvider, block_on};
use rustix::process::{Resource, getpid, getrlimit, set_child_subreaper, setrlimit};

type ExampleResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Sandboxes to run before measuring, so that one-time allocations are done.
const WARM_UP: usize = 100;

/// Allowed growth of memory, in kB.
const SLACK_KB: u64 = 4096;

/// A timeout that only a bug exceeds.
const TIMEOUT: Duration = Duration::from_secs(20);

#[allow(dead_code, reason = "tests have a `main` of their own")]
pub(crate) fn main() -> ExampleResult<()> {
    ringfence::init();
    let (provider, here) = (SessionProvider::default(), std::env::current_dir()?);
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["idle", count, "ringfence"] => println!("{}", idle(&provider, &here, count.parse()?)?),
        ["soak", lives, at_once] => soak(&provider, &here, lives.parse()?, at_once.parse()?)?,
        _ => return Err("many idle COUNT ringfence | many soak LIVES AT_ONCE".into()),
    }
    Ok(())
}

/// The resources of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessResources {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// All descendant processes.
    pub(crate) processes: usize,
    pub(crate) mounts: usize,
    /// Run markers of sandboxes that have not ended.
    pub(crate) run_markers: usize,
}

impl ProcessResources {
    pub(crate) fn now() -> Self {
        let count = |directory: &str| fs::read_dir(directory).into_iter().flatten().count();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            processes: below("self").len(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().count(),
            run_markers: run_markers(),
        }
    }

    /// True once the resources equal these again; threads and processes take a moment to end.
    pub(crate) fn is_restored(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if Self::now() == *self {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

/// The resident memory of this process, in kB.
pub(crate) fn memory() -> u64 {
    kilobytes("/proc/self/status", "VmRSS:").unwrap_or(0)
}

fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(name))?
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .ok()
}

/// All descendants of a process.
pub(crate) fn below(pid: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children =
        texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    children.flat_map(|child| [vec![child.clone()], below(&child)].concat()).collect()
}

fn run_markers() -> usize {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let Some(cache) = home("XDG_CACHE_HOME").or_else(|| Some(home("HOME")?.join(".cache"))) else {
        return 0;
    };
    let projects = fs::read_dir(cache.join("ringfence/projects")).into_iter().flatten().flatten();
    let all = projects.flat_map(|project| {
        fs::read_dir(project.path().join("runs")).into_iter().flatten().flatten()
    });
    all.filter(|mark| !mark.file_name().as_encoded_bytes().starts_with(b".")).count()
}

/// Raises the fd limit to its maximum, and makes this process the subreaper of its descendants.
pub(crate) fn raise_fd_limit() -> ExampleResult<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })?;
    Ok(set_child_subreaper(Some(getpid()))?)
}

fn open(provider: &SessionProvider, at: &Path) -> ExampleResult<Arc<dyn SandboxBackend>> {
    Ok(block_on(provider.create(SandboxSpec::new(at)))?)
}

fn says(sandbox: &dyn SandboxBackend, line: String, expected: &str) -> ExampleResult<()> {
    let result = sandbox.execute_blocking(line.into())?;
    let said = result.stdout.text().trim_end().to_owned();
    (said == expected)
        .then_some(())
        .ok_or_else(|| format!("got `{said}`, expected `{expected}`: {}", result.stderr).into())
}

/// Opens, uses and ends sandboxes one after the other; a background process runs in each at its
/// end.
pub(crate) fn lives(provider: &SessionProvider, at: &Path, count: usize) -> ExampleResult<()> {
    (0..count).try_for_each(|number| {
        let sandbox = open(provider, at)?;
        says(&*sandbox, format!("echo {number}; sleep 1000 & true"), &number.to_string())?;
        block_on(sandbox.dispose())?;
        Ok(())
    })
}

/// Opens `count` sandboxes, uses all while all are alive, and ends them.
pub(crate) fn at_once(provider: &SessionProvider, at: &Path, count: usize) -> ExampleResult<()> {
    let all = run_parallel((0..count).collect(), |number| {
        let sandbox = open(provider, at)?;
        says(&*sandbox, format!("export NUMBER={number}; echo {number} >/tmp/number"), "")?;
        Ok((number, sandbox))
    })?;
    let all = run_parallel(all, |(number, sandbox)| {
        says(
            &*sandbox,
            "echo $NUMBER $(cat /tmp/number); sleep 1000 & true".into(),
            &format!("{number} {number}"),
        )?;
        Ok(sandbox)
    })?;
    run_parallel(all, |sandbox| Ok(block_on(sandbox.dispose()).map(drop)?)).map(drop)
}

/// Applies `act` to all of these on a few threads.
fn run_parallel<T: Send, R: Send>(
    these: Vec<T>,
    act: impl Fn(T) -> ExampleResult<R> + Sync,
) -> ExampleResult<Vec<R>> {
    const THREADS: usize = 8;
    let (left, done) = (Mutex::new(these), Mutex::new(Ok(Vec::new())));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(one) = left.lock().expect("no thread panics with it").pop() else {
                        return;
                    };
                    let made = act(one);
                    let mut done = done.lock().expect("no thread panics with it");
                    match (&mut *done, made) {
                        (Ok(all), Ok(one)) => all.push(one),
                        (all @ Ok(_), Err(error)) => *all = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    done.into_inner().expect("no thread panics with it")
}

/// The bytes that each of `count` idle sandboxes takes, without its shell.
fn idle(provider: &SessionProvider, at: &Path, count: usize) -> ExampleResult<u64> {
    raise_fd_limit()?;
    let before = pss("self")?;
    let all = (0..count).map(|_| open(provider, at)).collect::<ExampleResult<Vec<_>>>()?;
    all.iter().try_for_each(|sandbox| says(&**sandbox, "echo here".into(), "here"))?;
    // Until the watchers have scanned the project.
    thread::sleep(Duration::from_secs(2));
    let mut by_name = BTreeMap::<String, (u64, u64)>::new();
    for pid in below("self") {
        let words = fs::read(format!("/proc/{pid}/cmdline"))?;
        let name =
            String::from_utf8_lossy(words.split(|byte| *byte == 0).nth(1).unwrap_or_default())
                .into_owned();
        let is_shell = words.starts_with(b"bash\0");
        let (many, bytes) = by_name
            .entry(if is_shell { "bash".into() } else { format!("helper {name}") })
            .or_default();
        *many += 1;
        *bytes += pss(&pid)?;
    }
    let own = pss("self")? - before;
    for (name, (many, bytes)) in &by_name {
        eprintln!("{name:<18} {many:>5} of {:>5} kB", bytes / many / 1024);
    }
    eprintln!("{:<18} {:>5} of {:>5} kB for each", "this program", 1, own / count as u64 / 1024);
    run_parallel(all, |sandbox| Ok(block_on(sandbox.dispose()).map(drop)?))?;
    let helpers: u64 =
        by_name.iter().filter(|(name, _)| *name != "bash").map(|(_, (_, bytes))| bytes).sum();
    Ok((helpers + own) / count as u64)
}

/// The proportional set size of a process, in bytes.
fn pss(pid: &str) -> ExampleResult<u64> {
    let found = kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
    found
        .map(|found| found * 1024)
        .ok_or_else(|| format!("cannot read the memory of process {pid}: run as root").into())
}

fn soak(
    provider: &SessionProvider,
    at: &Path,
    one_by_one: usize,
    many: usize,
) -> ExampleResult<()> {
    raise_fd_limit()?;
    let begun = Instant::now();
    lives(provider, at, WARM_UP)?;
    let mut broken = compare(&format!("{one_by_one} sandboxes, one after the other"), || {
        lives(provider, at, one_by_one)
    })?;
    at_once(provider, at, many)?;
    broken |= compare(&format!("{many} sandboxes at once, the second time"), || {
        at_once(provider, at, many)
    })?;
    println!("{:.1} s in all", begun.elapsed().as_secs_f64());
    if broken { Err("resources are left over".into()) } else { Ok(()) }
}

/// Prints the resources before and after `act`; true if they grew.
fn compare(what: &str, act: impl FnOnce() -> ExampleResult<()>) -> ExampleResult<bool> {
    let settled = Instant::now();
    while ProcessResources::now().threads > 1 && settled.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(5));
    }
    let (before, memory_before, begun) = (ProcessResources::now(), memory(), Instant::now());
    act()?;
    let (took, is_restored, memory_after) = (begun.elapsed(), before.is_restored(), memory());
    println!("{what}: {:.1} s", took.as_secs_f64());
    println!("  before {before:?}, {memory_before} kB");
    println!("  after  {:?}, {memory_after} kB", ProcessResources::now());
    Ok(!is_restored || memory_after.saturating_sub(memory_before) > SLACK_KB)
}
