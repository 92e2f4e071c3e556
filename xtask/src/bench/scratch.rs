//! The measured projects: created once, identical on every host, removed at the end.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use super::BenchPrograms;

type ScratchPath = Result<PathBuf, Box<dyn Error>>;

const FILES: usize = 5_000;
const KEYS: usize = 60_000;
/// Longer than the second for which git distrusts file times.
const INDEX_AGE: Duration = Duration::from_millis(1_100);
/// Create and delete on ext4 vary tenfold between runs, so rows that create files run in memory.
const MEMORY: &str = "/dev/shm";
/// The prefix of a scratch directory, followed by the pid of its process.
const PREFIX: &str = "ringfence-bench-";

/// Directories of this run.
pub(super) struct BenchScratch {
    disk: PathBuf,
    memory: PathBuf,
}

impl BenchScratch {
    /// A directory on a disk.
    pub(super) fn disk(&self) -> &Path {
        &self.disk
    }

    pub(super) fn create() -> Result<BenchScratch, Box<dyn Error>> {
        let name = format!("{PREFIX}{}", std::process::id());
        for parent in [std::env::temp_dir().as_path(), Path::new(MEMORY)] {
            remove_abandoned(parent);
        }
        let disk = std::env::temp_dir().join(&name);
        let memory = if Path::new(MEMORY).is_dir() {
            Path::new(MEMORY).join(&name)
        } else {
            disk.join("memory")
        };
        for directory in [&disk, &memory] {
            fs::create_dir_all(directory)
                .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        }
        Ok(BenchScratch { disk, memory })
    }

    /// A project without files.
    pub(super) fn empty(&self) -> ScratchPath {
        once(self.disk.join("empty"), |_| Ok(()))
    }

    /// A policy that sets proxy environment variables.
    pub(super) fn proxied(&self) -> ScratchPath {
        let directory = once(self.disk.join("policy"), |directory| {
            fs::write(
                directory.join("proxied.toml"),
                "version = 1\n[network]\nproxy-variables = true\n",
            )?;
            Ok(())
        })?;
        Ok(directory.join("proxied.toml"))
    }

    /// A seccomp filter of one instruction that allows everything.
    pub(super) fn filter(&self) -> ScratchPath {
        const RETURN: u16 = 0x06;
        const ALLOW: u32 = 0x7fff_0000;
        let path = self.disk.join("filter");
        let instruction = [RETURN.to_ne_bytes().as_slice(), &[0, 0], &ALLOW.to_ne_bytes()].concat();
        fs::write(&path, instruction)?;
        Ok(path)
    }

    /// 5,000 files of text in 50 directories.
    pub(super) fn tree(&self) -> ScratchPath {
        once(self.disk.join("tree"), |project| {
            let mut random = Xorshift::new();
            files(project, |_| {
                // The cube of an even distribution: 10 KB on average, many small files, few large
                // ones.
                let part = random.next() as f64 / f64::from(u32::MAX);
                let size = 200 + (39_800.0 * part.powi(3)) as usize;
                text(&mut random, size)
            })
        })
    }

    /// The same files, committed.
    pub(super) fn repository(&self) -> ScratchPath {
        let project = self.tree()?;
        if !project.join(".git").exists() {
            git(&project, &["init", "--quiet"])?;
            git(&project, &["add", "--all"])?;
            git(
                &project,
                &[
                    "-c",
                    "user.name=bench",
                    "-c",
                    "user.email=bench@localhost",
                    "commit",
                    "--quiet",
                    "--message",
                    "files",
                ],
            )?;
            // git reads entries that are as young as the index again each time: wait, then refresh.
            thread::sleep(INDEX_AGE);
            fs::File::options()
                .append(true)
                .open(project.join("src/d0/f0.txt"))?
                .set_modified(SystemTime::now())?;
            thread::sleep(INDEX_AGE);
            git(&project, &["status", "--short"])?;
        }
        Ok(project)
    }

