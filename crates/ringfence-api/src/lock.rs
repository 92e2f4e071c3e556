//! Mutexes whose holder panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also if a thread panicked while it held it: its data is still valid.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
