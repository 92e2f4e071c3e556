//! Tests of the protocol's JSON.

use super::*;

#[track_caller]
fn check(message: SessionMessage, json: &str) {
    assert_eq!(serde_json::to_string(&message).unwrap(), json);
    assert_eq!(serde_json::from_str::<SessionMessage>(json).unwrap(), message);
}

#[test]
fn requests_have_the_documented_json() {
    let request = SessionMessage::Request;
    check(request(SessionRequest::Hello { version: 1 }), r#"{"ask":"hello","version":1}"#);
    check(
        request(SessionRequest::Exec(ExecRequest {
            line: ByteText::from(&b"ls"[..]),
            timeout_ms: Some(5),
            ..ExecRequest::default()
        })),
        r#"{"ask":"exec","line":"ls","timeoutMs":5,"stream":false,"input":false}"#,
    );
    check(
        request(SessionRequest::Start(StartRequest {
            command: vec![ByteText::from(&b"cat"[..]), ByteText::from(&b"\xff"[..])],
            ..StartRequest::default()
        })),
        r#"{"ask":"start","command":["cat",{"base64":"/w=="}],"timeoutMs":null,"stream":false,"input":false}"#,
    );
    check(request(SessionRequest::Stop {}), r#"{"ask":"stop"}"#);
    check(
        request(SessionRequest::Answer { question: 1, answer: AskAnswer::AllowOnce }),
        r#"{"ask":"answer","question":1,"answer":"allow_once"}"#,
    );
}

#[test]
fn replies_have_the_documented_json() {
    let reply = SessionMessage::Reply;
    check(
        reply(SessionReply::Output {
            stream: OutputStream::Out,
            data: ByteText::from("é\n".as_bytes()),
        }),
        r#"{"reply":"output","stream":"stdout","data":"é\n"}"#,
    );
    check(
        reply(SessionReply::Error {
            ask: Some("exec".into()),
            error: SessionError::new("busy", "no").with_hint("wait"),
        }),
        r#"{"reply":"error","ask":"exec","error":{"code":"busy","message":"no","causes":[],"hint":"wait","status":125}}"#,
    );
    let result = ExecuteResult { exit_code: 3, ..ExecuteResult::default() };
    let text = serde_json::to_string(&SessionReply::Result(Box::new(result.clone()))).unwrap();
    assert!(
        text.starts_with(r#"{"reply":"result","stdout":"","stderr":"","session":"","exitCode":3,"#)
    );
    assert_eq!(
        serde_json::from_str::<SessionReply>(&text).unwrap(),
        SessionReply::Result(Box::new(result))
    );
}

#[test]
fn unknown_fields_and_requests_are_named() {
    for (json, named) in [
        (r#"{"ask":"exec","line":"ls","timeout":5}"#, "unknown field `timeout`"),
        (r#"{"ask":"inspect","all":true}"#, "unknown field `all`"),
        (r#"{"ask":"fork"}"#, "unknown variant `fork`"),
        (r#"{"ask":"exec"}"#, "missing field `line`"),
        (r#"{"ask":"exec","line":5}"#, "expected a string or an object with `base64`"),
        (r#"{"ask":"exec","line":{"base64":"a"}}"#, "invalid base64"),
    ] {
        let error = serde_json::from_str::<SessionRequest>(json).unwrap_err().to_string();
        assert!(error.contains(named), "{json}: {error}");
    }
}

#[test]
fn reply_fields_of_a_later_version_are_ignored() {
    let json = r#"{"reply":"hello","version":1,"session":"a","later":true}"#;
    assert!(matches!(serde_json::from_str(json), Ok(SessionReply::Hello { version: 1, .. })));
}

#[test]
fn word_is_the_tag() {
    for request in [
        SessionRequest::Hello { version: 1 },
        SessionRequest::Interrupt {},
        SessionRequest::Exec(ExecRequest::default()),
        SessionRequest::Call(CallRequest::default()),
        SessionRequest::Attach { rows: 1, columns: 1 },
    ] {
        assert_eq!(serde_json::to_value(&request).unwrap()["ask"], request.word());
    }
}
