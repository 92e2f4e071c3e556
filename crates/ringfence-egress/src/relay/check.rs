//! Interface for checks of relayed bytes.

/// Checks the bytes of one direction before the relay sends them.
///
/// Runs on the relay thread, which serves all connections: it must not block.
pub trait StreamCheck: Send {
    /// Judges `held`: all bytes read and not let through yet; never empty. It grows from call to
    /// call while the answer is [`StreamVerdict::NeedMore`].
    fn check(&mut self, held: &[u8]) -> StreamVerdict;

    /// The check of the opposite direction, if its bytes affect this one; called once, at the
    /// start. After each of its runs, the held bytes of this direction are checked again.
    fn opposite_check(&mut self) -> Option<Box<dyn StreamCheck>> {
        None
    }
}

/// Verdict about checked bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamVerdict {
    /// Undecided; more bytes are needed.
    NeedMore,
    /// Send these and all later bytes unchecked.
    Pass,
    /// Send this number of bytes, then check again. If it exceeds the held bytes, the rest passes
    /// unchecked.
    PassBytes(u64),
    /// Send other bytes in place of this number of held bytes, then check again.
    Replace(usize, Vec<u8>),
    /// Drop these and all later bytes; the opposite direction goes on.
    DropRest,
    /// Refuse these bytes and end the connection.
    Refuse(StreamObjection),
}

/// Reason for a refused connection, for both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamObjection {
    /// Reason for the audit log.
    pub reason: String,
    /// Bytes to send to the program before the connection ends, in its protocol.
    pub answer: Vec<u8>,
}
