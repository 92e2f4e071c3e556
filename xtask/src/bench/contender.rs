//! Who is measured: the bare command, ringfence, and the sandboxes found here.

mod same;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::job::Job;
use super::scratch::Scratch;
use super::{Programs, machine};

/// A way to run a command.
pub(super) struct Contender {
    pub(super) name: &'static str,
    words: Words,
}

enum Words {
    Bare,
    Ringfence(PathBuf),
    /// Bubblewrap with the mounts of ringfence's own plan.
    Bubblewrap(PathBuf),
    /// Bubblewrap as people use it: few mounts, all of `/etc` readable, no secret hidden.
    Plain,
    /// A peer, and what goes before the command.
    Peer(&'static [&'static str]),
}

/// Peers that are measured if they are on PATH and run `true` as given here.
const PEERS: &[(&str, &[&str])] = &[
    ("srt", &["srt"]),
    ("codex", &["codex", "sandbox", "linux"]),
    ("nono", &["nono", "run", "--allow", ".", "--"]),
    ("sandlock", &["sandlock", "run", "--"]),
];

/// The contenders on this machine, and a note for each that cannot be measured.
pub(super) fn find(programs: &Programs, scratch: &Scratch) -> Result<(Vec<Contender>, Vec<String>), Box<dyn Error>> {
    let mut notes = Vec::new();
    let mut contenders = vec![
        Contender { name: "bare", words: Words::Bare },
        Contender { name: "ringfence", words: Words::Ringfence(programs.ringfence.clone()) },
    ];
    install_bubblewrap();
    let peers = PEERS.iter().map(|(name, words)| Contender { name, words: Words::Peer(words) });
    let bubblewraps = [
        Contender { name: "bwrap", words: Words::Bubblewrap(programs.ringfence.clone()) },
        Contender { name: "bwrap-few", words: Words::Plain },
    ];
    for contender in bubblewraps.into_iter().chain(peers) {
        if on_path(contender.program()).is_none() {
            notes.push(format!("{}: absent", contender.name));
            continue;
        }
        let tried = contender.command(&Job::whole(scratch.empty()?, &["true"])).stdin(Stdio::null()).output()?;
        if tried.status.success() {
            contenders.push(contender);
        } else {
            let said = String::from_utf8_lossy(&tried.stderr);
            notes.push(format!("{}: does not run `true` here: {}", contender.name, said.lines().next().unwrap_or("no message")));
        }
    }
    Ok((contenders, notes))
}

impl Contender {
    fn program(&self) -> &'static str {
        match self.words {
            Words::Bubblewrap(_) | Words::Plain => "bwrap",
            _ => self.name,
        }
    }

    /// Whether work inside is measured too; of the peers only the start is.
    pub(super) fn is_full(&self) -> bool {
        !matches!(self.words, Words::Peer(_) | Words::Plain)
    }

    /// `job` as this contender runs it.
    pub(super) fn command(&self, job: &Job) -> Command {
        let mut words: Vec<OsString> = match &self.words {
            Words::Bare => Vec::new(),
            Words::Ringfence(program) => {
                let reads = job.reads.iter().flat_map(|path| ["--read".into(), path.clone().into_os_string()]);
                [program.clone().into_os_string(), "run".into()].into_iter().chain(reads).chain(["--".into()]).collect()
            }
            Words::Bubblewrap(ringfence) => same::words(ringfence, job),
            Words::Plain => plain(job),
            Words::Peer(words) => words.iter().map(OsString::from).collect(),
        };
        words.extend(job.command.iter().map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&job.project);
        command
    }
}

/// Namespaces like ringfence's, and the few mounts that people usually write down.
fn plain(job: &Job) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"].map(OsString::from).to_vec();
    let mut say = |flag: &str, from: &Path, to: &Path| words.extend([flag.into(), from.as_os_str().into(), to.as_os_str().into()]);
    for system in ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"].map(Path::new) {
        match fs::read_link(system) {
            Ok(target) => say("--symlink", &target, system),
            Err(_) if system.exists() => say("--ro-bind", system, system),
            Err(_) => {}
        }
    }
    words.extend(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"].map(OsString::from));
    let mut say = |flag: &str, path: &Path| words.extend([flag.into(), path.as_os_str().into(), path.as_os_str().into()]);
    say("--bind", &job.project);
    job.reads.iter().for_each(|path| say("--ro-bind", path));
    words.extend(["--chdir".into(), job.project.clone().into_os_string(), "--".into()]);
    words
}

/// Best effort: without it the column is missing and the notes say so.
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

/// Where PATH finds `program`.
pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|directory| directory.join(program)).find(|path| path.is_file())
}
