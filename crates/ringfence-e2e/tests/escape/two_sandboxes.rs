//! Two sandboxes of one project at the same time: each has its own notify handler, and neither may
//! act between the other's check and its syscall.

use std::path::Path;

use ringfence_testkit::{TestOutput, TestProject, compile, each_user, repetitions};

use crate::project;

/// Run as `PROGRAM WAY SIDE SECONDS`, once for each side. Side `move` prints how often it moved
/// something, and `came` if something arrived with it that must not.
const RACE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int make(const char *name) { int f = open(name, O_CREAT | O_WRONLY, 0644); if (f >= 0) close(f); return f >= 0; }
int main(int argc, char **argv) {
    int is_link = !strcmp(argv[1], "link"), moves = !strcmp(argv[2], "move"), moved = 0;
    double end = now() + atof(argv[3]);
    struct stat found;
    while (now() < end) {
        if (is_link && !moves)
            renameat2(AT_FDCWD, "x", AT_FDCWD, "l", RENAME_EXCHANGE);
        else if (is_link && !rename("x", ".git/COMMIT_EDITMSG")) {
            moved++;
            if (!lstat(".git/COMMIT_EDITMSG", &found) && S_ISLNK(found.st_mode)) { puts("came"); return 1; }
            make("x");
        } else if (!is_link && !moves) {
            make("node_modules/d/.env");
            unlink("node_modules/d/.env");
        } else if (!is_link && !rename("node_modules/d", "d")) {
            moved++;
            if (!lstat("d/.env", &found)) { puts("came"); return 1; }
            rename("d", "node_modules/d");
        }
    }
    printf("%d\n", moved);
    return 0;
}
"#;

/// Runs both sides, each as its own command; returns the output of the side that moves.
fn race(
    project: &TestProject,
    program: &Path,
    way: &str,
    run: impl Fn(&[&str]) -> TestOutput + Sync,
) -> String {
    let seconds = repetitions(2, 20).to_string();
    let program = program.to_str().expect("a path of letters");
    project.sh_bare("rm -rf x l d .git/COMMIT_EDITMSG node_modules; echo >x; ln -s README l; mkdir -p node_modules/d").ok();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&[program, way, "change", &seconds]).ok());
        let moved = run(&[program, way, "move", &seconds]).text();
        other.join().expect("the other side ends");
        moved.trim().to_owned()
    })
}

/// Promise: two-sandboxes
#[test]
fn concurrent_sandboxes_cannot_move_unchecked_links_and_secrets() {
    each_user(|user| {
        let project = project(user);
        let Some(program) = compile(&project, "race", RACE) else { return };
        project.sh_bare("git init -q").ok();
        for way in ["link", "secret"] {
            let moved =
                race(&project, &program, way, |words| project.run(["--"].iter().chain(words)));
            assert!(moved.parse::<u32>().is_ok_and(|moved| moved > 20), "{way}: {moved}");
            // Without ringfence it arrives: the race is real.
            let bare =
                |words: &[&str]| TestOutput::run(project.command(words[0]).args(&words[1..]), b"");
            assert_eq!(
                race(&project, &program, way, bare),
                "came",
                "{way}: the probe cannot succeed"
            );
        }
    });
}
