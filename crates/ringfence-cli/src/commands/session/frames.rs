//! The protocol between a client and a session's server: frames of a kind, a length and that many
//! bytes.

use std::io::{self, Read, Write};

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The line to run, for the next question.
    Line,
    /// Standard input for the command.
    Input,
    /// A request, as JSON.
    Question,
    /// The client does not want to wait any longer.
    Interrupt,
    /// Standard output of a command.
    Out,
    /// Standard error of a command.
    Err,
    /// The answer, as JSON.
    Answer,
}

const KINDS: [(u8, FrameKind); 7] = [
    (b'l', FrameKind::Line),
    (b'n', FrameKind::Input),
    (b'q', FrameKind::Question),
    (b'i', FrameKind::Interrupt),
    (b'o', FrameKind::Out),
    (b'e', FrameKind::Err),
    (b'a', FrameKind::Answer),
];

/// The maximum length; a longer frame is invalid.
const LONGEST: u32 = 256 * 1024 * 1024;

pub(super) fn send(to: &mut impl Write, kind: FrameKind, bytes: &[u8]) -> io::Result<()> {
    let (letter, _) =
        KINDS.iter().find(|(_, known)| *known == kind).expect("every kind has a letter");
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "a frame is limited to 256 MiB")
    })?;
    let mut head = vec![*letter];
    head.extend_from_slice(&length.to_be_bytes());
    to.write_all(&head)?;
    to.write_all(bytes)?;
    to.flush()
}

/// Receives the next frame; `None` at the end.
pub(super) fn receive(from: &mut impl Read) -> io::Result<Option<(FrameKind, Vec<u8>)>> {
    let mut head = [0; 5];
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    match from.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => from.read_exact(&mut head[1..])?,
    }
    let (_, kind) = KINDS
        .iter()
        .find(|(letter, _)| *letter == head[0])
        .ok_or_else(|| wrong("unknown frame kind"))?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if length > LONGEST {
        return Err(wrong("frame larger than 256 MiB"));
    }
    let mut bytes = Vec::new();
    // Grows with the received bytes, not with the announced length.
    from.take(length.into()).read_to_end(&mut bytes)?;
    if bytes.len() == length as usize {
        Ok(Some((*kind, bytes)))
    } else {
        Err(wrong("truncated frame"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_round_trip() {
        let mut bytes = Vec::new();
        for (_, kind) in KINDS {
            send(&mut bytes, kind, b"a\0b").unwrap();
        }
        let mut from = bytes.as_slice();
        for (_, kind) in KINDS {
            assert_eq!(receive(&mut from).unwrap(), Some((kind, b"a\0b".to_vec())));
        }
        assert_eq!(receive(&mut from).unwrap(), None);
    }

    #[test]
    fn invalid_frame_is_refused() {
        for wrong in [b"x\0\0\0\0".as_slice(), b"l\xff\xff\xff\xff", b"l\0\0\0\x05ab", b"l\0\0"] {
            assert!(receive(&mut &*wrong).is_err(), "{wrong:?}");
        }
    }
}
