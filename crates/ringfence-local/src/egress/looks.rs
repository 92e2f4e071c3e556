//! Looking at what is said first: whether it is said to the host that was dialed.

use ringfence_egress::Name as Said;
use ringfence_egress::peek::requests::{Next, Requests};
use ringfence_egress::peek::{self, Peek, hello};
use ringfence_egress::relay::{Check as Looks, Objection, Verdict};
use ringfence_policy::{Check, Name};

/// Who looks at one connection.
pub(super) type Look = Box<dyn Looks>;

/// For a connection to `name`.
pub(super) fn by(check: Check, name: &Name, port: u16) -> Look {
    let dialed = Said::new(name.as_str()).expect("a name is a name");
    match check {
        Check::Tls => Box::new(Hello { reader: hello::Reader::default(), dialed }),
        Check::Http => Box::new(Http { requests: Requests::new(dialed, port) }),
    }
}

struct Hello {
    reader: hello::Reader,
    dialed: Said,
}

impl Looks for Hello {
    fn look(&mut self, held: &[u8]) -> Verdict {
        match self.reader.read(held) {
            Peek::NeedMore => Verdict::NeedMore,
            Peek::Found(said) => peek::agree(&said, &self.dialed).map_or_else(|objection| refused(&objection), |()| Verdict::Pass),
            Peek::Refused(objection) => refused(&objection),
        }
    }
}

struct Http {
    requests: Requests,
}

impl Looks for Http {
    fn look(&mut self, held: &[u8]) -> Verdict {
        let checked = self.requests.check(held);
        match checked.next {
            Next::Refused(objection) => refused(&objection),
            Next::Opaque => Verdict::Pass,
            Next::More | Next::Answer if checked.clear == 0 => Verdict::NeedMore,
            Next::More | Next::Answer => Verdict::Through(checked.clear as u64),
        }
    }
}

fn refused(objection: &peek::Objection) -> Verdict {
    Verdict::Refuse(Objection { reason: objection.to_string(), answer: Vec::new() })
}
