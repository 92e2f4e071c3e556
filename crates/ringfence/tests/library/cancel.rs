//! Dropped futures.

use std::pin::pin;

use ringfence::{SessionProvider, block_on};
use ringfence_testkit::becomes_true;

use crate::stage::{LONG, appears, children, manager, once, open, says, supervisors};

tests! { "cancel":
    /// Promise: dropped-future
    #[test]
    fn dropped_future_interrupts_its_command_and_the_shell_lives_on(at) {
        let sandbox = open(&SessionProvider::default(), at);
        says(sandbox.execute_blocking("export KEPT=yes; cd /tmp; sleep 1000 & echo $! >/tmp/job".into()));
        {
            let mut running = pin!(sandbox.execute(format!("touch {0}/begun; sleep 60; touch {0}/finished", at.display()).into()));
            assert!(once(running.as_mut()).is_pending());
            appears(&at.join("begun"));
        }
        // The background job is not part of the command.
        assert_eq!(says(sandbox.execute_blocking("pwd; echo $KEPT; kill -0 $(cat /tmp/job) && echo job".into())), "/tmp\nyes\njob");
        assert!(!at.join("finished").exists());
    }

    /// Promise: dropped-future
    #[test]
    fn future_can_be_dropped_at_any_moment(at) {
        let manager = manager();
        says(manager.execute_blocking(at, "export KEPT=yes"));
        for pause in [0, 0, 20, 50, 100, 200, 500, 1000, 3000, 10_000] {
            {
                let mut running = pin!(manager.execute(at, "sleep 60 && touch finished"));
                assert!(once(running.as_mut()).is_pending());
                std::thread::sleep(std::time::Duration::from_micros(pause));
            }
            assert_eq!(says(manager.execute_blocking(at, "echo $KEPT")), "yes");
        }
        assert!(!at.join("finished").exists());
        assert_eq!(manager.list().len(), 1);
    }

    /// Promise: dropped-future
    #[test]
    fn dropped_queued_command_is_not_started(at) {
        let sandbox = open(&SessionProvider::default(), at);
        let mut first = pin!(sandbox.execute("touch begun; until [ -e go ]; do sleep 0.01; done; echo first".into()));
        assert!(once(first.as_mut()).is_pending());
        appears(&at.join("begun"));
        {
            let mut second = pin!(sandbox.execute("touch second".into()));
            assert!(once(second.as_mut()).is_pending());
        }
        // A future that is never polled queues nothing.
        drop(sandbox.execute("touch second".into()));
        std::fs::write(at.join("go"), "").unwrap();
        assert_eq!(says(block_on(first)), "first");
        says(sandbox.execute_blocking("true".into()));
        assert!(!at.join("second").exists());
    }

    /// Promise: dropped-future
    #[test]
    fn sandbox_whose_creation_is_dropped_is_not_left_behind(at) {
        let provider = SessionProvider::default();
        for _ in 0..5 {
            let mut making = pin!(provider.create(ringfence::SandboxSpec::new(at)));
            assert!(once(making.as_mut()).is_pending());
        }
        let kept = open(&provider, at);
        assert_eq!(provider.list().len(), 1);
        assert!(becomes_true(LONG, || supervisors().len() == 1), "{:?}", supervisors());
        drop(kept);
        assert!(becomes_true(LONG, || children("self").is_empty()), "{:?}", children("self"));
    }
}
