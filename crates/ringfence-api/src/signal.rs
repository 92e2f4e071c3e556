//! Signals by name.

/// A signal to the processes of a command. A provider ignores those that its system does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of POSIX and Linux")]
pub enum Signal {
    Hangup,
    Interrupt,
    Quit,
    IllegalInstruction,
    Trap,
    Abort,
    BusError,
    FloatingPointError,
    Kill,
    User1,
    SegmentationFault,
    User2,
    Pipe,
    Alarm,
    Terminate,
    StackFault,
    Child,
    Continue,
    Stop,
    TerminalStop,
    TerminalInput,
    TerminalOutput,
    Urgent,
    CpuLimit,
    FileSizeLimit,
    VirtualAlarm,
    ProfilingAlarm,
    WindowChange,
    Io,
    PowerFailure,
    BadSyscall,
    /// A real-time signal, counted from the first one of the kernel.
    RealTime(u8),
}

/// The signals in the order of their Linux numbers, from 1.
const IN_LINUX_ORDER: [Signal; 31] = [
    Signal::Hangup,
    Signal::Interrupt,
    Signal::Quit,
    Signal::IllegalInstruction,
    Signal::Trap,
    Signal::Abort,
    Signal::BusError,
    Signal::FloatingPointError,
    Signal::Kill,
    Signal::User1,
    Signal::SegmentationFault,
    Signal::User2,
    Signal::Pipe,
    Signal::Alarm,
    Signal::Terminate,
    Signal::StackFault,
    Signal::Child,
    Signal::Continue,
    Signal::Stop,
    Signal::TerminalStop,
    Signal::TerminalInput,
    Signal::TerminalOutput,
    Signal::Urgent,
    Signal::CpuLimit,
    Signal::FileSizeLimit,
    Signal::VirtualAlarm,
    Signal::ProfilingAlarm,
    Signal::WindowChange,
    Signal::Io,
    Signal::PowerFailure,
    Signal::BadSyscall,
];

/// The highest number of a Linux signal.
const LAST: i32 = 64;

impl Signal {
    /// The signal of a Linux number, as the session protocol has it.
    pub fn from_linux_number(number: i32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let above = || u8::try_from(index - IN_LINUX_ORDER.len()).ok().map(Signal::RealTime);
        IN_LINUX_ORDER.get(index).copied().or_else(|| (number <= LAST).then(above)?)
    }

    /// The Linux number.
    pub fn linux_number(self) -> i32 {
        let count = IN_LINUX_ORDER.len() as i32;
        match self {
            Signal::RealTime(above) => count + 1 + i32::from(above),
            named => {
                IN_LINUX_ORDER.iter().position(|one| *one == named).map_or(0, |at| at as i32 + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_linux_number_is_one_signal() {
        for number in 1..=LAST {
            let signal = Signal::from_linux_number(number).unwrap();
            assert_eq!(signal.linux_number(), number, "{signal:?}");
        }
        for number in [i32::MIN, -1, 0, LAST + 1, i32::MAX] {
            assert_eq!(Signal::from_linux_number(number), None, "{number}");
        }
        assert_eq!(Signal::Terminate.linux_number(), 15);
        assert_eq!(Signal::WindowChange.linux_number(), 28);
    }
}
