//! A one-shot channel from a thread to a future, for any async runtime or none.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ringfence_api::lock;

/// A channel for one value.
pub(crate) fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Arc::new(Mutex::new(OneshotState { value: None, waker: None, is_closed: false }));
    (OneshotSender(shared.clone()), OneshotReceiver(shared))
}

struct OneshotState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_closed: bool,
}

/// The sending end. Dropping it without a value makes the receiver return `None`.
pub(crate) struct OneshotSender<T>(Arc<Mutex<OneshotState<T>>>);

/// The receiving future: `None` if the sender was dropped without a value.
pub(crate) struct OneshotReceiver<T>(Arc<Mutex<OneshotState<T>>>);

impl<T> OneshotSender<T> {
    pub(crate) fn send(self, value: T) {
        lock(&self.0).value = Some(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_closed = true;
        let waker = state.waker.take();
        // Wake outside the lock: the woken task may poll at once.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0);
        if state.is_closed {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// An async mutex: one holder at a time.
#[derive(Default)]
pub(crate) struct FairLock(Mutex<FairLockQueue>);

#[derive(Default)]
struct FairLockQueue {
    is_locked: bool,
    waiting: Vec<Waker>,
}

/// Holds the lock; dropping it wakes the waiters.
pub(crate) struct FairLockGuard<'a>(&'a FairLock);

impl FairLock {
    pub(crate) async fn enter(&self) -> FairLockGuard<'_> {
        std::future::poll_fn(|context| {
            let mut queue = lock(&self.0);
            if queue.is_locked {
                queue.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            queue.is_locked = true;
            Poll::Ready(FairLockGuard(self))
        })
        .await
    }
}

impl Drop for FairLockGuard<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.0);
        queue.is_locked = false;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        // Wakes all of them: a single woken waiter may have been dropped meanwhile.
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Waits for a future on this thread, for programs without a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unparks(Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::{FairLock, block_on, oneshot};

    #[test]
    fn value_arrives_from_another_thread() {
        let (sender, awaited) = oneshot();
        let keeper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            sender.send(7);
        });
        assert_eq!(block_on(awaited), Some(7));
        keeper.join().unwrap();
    }

    #[test]
    fn dropped_sender_gives_none() {
        let (sender, awaited) = oneshot::<u8>();
        drop(sender);
        assert_eq!(block_on(awaited), None);
    }

    #[test]
    fn fair_lock_admits_one_holder() {
        let (fair_lock, inside) = (Arc::new(FairLock::default()), Arc::new(AtomicU32::new(0)));
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (fair_lock, inside) = (fair_lock.clone(), inside.clone());
                thread::spawn(move || {
                    for _ in 0..50 {
                        block_on(async {
                            let _guard = fair_lock.enter().await;
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    }
}
