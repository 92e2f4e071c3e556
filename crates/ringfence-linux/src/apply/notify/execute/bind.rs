//! Binds and creates sockets for callers.

use std::ffi::CString;
use std::os::fd::AsFd;

use ringfence_api::Operation;
use ringfence_sys::net;
use rustix::io::Errno;

use super::{CWD_FD, SyscallProxy};
use crate::apply::notify::report::CreatedKind;
use crate::apply::notify::{NotifyReply, connect, resolve};

impl SyscallProxy<'_, '_> {
    pub(super) fn bind(
        &mut self,
        socket: i32,
        address: u64,
        length: u64,
    ) -> Result<NotifyReply, Errno> {
        const LONGEST: u64 = 128;
        if length > LONGEST {
            return Err(Errno::INVAL);
        }
        let address = self.caller.read_bytes(address, length as usize)?;
        let socket = self.caller.copy_fd(socket)?;
        self.caller.ensure_waiting()?;
        let family = address.get(..2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let path = address.get(2..).unwrap_or_default();
        let path = &path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())];
        let bind = |address: &[u8]| {
            net::bind_raw(socket.as_fd(), address)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        if family != Some(libc::AF_UNIX as u16)
            && self.rules.has_egress()
            && !connect::is_sandbox_socket(&socket)?
        {
            return Err(Errno::INVAL);
        }
        if family != Some(libc::AF_UNIX as u16) || path.is_empty() {
            return bind(&address).map(|()| NotifyReply::Value(0));
        }
        self.umasks.adopt(self.caller);
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        // The address as written, so that `getsockname` returns it; but below `/proc`, `self` would
        // be the notify handler.
        let is_plain = !path.to_bytes().starts_with(b"/proc/");
        if is_plain
            && resolve::last_name(&path).is_some_and(|name| !self.rules.name_could_matter(name))
        {
            rustix::process::fchdir(self.caller.open_start(CWD_FD)?)?;
            self.caller.ensure_waiting()?;
            return bind(&address).map(|()| NotifyReply::Value(0)).inspect_err(|error| {
                let _ = self.rules.report_failed(
                    self.caller,
                    *error,
                    (CWD_FD, &path),
                    CreatedKind::Name,
                );
            });
        }
        let place = resolve::resolve_parent(self.caller, CWD_FD, &path)?;
        self.rules.lock.take(self.hold);
        self.rules.check_create(self.caller, &place, Operation::Create)?;
        rustix::process::fchdir(&place.directory)?;
        let name = place.name.as_encoded_bytes();
        bind(&[&(libc::AF_UNIX as u16).to_ne_bytes(), name, b"\0"].concat())
            .map(|()| NotifyReply::Value(0))
    }

    /// `socket` and `bind` of 32-bit programs, whose arguments are in memory.
    pub(super) fn socketcall(&mut self) -> Result<NotifyReply, Errno> {
        const SOCKET: i32 = 1;
        const BIND: i32 = 2;
        let words = self.caller.read_bytes(self.caller.raw_arg(1), 12)?;
        let word = |i: usize| {
            u32::from_ne_bytes([words[i * 4], words[i * 4 + 1], words[i * 4 + 2], words[i * 4 + 3]])
        };
        match self.caller.int_arg(0) {
            BIND => self.bind(word(0) as i32, word(1).into(), word(2).into()),
            SOCKET => {
                let (family, kind, protocol) = (word(0) as i32, word(1) as i32, word(2) as i32);
                let known = matches!(family, libc::AF_UNIX | libc::AF_INET | libc::AF_INET6)
                    || (family == libc::AF_NETLINK && protocol == 0);
                if !known {
                    return Err(Errno::AFNOSUPPORT);
                }
                self.caller.ensure_waiting()?;
                let socket = net::socket(family, kind | libc::SOCK_CLOEXEC, protocol)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                Ok(NotifyReply::Descriptor(socket, (kind & libc::SOCK_CLOEXEC) as u32))
            }
            _ => Err(Errno::NOSYS),
        }
    }
}
