//! Thread pool for work next to a sandbox. A program with very many sandboxes reuses threads:
//! creating one, with its allocator arena, takes as long as most of the work.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::locks::lock;

use rustix::thread::CpuSet;

/// Idle time after which a thread ends.
const IDLE_LIMIT: Duration = Duration::from_secs(2);
/// Most idle threads.
const MAX_IDLE: usize = 64;

type PoolTask = Box<dyn FnOnce() + Send>;

/// CPUs of the program, if threads are reused.
static REUSE_CPUS: OnceLock<CpuSet> = OnceLock::new();
static IDLE_WORKERS: Mutex<Vec<IdleWorker>> = Mutex::new(Vec::new());

/// An idle thread.
struct IdleWorker {
    number: u64,
    /// The CPU it last ran on.
    processor: usize,
    work: Sender<PoolTask>,
}

/// Enables reuse of threads from now on.
pub(crate) fn enable_reuse() {
    REUSE_CPUS.get_or_init(|| rustix::thread::sched_getaffinity(None).unwrap_or_default());
}

/// Lets this thread run on every CPU of the program.
fn unpin() {
    // Only for speed.
    let _ = REUSE_CPUS.get().map(|all| rustix::thread::sched_setaffinity(None, all));
}

/// Handle of running work.
#[derive(Debug)]
pub(crate) struct PoolHandle(Arc<DoneFlag>);

#[derive(Debug, Default)]
struct DoneFlag {
    is_done: Mutex<bool>,
    changed: Condvar,
}

impl PoolHandle {
    /// Waits until the work is done, or has panicked.
    pub(crate) fn join(self) {
        let is_done = lock(&self.0.is_done);
        drop(self.0.changed.wait_while(is_done, |is_done| !*is_done));
    }
}

/// Sets the flag on drop, also after a panic.
struct DoneOnDrop(Arc<DoneFlag>);

impl Drop for DoneOnDrop {
    fn drop(&mut self) {
        *lock(&self.0.is_done) = true;
        self.0.changed.notify_all();
    }
}

/// Runs `work` on another thread, named `name` meanwhile; prefers an idle thread on `processor`.
pub(crate) fn run(
    name: &'static str,
    processor: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<PoolHandle> {
    let done = Arc::<DoneFlag>::default();
    let done_on_drop = DoneOnDrop(done.clone());
    let mut work: PoolTask = Box::new(move || {
        work();
        drop(done_on_drop);
    });
    if REUSE_CPUS.get().is_some() {
        let named = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        let inner = work;
        work = Box::new(move || {
            // For lists of threads only.
            let _ = rustix::thread::set_name(&named);
            // The lending thread may be pinned to a CPU.
            unpin();
            inner();
        });
        while let Some(idle) = take_idle(processor) {
            match idle.work.send(work) {
                Ok(()) => return Ok(PoolHandle(done)),
                Err(unsent) => work = unsent.0,
            }
        }
    }
    thread::Builder::new().name(name.into()).spawn(move || {
        work();
        serve_more();
    })?;
    Ok(PoolHandle(done))
}

/// An idle thread: preferably on this CPU, since migration takes time.
fn take_idle(processor: Option<usize>) -> Option<IdleWorker> {
    let mut waiting = lock(&IDLE_WORKERS);
    let position = processor
        .and_then(|processor| waiting.iter().rposition(|idle| idle.processor == processor));
    position.map(|position| waiting.remove(position)).or_else(|| waiting.pop())
}

/// Runs further work until none comes for a while.
fn serve_more() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (sender, more) = mpsc::channel();
    loop {
        {
            let mut waiting = lock(&IDLE_WORKERS);
            if REUSE_CPUS.get().is_none() || waiting.len() >= MAX_IDLE {
                return;
            }
            waiting.push(IdleWorker {
                number,
                processor: rustix::thread::sched_getcpu(),
                work: sender.clone(),
            });
        }
        match next(&more, number) {
            Some(work) => work(),
            None => return,
        }
    }
}

fn next(more: &Receiver<PoolTask>, number: u64) -> Option<PoolTask> {
    match more.recv_timeout(IDLE_LIMIT) {
        Ok(work) => Some(work),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut waiting = lock(&IDLE_WORKERS);
            let known = waiting.iter().position(|idle| idle.number == number);
            if let Some(known) = known {
                waiting.remove(known);
                return None;
            }
            drop(waiting);
            // A lender has chosen this thread and is about to send work.
            more.recv().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{enable_reuse, run};

    #[test]
    fn work_is_done_when_joined_and_threads_are_reused() {
        enable_reuse();
        let (sender, receiver) = mpsc::channel();
        let mut threads = std::collections::HashSet::new();
        for number in 0..200 {
            let sender = sender.clone();
            let handle = run("test", None, move || {
                sender.send((number, std::thread::current().id())).expect("the receiver lives")
            })
            .expect("a thread");
            handle.join();
            let (done, thread) = receiver.try_recv().expect("work is done when joined");
            assert_eq!(done, number);
            threads.insert(thread);
        }
        assert!(threads.len() < 100, "threads are reused: {}", threads.len());
        let many: Vec<_> = (0..100)
            .map(|number| {
                let sender = sender.clone();
                run("test", None, move || {
                    sender.send((number, std::thread::current().id())).expect("the receiver lives")
                })
                .expect("a thread")
            })
            .collect();
        many.into_iter().for_each(super::PoolHandle::join);
        assert_eq!(receiver.try_iter().count(), 100);
    }
}
