//! Large projects.

use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestProject, TestUser};

use crate::project;

/// Promise: project-secrets
#[test]
fn sixty_thousand_secrets_are_denied_in_good_time() {
    // Made once for both users, since making the files is slow.
    let mut made: Option<TestProject> = None;
    for user in TestUser::all() {
        let project = project(*user);
        match made.take() {
            Some(before) => std::fs::rename(before.at("keys"), project.at("keys"))
                .expect("both are on one file system"),
            None => make(&project.at("keys")),
        }
        let (uid, gid) = user.ids();
        let given = std::process::Command::new("chown")
            .args(["-R", &format!("{uid}:{gid}")])
            .arg(project.at("keys"))
            .status();
        assert!(given.is_ok_and(|status| status.success()));
        let line = "for n in 0 500 999; do for d in 0 30 59; do cat keys/$d/$n.pem 2>/dev/null && echo open; done; done; (: > keys/3/new.pem) 2>/dev/null && echo open; rm -f keys/3/new.pem; cat README";
        assert_eq!(
            project.sh_bare(line).ok().matches("open").count(),
            10,
            "the probe cannot succeed"
        );
        let begun = Instant::now();
        let said = project.sh(line).ok();
        let took = begun.elapsed();
        eprintln!("{took:?} as {user}");
        assert_eq!(said, "hello", "as {user}");
        // An optimised build takes two seconds; a quadratic walk would take hours.
        assert!(took < Duration::from_secs(60), "{took:?} as {user}");
        made = Some(project);
    }
}

fn make(keys: &Path) {
    for directory in 0..60 {
        let directory = keys.join(directory.to_string());
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        for file in 0..1000 {
            std::fs::write(directory.join(format!("{file}.pem")), "")
                .expect("a file can be written");
        }
    }
}
