//! A world: a home with a repository of one shape and its remotes, used bare or through ringfence.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use ringfence_testkit::{TestOutput, TestProject, TestUser};

use super::compare::{Stamps, State, TreeReader, add_outcome};
use super::shapes::{Shape, Through};
use crate::sessions::ringfence;

/// The script that makes what all shapes have.
const BASE: &str = include_str!("base.sh");

/// One of the two twins.
pub(super) struct World {
    shape: &'static Shape,
    project: TestProject,
    access: WorldAccess,
    reader: RefCell<TreeReader>,
    /// The files and indexes at the last look of the host's git, and its output.
    last_look: RefCell<(State, Stamps, State)>,
}

/// The way in which a world's commands run.
enum WorldAccess {
    /// On the host, without ringfence.
    Bare,
    /// Each by `ringfence run`.
    Runs,
    /// All in the session of this id.
    Session(String),
}

impl World {
    /// Makes a world whose commands run without ringfence.
    #[track_caller]
    pub(super) fn bare(shape: &'static Shape, user: TestUser) -> Self {
        let project = crate::project(user);
        make(shape, &project);
        Self::with(shape, project, WorldAccess::Bare)
    }

    /// Makes a copy of this world whose commands run inside.
    #[track_caller]
    pub(super) fn twin(&self) -> Self {
        let mut twin = Self::with(self.shape, crate::project(self.project.user), WorldAccess::Bare);
        twin.become_like(self);
        twin
    }

    fn with(shape: &'static Shape, project: TestProject, access: WorldAccess) -> Self {
        Self { shape, project, access, reader: RefCell::default(), last_look: RefCell::default() }
    }

    /// The directory that holds everything of this world, which differs between twins.
    fn base(&self) -> PathBuf {
        self.project.home().parent().expect("a home stands in a directory").to_owned()
    }

    /// The directory in which commands run.
    fn place(&self) -> PathBuf {
        self.project.root().join(self.shape.top).join(self.shape.place)
    }

    /// Runs `line` as the command number `step`, whose commits get a date of their own.
    pub(super) fn command(&self, step: usize, line: &str) -> State {
        let line = format!(
            "(\n{}cd \"$T/{}\" || exit 99\n{line}\n)",
            variables(self.shape, &self.project, step),
            self.shape.place
        );
        let ran = match &self.access {
            WorldAccess::Bare => self.project.sh_bare(&line),
            WorldAccess::Runs => TestOutput::run(
                self.project.ringfence().arg("run").args(opened(&self.project)).args(["-c", &line]),
                b"",
            ),
            WorldAccess::Session(id) => TestOutput::run(
                ringfence(&self.project).args(["session", "exec", id, "-c", &line]),
                b"",
            ),
        };
        let mut state = self.state();
        add_outcome(&mut state, &ran, &self.base());
        state
    }

    /// The state of the world on the host.
    pub(super) fn state(&self) -> State {
        let mut state = State::new();
        let (mut reader, mut last) = (self.reader.borrow_mut(), self.last_look.borrow_mut());
        let indexes = reader.add_tree(&mut state, &self.project.home().join("code"), &self.base());
        if last.0 != state || last.1 != indexes {
            *last = (state.clone(), indexes, self.look());
        }
        state.extend(last.2.clone());
        state
    }

    /// Output of git on the host about the repository.
    fn look(&self) -> State {
        let look = "export GIT_OPTIONAL_LOCKS=0; git status --porcelain=v2 --branch; git ls-files -s; [ ! -d .git/reftable ] || git for-each-ref";
        let looked = self.project.sh_bare(&format!("cd '{}' && {look}", self.place().display()));
        let mut outcome = State::new();
        add_outcome(&mut outcome, &looked, &self.base());
        outcome
            .into_iter()
            .map(|(name, content)| (format!("host's git, {name}"), content))
            .collect()
    }

    /// Ends the session, if there is one: the state then, what ringfence said, and the objects that
    /// git reaches.
    pub(super) fn end(&self) -> State {
        let said = self.stop();
        let mut state = self.state();
        state.insert("said at the end".into(), said);
        let place = self.project.root().join(self.shape.top).join(self.shape.place);
        let objects = self.project.sh_bare(&format!(
            "cd '{}' && {{ git rev-list --objects --all --reflog; git fsck; }} | sort",
            place.display()
        ));
        state.insert("objects".into(), objects.text());
        state
    }

