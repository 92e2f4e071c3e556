//! Memory: another process's, and what is free of our own.

use std::io;

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
/// allocator knows how to.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks what it touches (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}
