//! Memory: another process's, and what is free of our own.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Copies from `address` in process `pid` into `buffer`; answers how much was copied.
///
/// One contiguous range: the copy stops at the first page that is not mapped.
pub fn read_process(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, which is writable for its whole length; the
    // remote address is only interpreted by the kernel in the other process.
    let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if copied < 0 { Err(io::Error::last_os_error()) } else { Ok(copied as usize) }
}

/// Gives what the allocator has kept of memory that was freed back to the kernel, where the
/// allocator knows how to. That takes a while, and what is wanted again has to be got again: of
/// many who are about to end, somebody does it once in a while.
pub fn give_back_at_times() {
    const APART: Duration = Duration::from_millis(500);
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.try_lock() else { return };
    if last.is_none_or(|last| last.elapsed() >= APART) {
        give_back();
        *last = Some(Instant::now());
    }
}

/// The same, now.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks what it touches (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
