//! Many sandboxes in one program, more than have a watcher of their own.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use ringfence::{SandboxBackend, SessionProvider, block_on};
use ringfence_testkit::{SECRET, becomes_true, signal};

use crate::many::below;
use crate::stage::{LONG, children, open, part, says};

/// More than have their own inotify instance.
const MANY: usize = 14;

/// Waits until a secret that the host has just created is masked in a sandbox.
#[track_caller]
fn is_shut(sandbox: &dyn SandboxBackend, path: &str) {
    let line = format!(
        "for i in $(seq 2000); do cat {path} >/dev/null 2>&1 || break; sleep 0.01; done; cat {path} 2>&1 >/dev/null"
    );
    let result = sandbox.execute_blocking(line.as_str().into()).unwrap();
    assert!(result.stdout.text().contains("Permission denied"), "{path}: {result:?}");
}

fn open_many(provider: &SessionProvider, at: &Path) -> Vec<Arc<dyn SandboxBackend>> {
    let all: Vec<_> = (0..MANY).map(|_| open(provider, at)).collect();
    // The watcher starts once a sandbox has lived for a moment.
    assert!(
        becomes_true(LONG, || helpers("--watcher").len() == MANY),
        "{:?}",
        helpers("--watcher")
    );
    all
}

/// This process's helpers with the given argument.
fn helpers(word: &str) -> Vec<String> {
    let is_one = |pid: &String| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| words == format!("ringfence-supervisor\0{word}\0").as_bytes())
    };
    children("self").into_iter().filter(is_one).collect()
}

/// The number of inotify instances of this program's processes.
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
    /// Promise: live-deny
    #[test]
    fn new_secret_is_masked_in_every_one_of_many_sandboxes(at) {
        let provider = SessionProvider::default();
        fs::create_dir_all(at.join("old/deep")).unwrap();
        let mut all = open_many(&provider, at);
        assert_eq!(helpers("--inotify-broker").len(), 1);
        let shut = |all: &[Arc<dyn SandboxBackend>], path: &str| {
            fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            fs::write(at.join(path), SECRET).unwrap();
            all.iter().for_each(|sandbox| is_shut(&**sandbox, path));
        };
        shut(&all, "one.pem");
        shut(&all, "old/deep/two.pem");
        shut(&all, "new/deeper/three.pem");
        // A shared watch stays for the remaining sandboxes.
        for sandbox in all.drain(MANY - 3..) {
            block_on(sandbox.dispose()).unwrap();
        }
        shut(&all, "old/deep/four.pem");
        // A recreated directory has another inode.
        fs::remove_dir_all(at.join("old")).unwrap();
        shut(&all, "old/deep/five.pem");
        all.push(open(&provider, at));
        shut(&all, "old/six.pem");
        // Overflows the inotify queue.
        fs::create_dir(at.join("flood")).unwrap();
        let long = "long".repeat(50);
        (0..5_000).for_each(|number| drop(fs::File::create(at.join(format!("flood/{long}{number}"))).unwrap()));
        shut(&all, "flood/seven.pem");
        all.iter().for_each(|sandbox| drop(block_on(sandbox.dispose()).unwrap()));
        drop(all);
        assert!(becomes_true(LONG, || children("self").is_empty()), "{:?}", children("self"));
    }

    #[test]
    fn sandboxes_share_inotify_instances(at) {
        let all = open_many(&SessionProvider::default(), at);
        // Only root sees the instances of all processes.
        assert!(instances() < MANY, "{}", instances());
        assert_eq!(says(all[MANY - 1].execute_blocking("echo works".into())), "works");
    }

    /// Promise: live-deny
    #[test]
    fn killed_relay_ends_its_sandboxes_and_the_next_get_another(at) {
        let provider = SessionProvider::default();
        let all = open_many(&provider, at);
        let relay = helpers("--inotify-broker").remove(0);
        all[MANY - 1].execute_blocking("KEPT=yes".into()).unwrap();
        signal(relay.parse().unwrap(), 9);
        // Without the relay no process would report new secrets: the sandbox ends, and another
        // replaces it.
        let last = || all[MANY - 1].execute_blocking("echo kept: $KEPT".into());
        assert!(becomes_true(LONG, || last().is_ok_and(|result| result.stdout.text() == "kept:\n")), "{:?}", last());
        assert_eq!(says(all[0].execute_blocking("echo works".into())), "works");
        let anew = open(&provider, at);
        fs::write(at.join("late.pem"), SECRET).unwrap();
        is_shut(&*anew, "late.pem");
    }

    /// Promise: no-growth
    #[test]
    fn killed_program_with_many_sandboxes_leaves_nothing(at) {
        let mut program = part("crowd", at).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(program.stdout.take().unwrap()), &mut said).unwrap();
        let pids: Vec<String> = below(&program.id().to_string());
        assert!(pids.len() > 4 * MANY, "{pids:?}");
        program.kill().unwrap();
        program.wait().unwrap();
        // Zombies are reaped by the process that inherits them.
        let is_there = |pid: &String| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        assert!(becomes_true(std::time::Duration::from_secs(1), || !pids.iter().any(is_there)), "{:?}", pids.iter().filter(|pid| is_there(pid)).collect::<Vec<_>>());
    }
}

/// A program with many sandboxes.
pub(crate) fn crowd() -> Result<(), Box<dyn std::error::Error>> {
    let _all = open_many(&SessionProvider::default(), &std::env::current_dir()?);
    println!("ready");
    std::thread::sleep(LONG);
    Ok(())
}
