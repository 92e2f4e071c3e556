//! The contenders: the bare command, ringfence, and the sandboxes found on this host.

mod same;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::job::Job;
use super::scratch::BenchScratch;
use super::{BenchPrograms, machine};

/// A way to run a command.
pub(super) struct Contender {
    pub(super) name: &'static str,
    words: Words,
}

enum Words {
    Bare,
    Ringfence(PathBuf),
    /// ringfence without access to `/dev/fuse`, so without reports of reads.
    NoTripwire(PathBuf),
    /// Bubblewrap with the mounts of ringfence's own plan.
    Bubblewrap(PathBuf),
    /// bwrap with the same mounts and a seccomp filter, from this file, that allows everything: the
    /// cost of any filter.
    Filtered(PathBuf, PathBuf),
    /// The bare command with a notify handler that allows every created file: the cost of the
    /// notifications alone.
    NotifyOnly(PathBuf),
    /// bwrap in its usual form: few mounts, all of `/etc` readable, no secret hidden.
    Plain,
    /// A peer, and the words before the command.
    Peer(&'static [&'static str]),
}

/// Peers that are measured if they are on PATH and run `true` with these words.
const PEERS: &[(&str, &[&str])] = &[
    ("srt", &["srt"]),
    ("codex", &["codex", "sandbox", "linux"]),
    ("nono", &["nono", "run", "--allow", ".", "--"]),
    ("sandlock", &["sandlock", "run", "--"]),
];

/// The contenders on this host, and a note for each that cannot be measured.
pub(super) fn find(
    programs: &BenchPrograms,
    scratch: &BenchScratch,
) -> Result<(Vec<Contender>, Vec<String>), Box<dyn Error>> {
    let mut notes = Vec::new();
    let mut contenders = vec![
        Contender { name: "bare", words: Words::Bare },
        Contender { name: "ringfence", words: Words::Ringfence(programs.ringfence.clone()) },
    ];
    install_bubblewrap();
    let peers = PEERS.iter().map(|(name, words)| Contender { name, words: Words::Peer(words) });
    let bubblewraps = [
        Contender { name: "bwrap", words: Words::Bubblewrap(programs.ringfence.clone()) },
        Contender {
            name: "bwrap-filter",
            words: Words::Filtered(programs.ringfence.clone(), scratch.filter()?),
        },
        Contender { name: "bwrap-few", words: Words::Plain },
    ];
    match without_tripwire(&programs.ringfence, scratch)? {
        Ok(contender) => contenders.push(contender),
        Err(why) => notes.push(format!("no-tripwire: {why}")),
    }
    for contender in bubblewraps.into_iter().chain(peers) {
        if on_path(contender.program()).is_none() {
            notes.push(format!("{}: absent", contender.name));
            continue;
        }
        let output = contender
            .command(&Job::whole(scratch.empty()?, &["true"]))
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            contenders.push(contender);
        } else {
            let stderr = String::from_utf8_lossy(&output.stderr);
            notes.push(format!(
                "{}: does not run `true` here: {}",
                contender.name,
                stderr.lines().next().unwrap_or("no message")
            ));
        }
    }
    Ok((contenders, notes))
}

/// The bare command with notifications of created files.
pub(super) fn notify_only(program: PathBuf) -> Contender {
    Contender { name: "notify-only", words: Words::NotifyOnly(program) }
}

/// Another build of ringfence.
pub(super) fn before(program: PathBuf) -> Contender {
    Contender { name: BEFORE, words: Words::Ringfence(program) }
}

/// The name of another build of ringfence in the tables.
pub(super) const BEFORE: &str = "before";

impl Contender {
    fn program(&self) -> &'static str {
        match self.words {
            Words::Bubblewrap(_) | Words::Filtered(..) | Words::Plain => "bwrap",
            _ => self.name,
        }
    }

    /// True if work inside is measured too; for peers only the start is.
    pub(super) fn is_full(&self) -> bool {
        !matches!(self.words, Words::Peer(_) | Words::Plain | Words::NoTripwire(_))
    }

    /// True for ringfence without its tripwire.
    pub(super) fn is_without_tripwire(&self) -> bool {
        matches!(self.words, Words::NoTripwire(_))
    }

    /// True for the contender that confines nothing and measures only notifications.
    pub(super) fn is_notify_only(&self) -> bool {
        matches!(self.words, Words::NotifyOnly(_))
    }

    /// `job` as a command of this contender.
    pub(super) fn command(&self, job: &Job) -> Command {
        let mut words: Vec<OsString> = match &self.words {
            _ if job.timing.knows_all() => Vec::new(),
            Words::Bare => Vec::new(),
            Words::NotifyOnly(program) => vec![program.into()],
            Words::Ringfence(program) => ringfence(program, job),
            Words::NoTripwire(program) => {
                without_fuse().into_iter().chain(ringfence(program, job)).collect()
            }
            Words::Bubblewrap(ringfence) => same::words(ringfence, job),
            Words::Filtered(ringfence, filter) => filtered(filter)
                .into_iter()
                .chain(same::words(ringfence, job).into_iter().skip(1))
                .collect(),
            Words::Plain => plain(job),
            Words::Peer(words) => words.iter().map(OsString::from).collect(),
        };
        words.extend(job.command.iter().map(OsString::from));
        words.extend(job.timing.knows_all().then(|| self.name.into()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&job.project);
        command
    }
}

