//! Sandboxes whose policy is followed while their commands run.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ringfence_engine::session::Session;

/// So often it is looked whether a policy file was changed. Before each command it is anyway.
const LOOK: Duration = Duration::from_secs(1);

/// Those that are followed, by one thread for all of them; there is none while there are none.
#[derive(Default)]
pub(super) struct PolicyPoller(Mutex<Vec<Weak<Session>>>);

impl PolicyPoller {
    pub(super) fn add(self: &Arc<Self>, opened: &Arc<Session>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(opened));
        if all.len() == 1 {
            let followers = self.clone();
            // Without a thread, a policy is followed from one command to the next.
            let _ = thread::Builder::new()
                .name("policies".into())
                .stack_size(256 * 1024)
                .spawn(move || followers.follow());
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
            opened.iter().for_each(|opened| opened.follow());
        }
    }
}
