//! Threads for what goes on beside a sandbox. A program that has very many sandboxes uses them
//! again: to make one, and what the allocator keeps for it, takes as long as what most of them do.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::CpuSet;

/// So long one waits for something to do.
const IDLE: Duration = Duration::from_secs(2);
/// More than so many do not.
const MOST: usize = 64;

type PoolTask = Box<dyn FnOnce() + Send>;

/// The processors of the program, if threads are used again.
static KEPT: OnceLock<CpuSet> = OnceLock::new();
static WAITING: Mutex<Vec<IdleWorker>> = Mutex::new(Vec::new());

/// Somebody who has nothing to do.
struct IdleWorker {
    number: u64,
    /// Where.
    processor: usize,
    work: Sender<PoolTask>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on, threads are used again.
pub(crate) fn keep() {
    KEPT.get_or_init(|| rustix::thread::sched_getaffinity(None).unwrap_or_default());
}

/// Lets this thread go to every processor of the program.
fn roam() {
    // Only a matter of speed.
    let _ = KEPT.get().map(|all| rustix::thread::sched_setaffinity(None, all));
}

/// Somebody who does something.
#[derive(Debug)]
pub(crate) struct PoolHandle(Arc<DoneFlag>);

#[derive(Debug, Default)]
struct DoneFlag {
    is_so: Mutex<bool>,
    changed: Condvar,
}

impl PoolHandle {
    /// Waits until it is done, or broke down over it.
    pub(crate) fn join(self) {
        let is_so = lock(&self.0.is_so);
        drop(self.0.changed.wait_while(is_so, |is_so| !*is_so));
    }
}

/// Says so however it ends.
struct DoneOnDrop(Arc<DoneFlag>);

impl Drop for DoneOnDrop {
    fn drop(&mut self) {
        *lock(&self.0.is_so) = true;
        self.0.changed.notify_all();
    }
}

/// Does `work` on another thread, which is called `name` meanwhile: one that is at `processor`, if
/// that is of use and there is one.
pub(crate) fn lend(
    name: &'static str,
    processor: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<PoolHandle> {
    let done = Arc::<DoneFlag>::default();
    let says = DoneOnDrop(done.clone());
    let mut work: PoolTask = Box::new(move || {
        work();
        drop(says);
    });
    if KEPT.get().is_some() {
        let named = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        let inner = work;
        work = Box::new(move || {
            // Only for whoever looks at a list of threads.
            let _ = rustix::thread::set_name(&named);
            // Whoever lends us may be at one for now.
            roam();
            inner();
        });
        while let Some(idle) = one_at(processor) {
            match idle.work.send(work) {
                Ok(()) => return Ok(PoolHandle(done)),
                Err(unsent) => work = unsent.0,
            }
        }
    }
    thread::Builder::new().name(name.into()).spawn(move || {
        work();
        wait_for_more();
    })?;
    Ok(PoolHandle(done))
}

/// Somebody idle: at this processor, if anybody is, since to move there takes a while.
fn one_at(processor: Option<usize>) -> Option<IdleWorker> {
    let mut waiting = lock(&WAITING);
    let there = processor
        .and_then(|processor| waiting.iter().rposition(|idle| idle.processor == processor));
    there.map(|there| waiting.remove(there)).or_else(|| waiting.pop())
}

/// Does what else there is, until there is nothing for a while.
fn wait_for_more() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let (sender, more) = mpsc::channel();
    loop {
        {
            let mut waiting = lock(&WAITING);
            if KEPT.get().is_none() || waiting.len() >= MOST {
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
    match more.recv_timeout(IDLE) {
        Ok(work) => Some(work),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            let mut waiting = lock(&WAITING);
            let known = waiting.iter().position(|idle| idle.number == number);
            if let Some(known) = known {
                waiting.remove(known);
                return None;
            }
            drop(waiting);
            // Somebody has chosen us, and is about to say what for.
            more.recv().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{keep, lend};

    #[test]
    fn all_is_done_whoever_does_it_and_joined_when_it_is() {
        keep();
        let (told, heard) = mpsc::channel();
        let mut threads = std::collections::HashSet::new();
        for number in 0..200 {
            let told = told.clone();
            let hand = lend("test", None, move || {
                told.send((number, std::thread::current().id())).expect("somebody hears")
            })
            .expect("a thread");
            hand.join();
            let (done, thread) = heard.try_recv().expect("it was done when it was joined");
            assert_eq!(done, number);
            threads.insert(thread);
        }
        assert!(threads.len() < 100, "they are used again: {}", threads.len());
        let many: Vec<_> = (0..100)
            .map(|number| {
                let told = told.clone();
                lend("test", None, move || {
                    told.send((number, std::thread::current().id())).expect("somebody hears")
                })
                .expect("a thread")
            })
            .collect();
        many.into_iter().for_each(super::PoolHandle::join);
        assert_eq!(heard.try_iter().count(), 100);
    }
}
