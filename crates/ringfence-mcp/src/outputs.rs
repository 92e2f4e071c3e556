//! Command output beyond the part shown in an answer; clients read it as resources.

use std::collections::VecDeque;
use std::sync::Mutex;

use ringfence_api::CapturedOutput;
use rmcp::model::Resource;

use crate::sandbox::lock;

/// Bytes of text in one answer: about 16,000 tokens.
pub(crate) const SHOWN: usize = 64 << 10;
/// Bytes kept per sandbox; the oldest output is dropped first.
const KEPT: usize = 16 << 20;
/// The URI prefix before the number of an output.
const SCHEME: &str = "ringfence://output/";

/// The kept output of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Outputs(Mutex<OutputStoreState>);

#[derive(Debug, Default)]
struct OutputStoreState {
    next: u64,
    kept: VecDeque<KeptOutput>,
}

#[derive(Debug, Clone)]
struct KeptOutput {
    number: u64,
    stream: &'static str,
    text: String,
}

impl KeptOutput {
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

/// A stream as shown in an answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ShownOutput {
    pub(crate) text: String,
    /// Bytes left out.
    pub(crate) dropped: u64,
    /// The resource with all captured bytes. Answers name it in the text only: clients that do not
    /// know resource links among the content fail on them.
    pub(crate) link: Option<Resource>,
}

impl From<ShownOutput> for CapturedOutput {
    fn from(shown: ShownOutput) -> Self {
        Self { bytes: shown.text.into_bytes(), dropped: shown.dropped }
    }
}

impl Outputs {
    /// Shows the beginning and the end of a stream in at most `limit` bytes. `dropped` bytes were
    /// not captured.
    pub(crate) fn show(
        &self,
        stream: &'static str,
        text: String,
        dropped: u64,
        limit: usize,
    ) -> ShownOutput {
        if text.len() <= limit {
            return ShownOutput { text, dropped, link: None };
        }
        let (head, tail) = head_and_tail(&text, limit);
        let left_out = dropped + (text.len() - head.len() - tail.len()) as u64;
        let (head, tail) = (head.to_owned(), tail.to_owned());
        let link = self.keep(stream, text);
        let notice = format!(
            "[{left_out} bytes of {stream} left out here; resource {} has all of it]",
            link.uri
        );
        ShownOutput {
            text: format!("{head}\n{notice}\n{tail}"),
            dropped: left_out,
            link: Some(link),
        }
    }

    fn keep(&self, stream: &'static str, text: String) -> Resource {
        let mut inner = lock(&self.0);
        inner.next += 1;
        let kept = KeptOutput { number: inner.next, stream, text };
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
        lock(&self.0).kept.iter().rev().map(KeptOutput::resource).collect()
    }

    pub(crate) fn read(&self, uri: &str) -> Option<String> {
        lock(&self.0).kept.iter().find(|kept| kept.uri() == uri).map(|kept| kept.text.clone())
    }
}

/// Splits [`SHOWN`] between two streams.
pub(crate) fn split_budget(one: usize, other: usize) -> (usize, usize) {
    let half = SHOWN / 2;
    match (one <= half, other <= half) {
        (true, _) => (half, SHOWN - one),
        (_, true) => (SHOWN - other, half),
        _ => (half, half),
    }
}

/// The beginning and the end of a text, cut at character boundaries.
fn head_and_tail(text: &str, limit: usize) -> (&str, &str) {
    let head = (0..=limit / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let tail = (text.len() - limit / 2..=text.len())
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
            ShownOutput { text: "short".into(), ..ShownOutput::default() }
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
        assert_eq!(split_budget(10, 1 << 20), (SHOWN / 2, SHOWN - 10));
        assert_eq!(split_budget(1 << 20, 10), (SHOWN - 10, SHOWN / 2));
        assert_eq!(split_budget(1 << 20, 1 << 20), (SHOWN / 2, SHOWN / 2));
    }
}
