//! Large projects.

use std::time::{Duration, Instant};

use ringfence_testkit::each_user;

use crate::project;

#[test]
fn sixty_thousand_secrets_are_denied_in_good_time() {
    each_user(|user| {
        let project = project(user);
        for directory in 0..60 {
            let directory = project.at(format!("keys/{directory}"));
            project.make_directories(&directory);
            for file in 0..1000 {
                std::fs::write(directory.join(format!("{file}.pem")), "s").expect("a file can be written");
            }
        }
        if user == ringfence_testkit::As::User {
            std::process::Command::new("chown").args(["-R", &format!("{}:{}", user.ids().0, user.ids().1)]).arg(project.at("keys")).status().expect("chown starts");
        }
        let begun = Instant::now();
        let said = project.sh("for n in 0 500 999; do for d in 0 30 59; do cat keys/$d/$n.pem 2>/dev/null && echo open; done; done; cat README").ok();
        let took = begun.elapsed();
        assert_eq!(said, "hello");
        // The bar is two seconds with an optimised build and nothing beside it.
        assert!(took < Duration::from_secs(10), "{took:?}");
        project.tries("create('keys/3/new.pem')").inside(&["EACCES"]);
    });
}
