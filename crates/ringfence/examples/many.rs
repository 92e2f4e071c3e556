//! What very many sandboxes cost, and that nothing is left of them.
//!
//! `many idle COUNT ringfence` prints how many bytes each of COUNT idle ones takes beside its
//! shell; `many soak LIVES AT_ONCE` opens, uses and ends so many one after the other, and so
//! many at once, tells what this program has before and after, and fails if that is more.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence::{
    LocalSandboxProvider, SandboxBackend, SandboxCreateOptions, SandboxProvider, block_on,
};
use rustix::process::{Resource, getpid, getrlimit, set_child_subreaper, setrlimit};

type Done<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Lives after which everything is there that is made once.
const WARM: usize = 100;

/// By so many kilobytes memory may differ.
const SLACK: u64 = 4096;

/// Longer than anything takes that is not broken.
const LONG: Duration = Duration::from_secs(20);

#[allow(dead_code, reason = "tests have a `main` of their own")]
pub(crate) fn main() -> Done<()> {
    ringfence::init();
    let (provider, here) = (LocalSandboxProvider::default(), std::env::current_dir()?);
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["idle", count, "ringfence"] => println!("{}", idle(&provider, &here, count.parse()?)?),
        ["soak", lives, at_once] => soak(&provider, &here, lives.parse()?, at_once.parse()?)?,
        _ => return Err("many idle COUNT ringfence | many soak LIVES AT_ONCE".into()),
    }
    Ok(())
}

/// What this program has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Those it started, and those they started.
    pub(crate) processes: usize,
    pub(crate) mounts: usize,
    /// Marks of sandboxes that have not ended.
    pub(crate) marks: usize,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        let count = |directory: &str| fs::read_dir(directory).into_iter().flatten().count();
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            processes: below("self").len(),
            mounts: fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines().count(),
            marks: marks(),
        }
    }

    /// Whether it has this again; threads and processes take a moment to go.
    pub(crate) fn is_again(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            if Self::now() == *self {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

/// How much memory this program has, in kilobytes.
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

/// All processes below one.
pub(crate) fn below(pid: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let texts = threads
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children =
        texts.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    children.flat_map(|child| [vec![child.clone()], below(&child)].concat()).collect()
}

fn marks() -> usize {
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

/// Lets this program have as many descriptors as it may, and be the one to whom all is left
/// that its children leave.
pub(crate) fn make_room() -> Done<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })?;
    Ok(set_child_subreaper(Some(getpid()))?)
}

fn open(provider: &LocalSandboxProvider, at: &Path) -> Done<Arc<dyn SandboxBackend>> {
    Ok(block_on(provider.create(SandboxCreateOptions::new(at)))?)
}

fn says(sandbox: &dyn SandboxBackend, line: String, expected: &str) -> Done<()> {
    let result = sandbox.execute_blocking(line.into())?;
    let said = result.stdout.text().trim_end().to_owned();
    (said == expected)
        .then_some(())
        .ok_or_else(|| format!("it said `{said}` for `{expected}`: {}", result.stderr).into())
}

/// Opens, uses and ends one after the other; something goes on in each when it is ended.
pub(crate) fn lives(provider: &LocalSandboxProvider, at: &Path, count: usize) -> Done<()> {
    (0..count).try_for_each(|number| {
        let sandbox = open(provider, at)?;
        says(&*sandbox, format!("echo {number}; sleep 1000 & true"), &number.to_string())?;
        block_on(sandbox.dispose())?;
        Ok(())
    })
}

/// Opens so many, uses all of them while all of them stand, and ends them.
pub(crate) fn at_once(provider: &LocalSandboxProvider, at: &Path, count: usize) -> Done<()> {
    let all = by_hands((0..count).collect(), |number| {
        let sandbox = open(provider, at)?;
        says(&*sandbox, format!("export NUMBER={number}; echo {number} >/tmp/number"), "")?;
        Ok((number, sandbox))
    })?;
    let all = by_hands(all, |(number, sandbox)| {
        says(
            &*sandbox,
            "echo $NUMBER $(cat /tmp/number); sleep 1000 & true".into(),
            &format!("{number} {number}"),
        )?;
        Ok(sandbox)
    })?;
    by_hands(all, |sandbox| Ok(block_on(sandbox.dispose()).map(drop)?)).map(drop)
}

