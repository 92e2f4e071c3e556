//! Sandboxes beside others in one program, more than have somebody of their own who watches.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use ringfence::{LocalSandboxProvider, SandboxBackend, block_on};
use ringfence_testkit::{SECRET, signal, soon};

use crate::many::below;
use crate::stage::{LONG, children, open, part, says};

/// More than watch for themselves.
const MANY: usize = 14;

/// Waits until a secret that the host has just made is shut in a sandbox.
#[track_caller]
fn is_shut(sandbox: &dyn SandboxBackend, path: &str) {
    let line = format!(
        "for i in $(seq 2000); do cat {path} >/dev/null 2>&1 || break; sleep 0.01; done; cat {path} 2>&1 >/dev/null"
    );
    let result = sandbox.execute_blocking(line.as_str().into()).unwrap();
    assert!(result.stdout.text().contains("Permission denied"), "{path}: {result:?}");
}

fn stand(provider: &LocalSandboxProvider, at: &Path) -> Vec<Arc<dyn SandboxBackend>> {
    let all: Vec<_> = (0..MANY).map(|_| open(provider, at)).collect();
    // Somebody looks out once one has stood for a moment.
    assert!(soon(LONG, || helpers("--lookout").len() == MANY), "{:?}", helpers("--lookout"));
    all
}

/// Our helpers that were told this word.
fn helpers(word: &str) -> Vec<String> {
    let is_one = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words == format!("ringfence-warden\0{word}\0").as_bytes())
    };
    children("self").into_iter().filter(is_one).collect()
}

/// How many inotify instances this program's processes have.
fn instances() -> usize {
    let descriptors = below("self")
        .into_iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten());
    descriptors
        .filter(|one| {
            fs::read_link(one.path()).is_ok_and(|to| to.as_os_str() == "anon_inode:inotify")
        })
        .count()
}

tests! { "crowd":
    /// Promise: P35
    #[test]
    fn what_appears_is_shut_in_every_one_of_many(at) {
        let provider = LocalSandboxProvider::default();
        fs::create_dir_all(at.join("old/deep")).unwrap();
        let mut all = stand(&provider, at);
        assert_eq!(helpers("--relay").len(), 1);
        let shut = |all: &[Arc<dyn SandboxBackend>], path: &str| {
            fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            fs::write(at.join(path), SECRET).unwrap();
            all.iter().for_each(|sandbox| is_shut(&**sandbox, path));
        };
        shut(&all, "one.pem");
        shut(&all, "old/deep/two.pem");
        shut(&all, "new/deeper/three.pem");
        // What several watch stays watched for those that stay.
        for sandbox in all.drain(MANY - 3..) {
            block_on(sandbox.dispose()).unwrap();
        }
        shut(&all, "old/deep/four.pem");
        // A directory of the same name is another one.
        fs::remove_dir_all(at.join("old")).unwrap();
        shut(&all, "old/deep/five.pem");
        all.push(open(&provider, at));
        shut(&all, "old/six.pem");
        // More than anybody can be told one by one.
        fs::create_dir(at.join("flood")).unwrap();
        let long = "long".repeat(50);
        (0..5_000).for_each(|number| drop(fs::File::create(at.join(format!("flood/{long}{number}"))).unwrap()));
        shut(&all, "flood/seven.pem");
        all.iter().for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        drop(all);
        assert!(soon(LONG, || children("self").is_empty()), "{:?}", children("self"));
    }

    #[test]
    fn fewer_instances_are_taken_than_there_are_sandboxes(at) {
        let all = stand(&LocalSandboxProvider::default(), at);
        // Those of processes that cannot be looked into are not seen, but by root.
        assert!(instances() < MANY, "{}", instances());
        assert_eq!(says(all[MANY - 1].execute_blocking("echo works".into())), "works");
    }

    /// Promise: P35
    #[test]
    fn a_relay_that_is_killed_ends_those_that_it_watched_for_and_the_next_get_another(at) {
        let provider = LocalSandboxProvider::default();
        let all = stand(&provider, at);
        let relay = helpers("--relay").remove(0);
        all[MANY - 1].execute_blocking("KEPT=yes".into()).unwrap();
        signal(relay.parse().unwrap(), 9);
        // No process would tell what appears in it: it ends, and another takes its place.
        let last = || all[MANY - 1].execute_blocking("echo kept: $KEPT".into());
        assert!(soon(LONG, || last().is_ok_and(|result| result.stdout.text() == "kept:\n")), "{:?}", last());
        assert_eq!(says(all[0].execute_blocking("echo works".into())), "works");
        let anew = open(&provider, at);
        fs::write(at.join("late.pem"), SECRET).unwrap();
        is_shut(&*anew, "late.pem");
    }

    /// Promise: P59
    #[test]
    fn a_program_with_very_many_that_is_killed_leaves_nothing(at) {
        let mut program = part("crowd", at).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(program.stdout.take().unwrap()), &mut said).unwrap();
        let pids: Vec<String> = below(&program.id().to_string());
        assert!(pids.len() > 4 * MANY, "{pids:?}");
        program.kill().unwrap();
        program.wait().unwrap();
        // Zombies are for whoever inherits them to reap.
        let is_there = |pid: &String| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(soon(std::time::Duration::from_secs(1), || !pids.iter().any(is_there)), "{:?}", pids.iter().filter(|pid| is_there(pid)).collect::<Vec<_>>());
    }
}

/// A program with many sandboxes.
pub(crate) fn crowd() -> Result<(), Box<dyn std::error::Error>> {
    let _all = stand(&LocalSandboxProvider::default(), &std::env::current_dir()?);
    println!("ready");
    std::thread::sleep(LONG);
    Ok(())
}
