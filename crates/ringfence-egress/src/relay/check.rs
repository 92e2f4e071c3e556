//! Whoever looks at what is said from inside before it goes out.

/// Looks at what a connection says from inside. Nothing of it leaves before it was looked at.
///
/// It is asked on the thread that carries everybody's bytes: it must not wait for anything.
pub trait StreamCheck: Send {
    /// Judges `held`: all that was said and has not been let through yet; never empty. It grows
    /// from one call to the next as long as the answer is [`Verdict::NeedMore`].
    fn look(&mut self, held: &[u8]) -> StreamVerdict;

    /// Who looks at what comes back, if that has a bearing on what may be said; asked once, at the
    /// beginning. Whenever it has looked, what is held from inside is looked at again.
    fn answers(&mut self) -> Option<Box<dyn StreamCheck>> {
        None
    }
}

/// What becomes of bytes that were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamVerdict {
    /// It cannot be said yet.
    NeedMore,
    /// They may go, and so may everything after them, unseen.
    Pass,
    /// So many bytes may go; the next one is to be looked at again. It may be more than are held:
    /// the rest of them then pass unseen.
    Through(u64),
    /// In place of so many bytes, which are held, others go; the next one is to be looked at again.
    Instead(usize, Vec<u8>),
    /// These may not go, nor anything after them: it is dropped, while what comes from outside
    /// goes on.
    Finish,
    /// These may not go, and the connection ends.
    Refuse(StreamObjection),
}

/// Why a connection was ended, for those on both sides of the wall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamObjection {
    /// What is told of it outside.
    pub reason: String,
    /// What is said to the one inside before the connection ends, in whatever it speaks.
    pub answer: Vec<u8>,
}
