//! One value, from one thread to whoever awaits it, under any runtime or none.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A value that is to come, and who keeps the word.
pub(crate) fn promise<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Arc::new(Mutex::new(OneshotState { value: None, waker: None, is_over: false }));
    (OneshotSender(shared.clone()), OneshotReceiver(shared))
}

struct OneshotState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_over: bool,
}

/// Whoever has promised. Dropped without a word, it breaks the promise.
pub(crate) struct OneshotSender<T>(Arc<Mutex<OneshotState<T>>>);

/// The future: `None` if the promise was broken.
pub(crate) struct OneshotReceiver<T>(Arc<Mutex<OneshotState<T>>>);

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> OneshotSender<T> {
    pub(crate) fn keep(self, value: T) {
        lock(&self.0).value = Some(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_over = true;
        let waker = state.waker.take();
        // Not under the lock: whoever is woken may look at once.
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
        if state.is_over {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// One at a time, in the order in which they are woken.
#[derive(Default)]
pub(crate) struct FairLock(Mutex<FairLockQueue>);

#[derive(Default)]
struct FairLockQueue {
    is_taken: bool,
    waiting: Vec<Waker>,
}

/// Whoever has it is alone; dropped, it lets the next one in.
pub(crate) struct FairLockGuard<'a>(&'a FairLock);

impl FairLock {
    pub(crate) async fn enter(&self) -> FairLockGuard<'_> {
        std::future::poll_fn(|context| {
            let mut turns = lock(&self.0);
            if turns.is_taken {
                turns.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            turns.is_taken = true;
            Poll::Ready(FairLockGuard(self))
        })
        .await
    }
}

impl Drop for FairLockGuard<'_> {
    fn drop(&mut self) {
        let mut turns = lock(&self.0.0);
        turns.is_taken = false;
        let waiting = std::mem::take(&mut turns.waiting);
        drop(turns);
        // All of them: one that was woken alone might have gone away meanwhile.
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

    use super::{FairLock, block_on, promise};

    #[test]
    fn a_value_comes_from_another_thread() {
        let (kept, awaited) = promise();
        let keeper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            kept.keep(7);
        });
        assert_eq!(block_on(awaited), Some(7));
        keeper.join().unwrap();
    }

    #[test]
    fn a_broken_promise_is_told() {
        let (broken, awaited) = promise::<u8>();
        drop(broken);
        assert_eq!(block_on(awaited), None);
    }

    #[test]
    fn one_at_a_time() {
        let (turnstile, inside) = (Arc::new(FairLock::default()), Arc::new(AtomicU32::new(0)));
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (turnstile, inside) = (turnstile.clone(), inside.clone());
                thread::spawn(move || {
                    for _ in 0..50 {
                        block_on(async {
                            let _pass = turnstile.enter().await;
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