fn ringfence(program: &Path, job: &Job) -> Vec<OsString> {
    let reads = job.reads.iter().flat_map(|path| ["--read".into(), path.clone().into_os_string()]);
    let flags = job.flags.iter().map(OsString::from);
    [program.as_os_str().to_owned(), "run".into()]
        .into_iter()
        .chain(reads)
        .chain(flags)
        .chain(["--".into()])
        .collect()
}

/// bwrap with a seccomp filter, which it reads from an fd.
fn filtered(filter: &Path) -> Vec<OsString> {
    const SCRIPT: &str = "exec bwrap --seccomp 9 \"$@\" 9<\"$0\"";
    ["sh".into(), "-c".into(), SCRIPT.into(), filter.as_os_str().to_owned()].to_vec()
}

/// The words before a command that make `/dev/fuse` inaccessible, in a mount namespace.
fn without_fuse() -> Vec<OsString> {
    const DISABLE_FUSE: &str =
        "mount --bind /dev/fuse /dev/fuse && mount -o remount,bind,nodev /dev/fuse && exec \"$@\"";
    let namespaces = if machine::is_root() { "-m" } else { "-rm" };
    ["unshare", namespaces, "sh", "-c", DISABLE_FUSE, "sh"].map(OsString::from).to_vec()
}

/// ringfence without its tripwire, if it has one that can be disabled; else the reason.
fn without_tripwire(
    ringfence: &Path,
    scratch: &BenchScratch,
) -> Result<Result<Contender, &'static str>, Box<dyn Error>> {
    let is_watched = |before: &[OsString]| -> Result<bool, Box<dyn Error>> {
        let words =
            [before, &[ringfence.as_os_str().to_owned(), "plan".into(), "--json".into()]].concat();
        let plan = Command::new(&words[0])
            .args(&words[1..])
            .current_dir(scratch.empty()?)
            .stdin(Stdio::null())
            .output()?;
        let plan: Value = serde_json::from_slice(&plan.stdout)?;
        Ok(plan["detail"]
            .as_array()
            .is_some_and(|steps| steps.iter().any(|step| step == "Tripwire")))
    };
    if !is_watched(&[])? {
        return Ok(Err("/dev/fuse is not accessible, so there is nothing to compare"));
    }
    if !matches!(is_watched(&without_fuse()), Ok(false)) {
        return Ok(Err("/dev/fuse cannot be hidden here"));
    }
    Ok(Ok(Contender { name: "no-tripwire", words: Words::NoTripwire(ringfence.to_owned()) }))
}

/// Namespaces like ringfence's, and the few mounts of a typical bwrap call.
fn plain(job: &Job) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
            .map(OsString::from)
            .to_vec();
    let mut add = |flag: &str, from: &Path, to: &Path| {
        words.extend([flag.into(), from.as_os_str().into(), to.as_os_str().into()])
    };
    for system in
        ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"].map(Path::new)
    {
        match fs::read_link(system) {
            Ok(target) => add("--symlink", &target, system),
            Err(_) if system.exists() => add("--ro-bind", system, system),
            Err(_) => {}
        }
    }
    words.extend(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"].map(OsString::from));
    let mut add = |flag: &str, path: &Path| {
        words.extend([flag.into(), path.as_os_str().into(), path.as_os_str().into()])
    };
    add("--bind", &job.project);
    job.reads.iter().for_each(|path| add("--ro-bind", path));
    words.extend(["--chdir".into(), job.project.clone().into_os_string(), "--".into()]);
    words
}

/// Best effort: if it fails, the column is missing and the notes say so.
fn install_bubblewrap() {
    if on_path("bwrap").is_some() || !machine::is_root() || on_path("apt-get").is_none() {
        return;
    }
    eprintln!("bench: installing bubblewrap");
    for words in [["update", "-qq"].as_slice(), &["install", "-y", "-qq", "bubblewrap"]] {
        let _ = Command::new("apt-get")
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
    }
}

/// The path of `program` on PATH.
pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}