    /// One large file for a compiler of either language.
    pub(super) fn sources(&self) -> ScratchPath {
        once(self.disk.join("sources"), |project| {
            let mut c = String::from("unsigned f0(unsigned x) { return x; }\n");
            let mut rust = String::from("pub fn f0(x: u32) -> u32 { x }\n");
            for n in 1..1_000 {
                let before = n - 1;
                writeln!(
                    c,
                    "unsigned f{n}(unsigned x) {{\n    for (unsigned i = 0; i < {n}; i++) x = x * {n}u + (x >> 3);\n    return f{before}(x);\n}}"
                )?;
                writeln!(
                    rust,
                    "pub fn f{n}(mut x: u32) -> u32 {{\n    for _ in 0..{n} {{ x = x.wrapping_mul({n}) + (x >> 3); }}\n    f{before}(x)\n}}"
                )?;
            }
            fs::write(project.join("big.c"), c)?;
            Ok(fs::write(project.join("big.rs"), rust)?)
        })
    }

    /// In memory: archives of 5,000 realistic and of 5,000 tiny files.
    pub(super) fn archives(&self) -> ScratchPath {
        let tree = self.tree()?;
        once(self.memory.join("archives"), |project| {
            let tiny = self.memory.join("tiny");
            fs::create_dir(&tiny)?;
            files(&tiny, |index| index.to_string())?;
            tar(&["-czf"], &project.join("files.tar.gz"), &tree)?;
            tar(&["-cf"], &project.join("tiny.tar"), &tiny)
        })
    }

    /// In memory: 60,000 files whose names a built-in pattern denies.
    pub(super) fn keys(&self) -> ScratchPath {
        once(self.memory.join("keys"), |project| {
            for index in 0..KEYS {
                let directory = project.join(format!("d{}", index / 1_000));
                if index % 1_000 == 0 {
                    fs::create_dir(&directory)?;
                    fs::write(directory.join("readme.txt"), "not a key\n")?;
                }
                fs::write(directory.join(format!("f{index}.pem")), "key\n")?;
            }
            Ok(())
        })
    }

    /// A copy of the probe outside the build directory.
    pub(super) fn probe(&self, programs: &BenchPrograms) -> ScratchPath {
        let copy = self.disk.join("probe");
        if !copy.exists() {
            fs::copy(programs.probe.path()?, &copy)?;
        }
        Ok(copy)
    }
}

impl Drop for BenchScratch {
    fn drop(&mut self) {
        for directory in [&self.memory, &self.disk] {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Removes leftovers of an interrupted run: a hundred megabytes of memory.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .and_then(|owner| owner.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new(&format!("/proc/{owner}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Creates `project` unless an earlier row did.
fn once(project: PathBuf, fill: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>) -> ScratchPath {
    if !project.exists() {
        fs::create_dir(&project)?;
        fill(&project)?;
    }
    Ok(project)
}

fn files(project: &Path, mut content: impl FnMut(usize) -> String) -> Result<(), Box<dyn Error>> {
    for index in 0..FILES {
        let directory = project.join(format!("src/d{}", index / 100));
        if index % 100 == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(format!("f{index}.txt")), content(index))?;
    }
    Ok(())
}

fn git(project: &Path, words: &[&str]) -> Result<(), Box<dyn Error>> {
    run(Command::new("git").args(words).current_dir(project))
}

fn tar(flags: &[&str], archive: &Path, from: &Path) -> Result<(), Box<dyn Error>> {
    run(Command::new("tar").args(flags).arg(archive).arg("-C").arg(from).arg("src"))
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// Lines of words, about `size` bytes.
fn text(random: &mut Xorshift, size: usize) -> String {
    const WORDS: &[&str] = &[
        "ask", "bind", "call", "deny", "edge", "file", "grant", "host", "init", "jail", "kernel",
        "line", "mount", "name", "open", "path", "quota", "rule", "scope", "tree", "user", "value",
        "wall", "yield", "zone", "let", "mut", "pub", "return", "self", "match", "struct",
    ];
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        let roll = random.next() as usize;
        text.push_str(WORDS[roll % WORDS.len()]);
        write!(text, "{}", roll / WORDS.len() % 100).expect("writing to a string succeeds");
        text.push(if roll.is_multiple_of(9) { '\n' } else { ' ' });
    }
    text
}

/// Reproducible pseudo-random numbers.
struct Xorshift(u32);

impl Xorshift {
    fn new() -> Xorshift {
        Xorshift(2_463_534_242)
    }

    /// Marsaglia's xorshift.
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}
