//! Output of commands beyond the part that an answer shows, for clients to read as resources.

use std::collections::VecDeque;
use std::sync::Mutex;

use rmcp::model::Resource;

use crate::sandbox::lock;

/// Bytes of text in one answer: some 16,000 tokens.
pub(crate) const SHOWN: usize = 64 << 10;
/// Bytes that one sandbox keeps; the oldest are forgotten first.
const KEPT: usize = 16 << 20;
/// In front of the number of an output.
const SCHEME: &str = "ringfence://output/";

/// All that is kept of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    kept: VecDeque<Kept>,
}

#[derive(Debug, Clone)]
struct Kept {
    number: u64,
    stream: &'static str,
    text: String,
}

impl Kept {
    fn uri(&self) -> String {
        format!("{SCHEME}{}/{}", self.number, self.stream)
    }

    fn resource(&self) -> Resource {
        let mut resource =
            Resource::new(self.uri(), format!("{} of command {}", self.stream, self.number));
        (resource.mime_type, resource.size) =
            (Some("text/plain".into()), Some(self.text.len() as u64));
        resource
    }
}

/// A stream as an answer shows it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// Bytes that are missing.
    pub(crate) dropped: u64,
    /// Where all that was captured is. Answers name it in the text only: clients that know nothing
    /// of links among the content break on them.
    pub(crate) link: Option<Resource>,
}

impl Outputs {
    /// Shows a stream in at most `most` bytes: its beginning and its end. `dropped` bytes were not
    /// captured.
    pub(crate) fn show(
        &self,
        stream: &'static str,
        text: String,
        dropped: u64,
        most: usize,
    ) -> Shown {
        if text.len() <= most {
            return Shown { text, dropped, link: None };
        }
        let (head, tail) = ends(&text, most);
        let left_out = dropped + (text.len() - head.len() - tail.len()) as u64;
        let (head, tail) = (head.to_owned(), tail.to_owned());
        let link = self.keep(stream, text);
        let where_it_is =
            format!("[{left_out} bytes of {stream} left out here; resource {} has it]", link.uri);
        Shown {
            text: format!("{head}\n{where_it_is}\n{tail}"),
            dropped: left_out,
            link: Some(link),
        }
    }

    fn keep(&self, stream: &'static str, text: String) -> Resource {
        let mut inner = lock(&self.0);
        inner.next += 1;
        let kept = Kept { number: inner.next, stream, text };
        let resource = kept.resource();
        inner.kept.push_back(kept);
        while inner.kept.len() > 1
            && inner.kept.iter().map(|kept| kept.text.len()).sum::<usize>() > KEPT
        {
            inner.kept.pop_front();
        }
        resource
    }

    /// All resources, newest first.
    pub(crate) fn list(&self) -> Vec<Resource> {
        lock(&self.0).kept.iter().rev().map(Kept::resource).collect()
    }

    pub(crate) fn read(&self, uri: &str) -> Option<String> {
        lock(&self.0).kept.iter().find(|kept| kept.uri() == uri).map(|kept| kept.text.clone())
    }
}

/// Shares of two streams that have to fit into [`SHOWN`] together.
pub(crate) fn shares(one: usize, other: usize) -> (usize, usize) {
    let half = SHOWN / 2;
    match (one <= half, other <= half) {
        (true, _) => (half, SHOWN - one),
        (_, true) => (SHOWN - other, half),
        _ => (half, half),
    }
}

/// The beginning and the end of a text, cut between characters.
fn ends(text: &str, most: usize) -> (&str, &str) {
    let head = (0..=most / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let tail = (text.len() - most / 2..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    (&text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_is_cut_between_characters_and_kept_whole() {
        let outputs = Outputs::default();
        let text = "é".repeat(5000);
        let shown = outputs.show("stdout", text.clone(), 3, 1001);
        assert!(
            shown.text.len() < 1200 && shown.text.starts_with('é') && shown.text.ends_with('é'),
            "{}",
            shown.text
        );
        assert_eq!(shown.dropped, 3 + 10_000 - 1000);
        let link = shown.link.expect("it is kept");
        assert!(shown.text.contains(&link.uri));
        assert_eq!(outputs.read(&link.uri), Some(text));
        assert_eq!(
            outputs.show("stdout", "short".into(), 0, 1000),
            Shown { text: "short".into(), ..Shown::default() }
        );
    }

    #[test]
    fn oldest_output_is_forgotten_first() {
        let outputs = Outputs::default();
        let uris: Vec<String> = (0..6)
            .map(|_| {
                outputs.show("stderr", "x".repeat(KEPT / 4), 0, 10).link.expect("it is kept").uri
            })
            .collect();
        assert!(outputs.read(&uris[0]).is_none() && outputs.read(&uris[1]).is_none());
        assert_eq!(outputs.list().len(), 4);
        assert_eq!(outputs.list()[0].uri, uris[5]);
    }

    #[test]
    fn two_streams_fit_together() {
        assert_eq!(shares(10, 1 << 20), (SHOWN / 2, SHOWN - 10));
        assert_eq!(shares(1 << 20, 10), (SHOWN - 10, SHOWN / 2));
        assert_eq!(shares(1 << 20, 1 << 20), (SHOWN / 2, SHOWN / 2));
    }
}