/// Does the same with all of these, some at a time.
fn by_hands<T: Send, R: Send>(these: Vec<T>, act: impl Fn(T) -> Done<R> + Sync) -> Done<Vec<R>> {
    const HANDS: usize = 8;
    let (left, done) = (Mutex::new(these), Mutex::new(Ok(Vec::new())));
    thread::scope(|scope| {
        for _ in 0..HANDS {
            scope.spawn(|| {
                loop {
                    let Some(one) = left.lock().expect("nobody panics with it").pop() else {
                        return;
                    };
                    let made = act(one);
                    let mut done = done.lock().expect("nobody panics with it");
                    match (&mut *done, made) {
                        (Ok(all), Ok(one)) => all.push(one),
                        (all @ Ok(_), Err(error)) => *all = Err(error),
                        (Err(_), _) => return,
                    }
                }
            });
        }
    });
    done.into_inner().expect("nobody panics with it")
}

/// How many bytes each of so many takes that do nothing, beside its shell.
fn idle(provider: &LocalSandboxProvider, at: &Path, count: usize) -> Done<u64> {
    make_room()?;
    let before = share("self")?;
    let all = (0..count).map(|_| open(provider, at)).collect::<Done<Vec<_>>>()?;
    all.iter().try_for_each(|sandbox| says(&**sandbox, "echo here".into(), "here"))?;
    // Until whoever looks out has looked through everything.
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
        *bytes += share(&pid)?;
    }
    let own = share("self")? - before;
    for (name, (many, bytes)) in &by_name {
        eprintln!("{name:<18} {many:>5} of {:>5} kB", bytes / many / 1024);
    }
    eprintln!("{:<18} {:>5} of {:>5} kB for each", "this program", 1, own / count as u64 / 1024);
    by_hands(all, |sandbox| Ok(block_on(sandbox.dispose()).map(drop)?))?;
    let helpers: u64 =
        by_name.iter().filter(|(name, _)| *name != "bash").map(|(_, (_, bytes))| bytes).sum();
    Ok((helpers + own) / count as u64)
}

/// How much memory is a process's own, with its part of what it shares.
fn share(pid: &str) -> Done<u64> {
    let found = kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
    found
        .map(|found| found * 1024)
        .ok_or_else(|| format!("the memory of process {pid} cannot be seen; only root can").into())
}

fn soak(provider: &LocalSandboxProvider, at: &Path, one_by_one: usize, many: usize) -> Done<()> {
    make_room()?;
    let begun = Instant::now();
    lives(provider, at, WARM)?;
    let mut broken = compare(&format!("{one_by_one} sandboxes, one after the other"), || {
        lives(provider, at, one_by_one)
    })?;
    at_once(provider, at, many)?;
    broken |= compare(&format!("{many} sandboxes at once, the second time"), || {
        at_once(provider, at, many)
    })?;
    println!("{:.1} s in all", begun.elapsed().as_secs_f64());
    if broken { Err("something is left".into()) } else { Ok(()) }
}

/// Tells what this program has before and after; answers whether that is more.
fn compare(what: &str, act: impl FnOnce() -> Done<()>) -> Done<bool> {
    let settled = Instant::now();
    while Holdings::now().threads > 1 && settled.elapsed() < LONG {
        thread::sleep(Duration::from_millis(5));
    }
    let (before, memory_before, begun) = (Holdings::now(), memory(), Instant::now());
    act()?;
    let (took, is_again, memory_after) = (begun.elapsed(), before.is_again(), memory());
    println!("{what}: {:.1} s", took.as_secs_f64());
    println!("  before {before:?}, {memory_before} kB");
    println!("  after  {:?}, {memory_after} kB", Holdings::now());
    Ok(!is_again || memory_after.saturating_sub(memory_before) > SLACK)
}
