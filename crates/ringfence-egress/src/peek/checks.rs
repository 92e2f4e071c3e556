//! The readers as the relay asks them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Name;

use super::head::with_field;
use super::requests::{Checked, Next, Piece, Requests};
use super::{Objection, Peek, agree, hello};
use crate::relay::{self, Check, Verdict};

/// What a TLS client hears when it is refused: a fatal alert, `access_denied`. Nothing is encrypted
/// yet, so every library tells its program of it.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Looks at a connection on which TLS is to be spoken to `dialed`.
pub fn tls(dialed: Name) -> Box<dyn Check> {
    Box::new(Tls { dialed, reader: hello::Reader::default() })
}

/// Looks at a connection on which plain HTTP is to be spoken to `dialed`.
pub fn http(dialed: Name, port: u16) -> Box<dyn Check> {
    Box::new(Said { requests: Arc::new(Mutex::new(Requests::new(dialed, port))), first: true })
}

struct Tls {
    dialed: Name,
    reader: hello::Reader,
}

impl Check for Tls {
    fn look(&mut self, held: &[u8]) -> Verdict {
        let objection = match self.reader.read(held) {
            Peek::NeedMore => return Verdict::NeedMore,
            Peek::Found(name) => match agree(&name, &self.dialed) {
                Ok(()) => return Verdict::Pass,
                Err(objection) => objection,
            },
            Peek::Refused(objection) => objection,
        };
        let answer = match objection {
            Objection::NotTls | Objection::Ssl2 => Vec::new(),
            _ => ALERT.to_vec(),
        };
        Verdict::Refuse(relay::Objection { reason: objection.to_string(), answer })
    }
}

struct Said {
    requests: Arc<Mutex<Requests>>,
    /// Nothing has gone out, so what comes back can only be ours.
    first: bool,
}

impl Check for Said {
    fn look(&mut self, held: &[u8]) -> Verdict {
        let mut requests = locked(&self.requests);
        let mut clear = 0;
        while let Some(piece) = requests.piece(&held[clear..]) {
            let from = clear;
            clear += piece.length();
            if matches!(piece, Piece::Head(1..)) && requests.is_last() {
                self.first = false;
                let head = with_field(&held[from..clear], "Connection", "close");
                return Verdict::Instead(clear, [&held[..from], &head].concat());
            }
        }
        let checked = Checked { clear, next: requests.next() };
        match checked.next {
            Next::Opaque => return Verdict::Pass,
            Next::Over if checked.clear == 0 => return Verdict::Finish,
            _ => {}
        }
        // Of a body the relay need not show the rest.
        let unseen = requests.body_left();
        requests.carried(unseen);
        match (checked.clear as u64 + unseen, checked.next) {
            (0, Next::Refused(objection)) => {
                let answer = match self.first {
                    true => forbidden(&objection),
                    false => Vec::new(),
                };
                Verdict::Refuse(relay::Objection { reason: objection.to_string(), answer })
            }
            (0, _) => Verdict::NeedMore,
            // An objection is found again, at the front of what is left.
            (count, _) => {
                self.first = false;
                Verdict::Through(count)
            }
        }
    }

    fn answers(&mut self) -> Option<Box<dyn Check>> {
        Some(Box::new(Answered { requests: self.requests.clone() }))
    }
}

/// Looks at what the server answers, and lets all of it pass.
struct Answered {
    requests: Arc<Mutex<Requests>>,
}

impl Check for Answered {
    fn look(&mut self, held: &[u8]) -> Verdict {
        let mut requests = locked(&self.requests);
        requests.answer(held);
        match requests.wants_answer() {
            true => Verdict::Through(held.len() as u64),
            false => Verdict::Pass,
        }
    }
}

