//! Readers as relay checks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::HostName;

use super::head::with_field;
use super::requests::{CheckedPieces, RequestFollower, RequestNext, RequestPiece};
use super::{PeekError, PeekState, check_same_host, hello};
use crate::relay::{self, StreamCheck, StreamVerdict};

/// Sent to a refused TLS client: a fatal alert, `access_denied`. Nothing is encrypted yet, so every
/// library reports it.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// A check for TLS to `dialed`.
pub fn tls(dialed: HostName) -> Box<dyn StreamCheck> {
    Box::new(TlsCheck { dialed, reader: hello::ClientHelloReader::default() })
}

/// A check for plain HTTP to `dialed`.
pub fn http(dialed: HostName, port: u16) -> Box<dyn StreamCheck> {
    Box::new(HttpCheck {
        requests: Arc::new(Mutex::new(RequestFollower::new(dialed, port))),
        first: true,
    })
}

struct TlsCheck {
    dialed: HostName,
    reader: hello::ClientHelloReader,
}

impl StreamCheck for TlsCheck {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        let objection = match self.reader.read(held) {
            PeekState::NeedMore => return StreamVerdict::NeedMore,
            PeekState::Found(name) => match check_same_host(&name, &self.dialed) {
                Ok(()) => return StreamVerdict::Pass,
                Err(objection) => objection,
            },
            PeekState::Refused(objection) => objection,
        };
        let answer = match objection {
            PeekError::NotTls | PeekError::Ssl2 => Vec::new(),
            _ => ALERT.to_vec(),
        };
        StreamVerdict::Refuse(relay::StreamObjection { reason: objection.to_string(), answer })
    }
}

struct HttpCheck {
    requests: Arc<Mutex<RequestFollower>>,
    /// Nothing was sent yet, so a response can only be ringfence's own.
    first: bool,
}

impl StreamCheck for HttpCheck {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        let mut requests = locked(&self.requests);
        let mut clear = 0;
        while let Some(piece) = requests.next_piece(&held[clear..]) {
            let from = clear;
            clear += piece.length();
            if matches!(piece, RequestPiece::Head(1..)) && requests.is_last() {
                self.first = false;
                let head = with_field(&held[from..clear], "Connection", "close");
                return StreamVerdict::Replace(clear, [&held[..from], &head].concat());
            }
        }
        let checked = CheckedPieces { clear, next: requests.next_step() };
        match checked.next {
            RequestNext::Opaque => return StreamVerdict::Pass,
            RequestNext::Over if checked.clear == 0 => return StreamVerdict::DropRest,
            _ => {}
        }
        // The relay need not show the rest of a body.
        let unseen = requests.body_left();
        requests.skip_body(unseen);
        match (checked.clear as u64 + unseen, checked.next) {
            (0, RequestNext::Refused(objection)) => {
                let answer = match self.first {
                    true => forbidden(&objection),
                    false => Vec::new(),
                };
                StreamVerdict::Refuse(relay::StreamObjection {
                    reason: objection.to_string(),
                    answer,
                })
            }
            (0, _) => StreamVerdict::NeedMore,
            // A refusal is found again at the front of the remaining bytes.
            (count, _) => {
                self.first = false;
                StreamVerdict::PassBytes(count)
            }
        }
    }

    fn opposite_check(&mut self) -> Option<Box<dyn StreamCheck>> {
        Some(Box::new(UpgradeCheck { requests: self.requests.clone() }))
    }
}

/// Watches the server's answer, and lets all of it pass.
struct UpgradeCheck {
    requests: Arc<Mutex<RequestFollower>>,
}

impl StreamCheck for UpgradeCheck {
    fn check(&mut self, held: &[u8]) -> StreamVerdict {
        let mut requests = locked(&self.requests);
        requests.feed_response(held);
        match requests.wants_answer() {
            true => StreamVerdict::PassBytes(held.len() as u64),
            false => StreamVerdict::Pass,
        }
    }
}

