//! What an unfinished rebase has still to do. `git rebase --continue`, which git's own status
//! proposes, runs the lines that say `exec`.

use std::collections::HashSet;

use ringfence_policy::AbsPath;
use rustix::fs::FileType;

use super::held::{self, Held, Mounts, Want, kind};
use super::{Sweep, listed};

const DIRECTORY: &str = "rebase-merge";
const TODO: &str = "git-rebase-todo";

/// The lines of a git directory's unfinished rebase that run programs.
pub(super) fn programs(git: &Held) -> HashSet<Vec<u8>> {
    let text = rebase(git).and_then(|rebase| held::read(&rebase, TODO).ok()).unwrap_or_default();
    lines(&text).filter(|line| is_program(line)).map(<[u8]>::to_vec).collect()
}

impl Sweep<'_> {
    /// Takes out the lines that were not there before.
    pub(super) fn todo(&mut self, git: &Held, path: &AbsPath) {
        let path = path.join(DIRECTORY).join(TODO);
        let Some(rebase) = rebase(git) else { return };
        match kind(&rebase, TODO) {
            None => return,
            Some(FileType::RegularFile) => {}
            Some(_) => return self.move_away(&rebase, TODO, &path, "is not a plain file"),
        }
        let Ok(text) = held::read(&rebase, TODO) else { return self.move_away(&rebase, TODO, &path, "cannot be read") };
        let is_new = |line: &&[u8]| is_program(line) && !self.ground.programs.contains(*line);
        let dropped: Vec<String> = lines(&text).filter(is_new).map(|line| String::from_utf8_lossy(line).trim().to_owned()).collect();
        if !dropped.is_empty() {
            let kept = lines(&text).filter(|line| !is_new(line)).collect::<Vec<_>>().concat();
            self.replace(&rebase, TODO, &path, &kept, &format!("makes git rebase run programs: {}", listed(&dropped)));
        }
    }
}

fn rebase(git: &Held) -> Option<Held> {
    held::enter(git, DIRECTORY, Want::Look, Mounts::Cross).ok()
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn is_program(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start().split(u8::is_ascii_whitespace).next(), Some(b"exec" | b"x"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn programs_are_told_from_commits() {
        for line in ["exec make", "x make\n", " \texec\tmake", "x"] {
            assert!(super::is_program(line.as_bytes()), "{line:?}");
        }
        for line in ["pick 1234 exec", "# exec make", "xyz", "", "\n", "drop x"] {
            assert!(!super::is_program(line.as_bytes()), "{line:?}");
        }
    }
}
