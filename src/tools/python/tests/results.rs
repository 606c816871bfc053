//! What the model is told of a cell.

use super::*;
use crate::ToolImage;

#[tokio::test]
async fn a_result_is_labelled_section_by_section() {
    let outcome = CellOutcome {
        stdout: "hello\n".into(),
        stderr: "careful\n".into(),
        value: Some(sandbox::Value {
            text: "3".into(),
            kind: "int".into(),
        }),
        texts: vec!["a  b\n1  2".into()],
        images: vec![image("image/png", b"one"), image("image/jpeg", b"two")],
        frames: vec![image("image/png", b"f")],
        files: vec![CapturedFile {
            name: "sub/a.csv".into(),
            bytes: Bytes::from_static(b"a,b\n"),
        }],
        notices: vec!["the interpreter is new".into()],
        ..nothing()
    };
    let output = ran(outcome).await;
    assert_eq!(
        output.content,
        "stdout:\nhello\n\nstderr:\ncareful\n\ndisplayed:\na  b\n1  2\n\nresult:\n3\n\n\
         images:\n2 images captured, 1 animation frame captured\n\n\
         files:\nhanded to the user:\n- sub/a.csv (text/csv, 4 bytes)\n\nnotices:\n- the interpreter is new"
    );
    assert_eq!(output.status, OutputStatus::Ok);
    let shown = |image: &ToolImage| {
        (
            image.mime_type.to_string(),
            image.content.clone().decode().to_vec(),
        )
    };
    let images: Vec<_> = output.images.iter().map(shown).collect();
    let expected = [("image/png", &b"one"[..]), ("image/jpeg", b"two")];
    assert_eq!(
        images,
        expected.map(|(mime_type, bytes)| (mime_type.to_owned(), bytes.to_vec()))
    );
    assert_eq!(output.frames[0].content.clone().decode(), &b"f"[..]);
    let file = &output.files[0];
    assert_eq!((&*file.name, &*file.path), ("a.csv", "sub/a.csv"));
    assert_eq!(
        (&*file.mime_type, &*file.content),
        ("text/csv", &b"a,b\n"[..])
    );
    let detail = serde_json::to_value(code(&output)).unwrap();
    let expected = json!({
        "code": "x", "stdout": "hello\n", "stderr": "careful\n", "result": "a  b\n1  2\n3",
        "working_directory": "/mnt/data", "execution_time_ms": 12,
    });
    assert_eq!(detail, expected);
}

fn image(mime_type: &'static str, bytes: &'static [u8]) -> Image {
    Image {
        mime_type,
        bytes: Bytes::from_static(bytes),
    }
}

#[tokio::test]
async fn a_call_without_output_says_so() {
    let output = ran(CellOutcome {
        stdout: "\n".into(),
        ..nothing()
    })
    .await;
    assert_eq!(output.content, "(no output)");
    assert_eq!(output.status, OutputStatus::Ok);
    assert!(output.notices.is_empty());
}

#[tokio::test]
async fn an_exception_is_an_error_with_its_traceback_and_a_clean_exit_is_none() {
    let traceback = "Traceback (most recent call last):\n  Cell 1, line 1\nValueError: no\n";
    for (error, status, shown) in [
        (
            error("ValueError", "no", traceback),
            OutputStatus::Error,
            traceback.trim_end(),
        ),
        (
            error("ValueError", "no", ""),
            OutputStatus::Error,
            "ValueError: no",
        ),
        (
            error("SystemExit", "sys.exit(0) was called", "SystemExit: 0\n"),
            OutputStatus::Ok,
            "sys.exit(0) was called",
        ),
        (
            error("SystemExit", "sys.exit(3) was called", "SystemExit: 3\n"),
            OutputStatus::Error,
            "SystemExit: 3\nsys.exit(3) was called",
        ),
    ] {
        let output = ran(CellOutcome {
            stdout: "before\n".into(),
            error: Some(error),
            ..nothing()
        })
        .await;
        let expected = format!("stdout:\nbefore\n\nexception:\n{shown}");
        assert_eq!((&output.content, output.status), (&expected, status));
        assert_eq!(code(&output).exception.as_deref(), Some(shown));
    }
}

#[tokio::test]
async fn every_end_has_its_own_words_and_says_what_is_left() {
    let mut texts = Vec::new();
    for (end, status, words, lost) in [
        (
            CellEnd::Interrupted,
            OutputStatus::Timeout,
            "interrupted after 60 s",
            false,
        ),
        (
            CellEnd::TimedOut,
            OutputStatus::Timeout,
            "could not be interrupted",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Memory),
            OutputStatus::Error,
            "Out of memory: the code used more than 1 GiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Disk),
            OutputStatus::Error,
            "Disk full: the code wrote more than 256 MiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Processes),
            OutputStatus::Error,
            "more than 64 processes and threads",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Output),
            OutputStatus::Error,
            "Too much output: the code printed more than 64 MiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Protocol),
            OutputStatus::Error,
            "messages that it must not send",
            true,
        ),
        (
            CellEnd::Crashed,
            OutputStatus::Error,
            "ended unexpectedly",
            true,
        ),
    ] {
        let output = ran(CellOutcome {
            stdout: "so far\n".into(),
            end,
            ..nothing()
        })
        .await;
        let text = &output.content;
        assert!(text.starts_with("stdout:\nso far\n\nended:\n"), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(
            text.contains("variables and imports are lost, files are kept"),
            lost,
            "{text}"
        );
        assert_eq!(
            text.contains("Variables and files are kept"),
            !lost,
            "{text}"
        );
        assert_eq!(output.status, status, "{text}");
        assert_eq!(output.notices.len(), usize::from(lost), "{text}");
        texts.push(output.content.clone());
    }
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 8);
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_told_in_the_sandboxes_words() {
    let start = InterpreterError::Start(SandboxError::Unavailable("/secret/path".into()));
    for (error, expected) in [
        (
            InterpreterError::Overloaded,
            "too many code calls are waiting",
        ),
        (start, "could not be started"),
        (InterpreterError::Closed, "shutting down"),
    ] {
        let scripted = Scripted::ending(Err(error));
        let error = call(scripted, EXECUTE_PYTHON, json!({"code": "1"}))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(expected) && !text.contains("secret"),
            "{text}"
        );
        assert!(matches!(error, ToolError::Failed { .. }));
    }
}

#[tokio::test]
async fn clients_are_not_shown_a_path_of_the_host() {
    for (path, shown) in [
        ("/mnt/data", "/mnt/data"),
        ("/var/lib/loopwright/work/run-1/2/data", "."),
    ] {
        let output = ran(CellOutcome {
            working_directory: path.into(),
            ..nothing()
        })
        .await;
        assert_eq!(code(&output).working_directory, shown);
    }
}