fn locked(requests: &Mutex<RequestFollower>) -> MutexGuard<'_, RequestFollower> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forbidden(objection: &PeekError) -> Vec<u8> {
    let text = format!("ringfence: refused: {objection}\n");
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: ";
    format!("{head}{}\r\n\r\n{text}", text.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    const OTHER: &str = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
    const UPGRADE: &str =
        "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

    fn name() -> HostName {
        HostName::new("a.example").unwrap()
    }

    /// Output and end state for `input`, fed in pieces like the relay does.
    fn goes_out(check: &mut dyn StreamCheck, input: &[u8], piece: usize) -> (Vec<u8>, String) {
        let (mut out, mut held, mut credit) = (Vec::new(), Vec::new(), 0_u64);
        for bytes in input.chunks(piece) {
            let unseen = bytes.len().min(credit as usize);
            credit -= unseen as u64;
            out.extend(&bytes[..unseen]);
            held.extend(&bytes[unseen..]);
            while !held.is_empty() {
                match check.check(&held) {
                    StreamVerdict::NeedMore => break,
                    StreamVerdict::PassBytes(count) => {
                        let now = held.len().min(count as usize);
                        out.extend(held.drain(..now));
                        credit = count - now as u64;
                    }
                    StreamVerdict::Replace(count, bytes) => {
                        held.drain(..count);
                        out.extend(bytes);
                    }
                    StreamVerdict::Refuse(objection) => return (out, objection.reason),
                    StreamVerdict::Pass => return (out, "passes".to_owned()),
                    StreamVerdict::DropRest => return (out, "over".to_owned()),
                }
            }
        }
        (out, "open".to_owned())
    }

    #[track_caller]
    fn check(input: &str, out: &str, how: &str) {
        for piece in [1, 7, 1000] {
            let gone = goes_out(&mut *http(name(), 80), input.as_bytes(), piece);
            assert_eq!(gone, (out.as_bytes().to_vec(), how.to_owned()), "{input:?} by {piece}");
        }
    }

    #[test]
    fn every_request_to_the_host_is_sent() {
        let post = format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\n\r\n{OTHER}",
            OTHER.len()
        );
        let chunks = format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{OTHER}\r\n0\r\n\r\n",
            OTHER.len()
        );
        let good = format!("{GET}{post}{chunks}{GET}");
        check(&good, &good, "open");
        check(&format!("{good}{OTHER}{GET}"), &good, "it names another host: b.example");
    }

    #[test]
    fn request_with_ambiguous_body_is_the_last() {
        let chunked =
            format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{OTHER}\r\n0\r\n\r\n", OTHER.len());
        let length = format!("Content-Length: {}\r\n\r\n{OTHER}", OTHER.len());
        let expects = format!("Expect: 100-continue\r\n{length}");
        for (method, rest) in [
            ("GET", &length),
            ("GET", &chunked),
            ("HEAD", &length),
            ("DELETE", &length),
            ("REPORT", &chunked),
            ("POST", &expects),
        ] {
            let input = format!(
                "{method} / HTTP/1.1\r\nConnection: keep-alive\r\nHost: a.example\r\n{rest}"
            );
            let out =
                format!("{method} / HTTP/1.1\r\nConnection: close\r\nHost: a.example\r\n{rest}");
            check(&format!("{GET}{input}{GET}"), &format!("{GET}{out}"), "over");
            check(&input, &out, "open");
        }
        let empty = GET.replacen("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n", 1);
        check(&format!("{empty}{GET}"), &format!("{empty}{GET}"), "open");
    }

    #[test]
    fn only_the_first_request_gets_a_403() {
        let refused = |input: &str| match http(name(), 80).check(input.as_bytes()) {
            StreamVerdict::Refuse(objection) => String::from_utf8(objection.answer).unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(
            refused(OTHER).ends_with(
                "\r\nContent-Length: 53\r\n\r\nringfence: refused: it names another host: b.example\n"
            ),
            "{}",
            refused(OTHER)
        );
        let mut http_check = http(name(), 80);
        let both = format!("{GET}{OTHER}");
        assert_eq!(http_check.check(both.as_bytes()), StreamVerdict::PassBytes(GET.len() as u64));
        let StreamVerdict::Refuse(objection) = http_check.check(OTHER.as_bytes()) else {
            panic!("it went out")
        };
        assert!(objection.answer.is_empty());
    }

    #[test]
    fn upgrade_passes_once_the_server_agrees() {
        let mut http_check = http(name(), 80);
        let mut answered = http_check.opposite_check().unwrap();
        assert_eq!(
            goes_out(&mut *http_check, UPGRADE.as_bytes(), 5),
            (UPGRADE.into(), "open".to_owned())
        );
        assert_eq!(http_check.check(b"\x81\x85"), StreamVerdict::NeedMore);
        assert_eq!(answered.check(b"HTTP/1.1 1"), StreamVerdict::PassBytes(10));
        assert_eq!(answered.check(b"01 Switching"), StreamVerdict::Pass);
        assert_eq!(http_check.check(b"\x81\x85"), StreamVerdict::Pass);

        let mut http_check = http(name(), 80);
        let mut answered = http_check.opposite_check().unwrap();
        goes_out(&mut *http_check, UPGRADE.as_bytes(), 5);
        assert_eq!(answered.check(b"HTTP/1.1 400 Bad Request\r\n"), StreamVerdict::Pass);
        assert_eq!(
            goes_out(&mut *http_check, OTHER.as_bytes(), 5),
            (Vec::new(), "it names another host: b.example".to_owned())
        );
    }

    #[test]
    fn refused_client_hello_gets_an_alert() {
        let StreamVerdict::Refuse(objection) = tls(name()).check(&[22, 3, 1, 0, 0]) else {
            panic!("it went out")
        };
        assert_eq!(
            (objection.reason.as_str(), objection.answer),
            ("its TLS ClientHello is malformed", ALERT.to_vec())
        );
        let StreamVerdict::Refuse(objection) = tls(name()).check(b"GET") else {
            panic!("it went out")
        };
        assert_eq!((objection.reason.as_str(), objection.answer), ("it is not TLS", Vec::new()));
        assert_eq!(tls(name()).check(&[22]), StreamVerdict::NeedMore);
    }
}
