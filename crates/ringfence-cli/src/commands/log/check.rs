//! `ringfence log --verify`

use std::path::Path;
use std::process::ExitCode;

use ringfence_audit::{RecordHash, VerifyFinding, VerifyReport, verify};
use serde_json::{Value, json};

use super::LogArgs;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable};

pub(super) fn run(directory: &Path, arguments: &LogArgs) -> Result<ExitCode, CliError> {
    let kept = arguments.kept.iter().map(|word| hash(word)).collect::<Result<Vec<_>, _>>()?;
    let report = verify(directory, &kept)?;
    if arguments.json {
        output::print_json(&as_json(directory, &report))?;
    } else {
        output::print_text(&as_text(directory, &report, ColorMode::for_stdout()))?;
    }
    Ok(ExitCode::from(u8::from(!report.is_intact())))
}

fn hash(word: &str) -> Result<RecordHash, CliError> {
    RecordHash::parse(word).ok_or_else(|| CliError::Usage {
        what: format!("`{word}` is not a hash"),
        hint: "copy the 64 hex digits that `ringfence log --verify` printed".into(),
    })
}

/// `DIRECTORY/FILE:LINE`
fn position(directory: &Path, finding: &VerifyFinding) -> String {
    let file = directory.join(&finding.file);
    finding
        .line
        .map_or_else(|| file.display().to_string(), |line| format!("{}:{line}", file.display()))
}

fn as_text(directory: &Path, report: &VerifyReport, paint: ColorMode) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let flaw = finding.flaw.to_string();
        let flaw = if finding.flaw.is_tampering() { paint.bad(&flaw) } else { paint.weak(&flaw) };
        text.push_str(&format!("{}: {flaw}\n", printable(&position(directory, finding))));
    }
    let plural =
        |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let counted =
        format!("{} in {}", plural(report.records, "record"), plural(report.files as u64, "file"));
    let wrong = report.findings.iter().filter(|finding| finding.flaw.is_tampering()).count();
    match wrong {
        0 => text.push_str(&format!("{counted}: {}\n", paint.good("no tampering found"))),
        wrong => {
            text.push_str(&format!("{counted}: {}\n", paint.bad(&plural(wrong as u64, "finding"))))
        }
    }
    if let Some(head) = report.head {
        text.push_str(&format!("record {} has the hash {}\n", head.seq, head.hash));
    }
    text
}

fn as_json(directory: &Path, report: &VerifyReport) -> Value {
    let finding = |finding: &VerifyFinding| {
        let mut object = json!({ "file": directory.join(&finding.file), "line": finding.line, "message": finding.flaw.to_string() });
        if let (Value::Object(object), Ok(Value::Object(flaw))) =
            (&mut object, serde_json::to_value(finding.flaw))
        {
            object.extend(flaw);
        }
        object
    };
    json!({
        "directory": directory,
        "intact": report.is_intact(),
        "records": report.records,
        "files": report.files,
        "head": report.head,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use ringfence_audit::LogFlaw;

    use super::*;

    fn report(flaw: LogFlaw) -> VerifyReport {
        let findings = vec![VerifyFinding { file: "00000001.jsonl".into(), line: Some(3), flaw }];
        VerifyReport { records: 5, files: 1, head: None, findings }
    }

    #[test]
    fn flaw_is_named_with_file_and_line() {
        let changed = report(LogFlaw::Changed { seq: 3 });
        let text = as_text(Path::new("/log"), &changed, ColorMode::Plain);
        let expect = "/log/00000001.jsonl:3: record 3 was changed: its content does not match its hash\n5 records in 1 file: 1 finding\n";
        assert_eq!(text, expect);
        let json = as_json(Path::new("/log"), &changed);
        assert_eq!(
            (&json["intact"], &json["findings"][0]["code"]),
            (&json!(false), &json!("changed"))
        );
        assert_eq!(json["findings"][0]["file"], "/log/00000001.jsonl");
    }

    #[test]
    fn truncated_last_record_is_reported_but_is_not_tampering() {
        let text = as_text(Path::new("/log"), &report(LogFlaw::Unfinished), ColorMode::Plain);
        assert!(
            text.contains("unfinished")
                && text.ends_with("5 records in 1 file: no tampering found\n"),
            "{text}"
        );
    }
}