    fn stop(&self) -> String {
        let WorldAccess::Session(id) = &self.access else { return String::new() };
        let stopped = TestOutput::run(ringfence(&self.project).args(["session", "stop", id]), b"");
        stopped.ok();
        stopped.stderr_text()
    }

    /// Makes this world a copy of `other`: at the beginning, and after a difference.
    #[track_caller]
    pub(super) fn become_like(&mut self, other: &World) {
        self.stop();
        copy_code(&self.project, &other.base(), &self.base(), &self.place());
        self.access = entered(self.shape, &self.project);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let WorldAccess::Session(id) = &self.access {
            let _ = ringfence(&self.project)
                .args(["session", "stop", id])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Replaces `home/code` and the user's git config of one world by another's, paths in git's files
/// included.
#[track_caller]
fn copy_code(project: &TestProject, from: &Path, to: &Path, place: &Path) {
    let (from, to) = (from.display(), to.display());
    let script = format!(
        "cd / && rm -rf {to}/home/code && cp -a {from}/home/code {from}/home/.gitconfig {to}/home/ && \
         find {to}/home/code -type f -size -64k '(' -path '*.git*' -o -path '*/.bare/*' ')' -not -path '*/objects/*' -not -name '*index*' \
         -exec grep -lZF {from}/ '{{}}' + | xargs -0r sed -i 's|{from}/|{to}/|g'
         cd {} && git update-index -q --refresh; git submodule --quiet foreach --recursive 'git update-index -q --refresh'; true",
        place.display()
    );
    TestOutput::run(project.command("/bin/sh").args(["-c", &script]).current_dir("/"), b"").ok();
}

/// Makes a world ready for commands inside.
#[track_caller]
fn entered(shape: &Shape, project: &TestProject) -> WorldAccess {
    if let Through::Runs = shape.through {
        return WorldAccess::Runs;
    }
    let runtime = project.home().join("run");
    if !runtime.exists() {
        project.make_directories(&runtime);
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))
            .expect("the directory was just made");
    }
    WorldAccess::Session(
        TestOutput::run(ringfence(project).args(["session", "start"]).args(opened(project)), b"")
            .ok(),
    )
}

/// Flags that open the remotes next to the project.
fn opened(project: &TestProject) -> Vec<String> {
    let remotes = [("--write", "origin.git"), ("--write", "lib.git"), ("--read", "inner.git")];
    let places = remotes.map(|(flag, name)| (flag, project.home().join("code").join(name)));
    let there = places.into_iter().filter(|(_, place)| place.exists());
    there.flat_map(|(flag, place)| [flag.to_owned(), place.display().to_string()]).collect()
}

/// Assignments that every script and command begins with.
fn variables(shape: &Shape, project: &TestProject, step: usize) -> String {
    let date = 1_700_000_000 + 60 * step;
    let top = project.root().join(shape.top);
    let file = shape.tracked.first().unwrap_or(&"README.md");
    format!(
        "export GIT_AUTHOR_DATE='{date} +0000' GIT_COMMITTER_DATE='{date} +0000' GIT_EDITOR=true GIT_PROGRESS_DELAY=9999\nT='{}' C='{}' F='{file}'\n",
        top.display(),
        project.home().join("code").display()
    )
}

/// Makes the repository, its remotes and its state.
#[track_caller]
fn make(shape: &Shape, project: &TestProject) {
    project.sh_bare("find . -mindepth 1 -delete; rm -rf ../other").ok();
    let tracked: String = shape.tracked.iter().map(|name| format!("'{name}' ")).collect();
    let root = project.root();
    let script = format!(
        "set -eu\n{}R='{}'\ntracked() {{ for f in {tracked}; do \"$@\" \"$f\"; done; }}\nlayout() {{\n:\n{}\n}}\nstate() {{\n:\n{}\n}}\n{BASE}",
        variables(shape, project, 0),
        root.display(),
        shape.layout,
        shape.state,
    );
    let ran = project.sh_bare(&script);
    assert!(ran.status == 0, "shape {}: {}\n{}", shape.name, ran.text(), ran.stderr_text());
}
