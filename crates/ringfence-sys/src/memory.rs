//! Memory of other processes, and the heap of our own.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Copies from `address` in process `pid` into `buffer`; returns the number of bytes copied.
///
/// One contiguous range: the copy stops at the first page that is not mapped.
pub fn read_process(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: `local` describes `buffer`, which is writable for its whole length; only the kernel
    // interprets the remote address, in the other process.
    let copied = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if copied < 0 { Err(io::Error::last_os_error()) } else { Ok(copied as usize) }
}

/// Returns freed heap memory to the kernel, if the allocator can, at most every half second.
/// Trimming takes a while, and memory needed again has to be faulted in again.
pub fn trim_heap_rarely() {
    const MIN_INTERVAL: Duration = Duration::from_millis(500);
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let Ok(mut last) = LAST.try_lock() else { return };
    if last.is_none_or(|last| last.elapsed() >= MIN_INTERVAL) {
        trim_heap();
        *last = Some(Instant::now());
    }
}

/// Returns freed heap memory to the kernel now.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and locks what it touches (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
