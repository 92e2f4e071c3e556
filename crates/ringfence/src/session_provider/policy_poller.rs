//! Applies policy changes to live sandboxes while their commands run.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ringfence_engine::session::Session;

/// Interval of the policy file checks. They are also checked before each command.
const LOOK: Duration = Duration::from_secs(1);

/// The live sandboxes; one thread polls for all of them, and only while there are any.
#[derive(Default)]
pub(super) struct PolicyPoller(Mutex<Vec<Weak<Session>>>);

impl PolicyPoller {
    pub(super) fn add(self: &Arc<Self>, opened: &Arc<Session>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(opened));
        if all.len() == 1 {
            let poller = self.clone();
            // Without the thread, the policy is checked before each command only.
            let _ = thread::Builder::new()
                .name("policies".into())
                .stack_size(256 * 1024)
                .spawn(move || poller.follow());
        }
    }

    fn follow(&self) {
        loop {
            thread::sleep(LOOK);
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|opened| opened.strong_count() > 0);
            if all.is_empty() {
                return;
            }
            let opened: Vec<Arc<Session>> = all.iter().filter_map(Weak::upgrade).collect();
            drop(all);
            opened.iter().for_each(|opened| opened.follow_policy());
        }
    }
}
