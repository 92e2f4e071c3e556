//! Who was reached, as it comes.

use ringfence_api::ConnectionRecord;

/// Connections as they come: repeats become one with a count, and of different ones as many are
/// kept as anybody will read.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLog {
    kept: Vec<ConnectionRecord>,
    dropped: u64,
}

impl ConnectionLog {
    /// One more, or what is known of one only now: then it counts for none.
    pub(crate) fn note(&mut self, connection: ConnectionRecord) {
        const READABLE: usize = 1000;
        let key = |one: &ConnectionRecord| {
            (one.target.clone(), one.address.clone(), one.program.clone(), one.failed.clone())
        };
        match self.kept.iter().position(|one| key(one) == key(&connection)) {
            Some(at) => {
                let known = &mut self.kept[at];
                known.count += connection.count;
                known.sent = sum(known.sent, connection.sent);
                known.received = sum(known.received, connection.received);
                let unknown =
                    connection.secrets.into_iter().filter(|name| !known.secrets.contains(name));
                known.secrets.extend(unknown.collect::<Vec<_>>());
            }
            None if self.kept.len() < READABLE => self.kept.push(connection),
            None => self.dropped += connection.count,
        }
    }

    /// Those that were kept, and how many others there were.
    pub(crate) fn into_parts(self) -> (Vec<ConnectionRecord>, u64) {
        (self.kept, self.dropped)
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.map_or(other, |one| Some(one + other.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: usize) -> ConnectionRecord {
        ConnectionRecord {
            target: format!("a.org:{port}"),
            address: Some("192.0.2.1:80".into()),
            rule: String::new(),
            origin: String::new(),
            pid: 1,
            program: "curl".into(),
            time_ms: 0,
            sent: None,
            received: None,
            failed: None,
            secrets: Vec::new(),
            count: 1,
        }
    }

    #[test]
    fn they_are_counted_as_they_come_and_bounded() {
        let mut connections = ConnectionLog::default();
        (0..1500).for_each(|port| (0..2).for_each(|_| connections.note(connection(port))));
        let (kept, dropped) = connections.into_parts();
        assert_eq!((kept.len(), kept[999].count, dropped), (1000, 2, 1000));
    }

    #[test]
    fn what_was_carried_is_added_to_what_is_known() {
        let mut connections = ConnectionLog::default();
        connections.note(connection(1));
        connections.note(connection(1));
        for _ in 0..2 {
            connections.note(ConnectionRecord {
                sent: Some(3),
                received: Some(5),
                count: 0,
                ..connection(1)
            });
        }
        for name in ["A", "B", "A"] {
            connections.note(ConnectionRecord {
                secrets: vec![name.into()],
                count: 0,
                ..connection(1)
            });
        }
        connections.note(ConnectionRecord { failed: Some("no".into()), ..connection(1) });
        let (kept, _) = connections.into_parts();
        assert_eq!((kept.len(), kept[0].secrets.join(" ").as_str()), (2, "A B"));
        assert_eq!((kept[0].count, kept[0].sent, kept[0].received), (2, Some(6), Some(10)));
    }
}
