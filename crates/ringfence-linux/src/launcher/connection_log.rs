//! Log of connections.

use ringfence_api::ConnectionRecord;

/// Connections of a run. Repeats become one entry with a count; the number of entries is limited.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLog {
    kept: Vec<ConnectionRecord>,
    dropped: u64,
}

impl ConnectionLog {
    /// Adds a connection. An update to a known one has count 0.
    pub(crate) fn record(&mut self, connection: ConnectionRecord) {
        const MAX_KEPT: usize = 1000;
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
            None if self.kept.len() < MAX_KEPT => self.kept.push(connection),
            None => self.dropped += connection.count,
        }
    }

    /// The kept entries, and the count of dropped connections.
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
    fn repeats_are_counted_and_entries_are_bounded() {
        let mut connections = ConnectionLog::default();
        (0..1500).for_each(|port| (0..2).for_each(|_| connections.record(connection(port))));
        let (kept, dropped) = connections.into_parts();
        assert_eq!((kept.len(), kept[999].count, dropped), (1000, 2, 1000));
    }

    #[test]
    fn traffic_is_added_to_the_known_connection() {
        let mut connections = ConnectionLog::default();
        connections.record(connection(1));
        connections.record(connection(1));
        for _ in 0..2 {
            connections.record(ConnectionRecord {
                sent: Some(3),
                received: Some(5),
                count: 0,
                ..connection(1)
            });
        }
        for name in ["A", "B", "A"] {
            connections.record(ConnectionRecord {
                secrets: vec![name.into()],
                count: 0,
                ..connection(1)
            });
        }
        connections.record(ConnectionRecord { failed: Some("no".into()), ..connection(1) });
        let (kept, _) = connections.into_parts();
        assert_eq!((kept.len(), kept[0].secrets.join(" ").as_str()), (2, "A B"));
        assert_eq!((kept[0].count, kept[0].sent, kept[0].received), (2, Some(6), Some(10)));
    }
}