fn locked(requests: &Mutex<Requests>) -> MutexGuard<'_, Requests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forbidden(objection: &Objection) -> Vec<u8> {
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

    fn name() -> Name {
        Name::new("a.example").unwrap()
    }

    /// What goes out of `said`, which comes in pieces, and how it ends; as the relay does it.
    fn goes_out(check: &mut dyn Check, said: &[u8], piece: usize) -> (Vec<u8>, String) {
        let (mut out, mut held, mut credit) = (Vec::new(), Vec::new(), 0_u64);
        for bytes in said.chunks(piece) {
            let unseen = bytes.len().min(credit as usize);
            credit -= unseen as u64;
            out.extend(&bytes[..unseen]);
            held.extend(&bytes[unseen..]);
            while !held.is_empty() {
                match check.look(&held) {
                    Verdict::NeedMore => break,
                    Verdict::Through(count) => {
                        let now = held.len().min(count as usize);
                        out.extend(held.drain(..now));
                        credit = count - now as u64;
                    }
                    Verdict::Instead(count, bytes) => {
                        held.drain(..count);
                        out.extend(bytes);
                    }
                    Verdict::Refuse(objection) => return (out, objection.reason),
                    Verdict::Pass => return (out, "passes".to_owned()),
                    Verdict::Finish => return (out, "over".to_owned()),
                }
            }
        }
        (out, "open".to_owned())
    }

    #[track_caller]
    fn check(said: &str, out: &str, how: &str) {
        for piece in [1, 7, 1000] {
            let gone = goes_out(&mut *http(name(), 80), said.as_bytes(), piece);
            assert_eq!(gone, (out.as_bytes().to_vec(), how.to_owned()), "{said:?} by {piece}");
        }
    }

    #[test]
    fn requests_go_out_one_after_the_other() {
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
        check(&format!("{good}{OTHER}{GET}"), &good, "it is meant for b.example");
    }

    #[test]
    fn request_whose_body_could_be_taken_for_another_is_the_last() {
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
            let said = format!(
                "{method} / HTTP/1.1\r\nConnection: keep-alive\r\nHost: a.example\r\n{rest}"
            );
            let out =
                format!("{method} / HTTP/1.1\r\nConnection: close\r\nHost: a.example\r\n{rest}");
            check(&format!("{GET}{said}{GET}"), &format!("{GET}{out}"), "over");
            check(&said, &out, "open");
        }
        let empty = GET.replacen("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n", 1);
        check(&format!("{empty}{GET}"), &format!("{empty}{GET}"), "open");
    }

    #[test]
    fn only_the_first_request_is_answered_by_us() {
        let refused = |said: &str| match http(name(), 80).look(said.as_bytes()) {
            Verdict::Refuse(objection) => String::from_utf8(objection.answer).unwrap(),
            other => panic!("{other:?}"),
        };
        assert!(
            refused(OTHER).ends_with(
                "\r\nContent-Length: 46\r\n\r\nringfence: refused: it is meant for b.example\n"
            ),
            "{}",
            refused(OTHER)
        );
        let mut said = http(name(), 80);
        let both = format!("{GET}{OTHER}");
        assert_eq!(said.look(both.as_bytes()), Verdict::Through(GET.len() as u64));
        let Verdict::Refuse(objection) = said.look(OTHER.as_bytes()) else { panic!("it went out") };
        assert!(objection.answer.is_empty());
    }

    #[test]
    fn what_the_server_agrees_to_passes() {
        let mut said = http(name(), 80);
        let mut answered = said.answers().unwrap();
        assert_eq!(
            goes_out(&mut *said, UPGRADE.as_bytes(), 5),
            (UPGRADE.into(), "open".to_owned())
        );
        assert_eq!(said.look(b"\x81\x85"), Verdict::NeedMore);
        assert_eq!(answered.look(b"HTTP/1.1 1"), Verdict::Through(10));
        assert_eq!(answered.look(b"01 Switching"), Verdict::Pass);
        assert_eq!(said.look(b"\x81\x85"), Verdict::Pass);

        let mut said = http(name(), 80);
        let mut answered = said.answers().unwrap();
        goes_out(&mut *said, UPGRADE.as_bytes(), 5);
        assert_eq!(answered.look(b"HTTP/1.1 400 Bad Request\r\n"), Verdict::Pass);
        assert_eq!(
            goes_out(&mut *said, OTHER.as_bytes(), 5),
            (Vec::new(), "it is meant for b.example".to_owned())
        );
    }

    #[test]
    fn a_refused_hello_hears_why() {
        let Verdict::Refuse(objection) = tls(name()).look(&[22, 3, 1, 0, 0]) else {
            panic!("it went out")
        };
        assert_eq!(
            (objection.reason.as_str(), objection.answer),
            ("its TLS hello is malformed", ALERT.to_vec())
        );
        let Verdict::Refuse(objection) = tls(name()).look(b"GET") else { panic!("it went out") };
        assert_eq!((objection.reason.as_str(), objection.answer), ("it is not TLS", Vec::new()));
        assert_eq!(tls(name()).look(&[22]), Verdict::NeedMore);
    }
}
