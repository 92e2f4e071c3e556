//! Entry point of the helper processes: our binary executed again.

use std::ffi::OsStr;

use ringfence_sys::process;
use ringfence_sys::signal::{self, SignalSet};

use super::cgroup::{self, REAPER};
use super::mount_agent::{self, MOUNT_AGENT};
use super::restricted::{self, RESTRICTED};
use super::supervisor::{CpuPinning, NetnsSource, run_supervisor};
use super::watcher::inotify_broker::BROKER;
use super::watcher::{self, WATCHER};
use super::zygote::{self, ZYGOTE};
use super::{CONTROL_FD, HELPER};

/// Runs a helper process if this process was started as one, and then does not return. Call it on
/// the first line of `main`.
pub fn enter_if_helper() {
    if std::env::args_os().next().as_deref() == Some(OsStr::new(HELPER)) {
        ringfence_log::start_in_helper();
        let status = main();
        process::exit_now(status);
    }
}

fn main() -> i32 {
    let Ok(control) = process::take_inherited_fd(CONTROL_FD) else { return 125 };
    let argument = std::env::args_os().nth(1);
    if argument.as_deref() == Some(OsStr::new(WATCHER)) {
        return watcher::main(&control);
    }
    if argument.as_deref() == Some(OsStr::new(BROKER)) {
        return watcher::inotify_broker::main(&control);
    }
    if argument.as_deref() == Some(OsStr::new(REAPER)) {
        return cgroup::reaper_main(&control);
    }
    if argument.as_deref() == Some(OsStr::new(MOUNT_AGENT)) {
        return mount_agent::main(&control);
    }
    if argument.as_deref() == Some(OsStr::new(ZYGOTE)) {
        let processor = std::env::args().nth(2).and_then(|number| number.parse().ok());
        return zygote::main(control, processor);
    }
    if argument.as_deref() == Some(OsStr::new(RESTRICTED)) {
        return restricted::main(control, &current_mask());
    }
    let network = if argument.as_deref() == Some(OsStr::new(HOST_NETWORK)) {
        NetnsSource::Host
    } else {
        NetnsSource::New
    };
    run_supervisor(network, control, &current_mask(), &CpuPinning::Unpinned)
}

fn current_mask() -> SignalSet {
    signal::block(&SignalSet::from_signals(&[])).expect("asking for the mask changes nothing")
}

/// The argument that keeps the sandbox in the host's network.
pub(super) const HOST_NETWORK: &str = "--host-network";
