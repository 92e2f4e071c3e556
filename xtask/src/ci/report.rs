//! The JUnit report that nextest writes.

/// One test of a report.
#[derive(Debug, PartialEq)]
pub(super) struct TestCase {
    /// Binary and test, as nextest prints them.
    pub(super) name: String,
    pub(super) seconds: f64,
    /// True if it failed at first and passed in a retry.
    pub(super) is_flaky: bool,
}

/// Reads the tests of a report.
pub(super) fn cases(report: &str) -> Vec<TestCase> {
    report.split("<testcase ").skip(1).map(case).collect()
}

/// The `count` slowest tests, slowest first.
pub(super) fn slowest(cases: &[TestCase], count: usize) -> Vec<&TestCase> {
    let mut sorted: Vec<&TestCase> = cases.iter().collect();
    sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    sorted.truncate(count);
    sorted
}

/// One test, from the text after `<testcase `.
fn case(text: &str) -> TestCase {
    let (head, body) = text.split_once('>').unwrap_or((text, ""));
    let attribute = |name: &str| {
        head.split_once(&format!("{name}=\""))
            .and_then(|(_, rest)| rest.split('"').next())
            .unwrap_or_default()
    };
    TestCase {
        name: format!("{} {}", attribute("classname"), attribute("name")),
        seconds: attribute("time").parse().unwrap_or(0.0),
        is_flaky: body.contains("<flakyFailure"),
    }
}

#[cfg(test)]
mod tests {
    use super::{TestCase, cases, slowest};

    const REPORT: &str = r#"<?xml version="1.0"?>
<testsuites name="nextest-run" tests="2" time="3.0">
  <testsuite name="a::b" tests="2">
    <testcase name="one::holds" classname="a::b" timestamp="x" time="0.250">
    </testcase>
    <testcase name="two::holds" classname="a::b" timestamp="x" time="2.5">
      <flakyFailure timestamp="x" time="1" type="test failure"><system-out>text</system-out></flakyFailure>
    </testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn name_time_and_flakiness_of_each_test_are_read() {
        let wanted =
            |name: &str, seconds, is_flaky| TestCase { name: name.to_owned(), seconds, is_flaky };
        assert_eq!(
            cases(REPORT),
            [wanted("a::b one::holds", 0.25, false), wanted("a::b two::holds", 2.5, true)]
        );
    }

    #[test]
    fn slowest_tests_come_first() {
        let cases = cases(REPORT);
        assert_eq!(
            slowest(&cases, 1).iter().map(|case| case.name.as_str()).collect::<Vec<_>>(),
            ["a::b two::holds"]
        );
    }
}
