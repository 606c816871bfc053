//! `read_file`, `list_files`, and the files of a call.

use super::*;

#[tokio::test]
async fn wanted_files_are_described_to_the_model_and_asked_for_in_every_call() {
    let scripted = Arc::new(Scripted::new());
    let code = CodeExecution::over(Interpreters::Scripted(scripted.clone()));
    let wanted = [
        WantedFile {
            name: "report.xlsx".into(),
            format: Some("xlsx".into()),
            description: Some("one sheet per year".into()),
        },
        WantedFile {
            name: "b.csv".into(),
            format: None,
            description: None,
        },
    ];
    let tools = code.tools_for(&wanted);
    let text = tools[0].definition().description();
    assert!(
        text.ends_with("name:\n  - report.xlsx (xlsx): one sheet per year\n  - b.csv"),
        "{text}"
    );
    let (invocation, _progress) =
        invocation(&json!({"code": "1", "outputs": ["b.csv", "/mnt/data/c"]}));
    tools[0].call(&invocation).await.unwrap();
    let expected = r#"run 64 "1" ["b.csv", "c", "report.xlsx"] ["data.csv"] 60s"#;
    assert_eq!(*scripted.asked.lock(), [expected]);
    assert_eq!(tools.len(), 4);
}

#[tokio::test]
async fn outputs_that_lead_out_of_the_working_directory_are_told_and_the_code_runs() {
    let arguments = json!({"code": "1", "outputs": ["../x"]});
    let output = call(Scripted::new(), EXECUTE_PYTHON, arguments)
        .await
        .unwrap();
    assert!(
        output
            .content
            .starts_with("notices:\n- '../x' is not handed over"),
        "{}",
        output.content
    );
}

#[tokio::test]
async fn an_output_that_is_not_there_is_told_once_and_a_wanted_one_not_at_all() {
    let outcome = CellOutcome {
        files: vec![CapturedFile {
            name: "a".into(),
            bytes: Bytes::new(),
        }],
        notices: vec!["'b' is a symbolic link".into()],
        ..nothing()
    };
    let code = CodeExecution::over(Interpreters::Scripted(Arc::new(Scripted::ending(Ok(
        outcome,
    )))));
    let wanted = WantedFile {
        name: "d".into(),
        format: None,
        description: None,
    };
    let (invocation, _progress) = invocation(&json!({"code": "1", "outputs": ["a", "b", "c"]}));
    let output = code.tools_for(&[wanted])[0]
        .call(&invocation)
        .await
        .unwrap();
    assert!(
        output.content.ends_with(
            "notices:\n- 'b' is a symbolic link\n\
             - 'c' is not handed over: there is no such file in the working directory"
        ),
        "{}",
        output.content
    );
}

#[tokio::test]
async fn a_text_file_is_shown_in_pages_of_lines() {
    let content = b"a\nb\nc\nd\n";
    let page = async |arguments| read(content, arguments).await.unwrap();
    assert_eq!(
        page(json!({"name": "a.csv"})).await,
        "a.csv (text/csv, 8 bytes), lines 1-4 of 4:\n\na\nb\nc\nd"
    );
    assert_eq!(
        page(json!({"name": "/mnt/data/a.csv", "offset": 2, "limit": 2})).await,
        "a.csv (text/csv, 8 bytes), lines 2-3 of 4; go on with offset 4:\n\nb\nc"
    );
    let error = read(content, json!({"name": "a.csv", "offset": 5})).await;
    assert!(error.unwrap_err().to_string().contains("only 4 lines"));
    assert_eq!(
        read(b"", json!({"name": "a.csv"})).await.unwrap(),
        "a.csv (text/plain, 0 bytes) is empty.".replace("text/plain", "text/csv")
    );
}

#[tokio::test]
async fn long_lines_and_long_pages_are_cut_and_say_so() {
    let lines: &'static [u8] = Vec::leak(format!("{}\nshort\n", "x".repeat(5000)).into_bytes());
    let text = read(lines, json!({"name": "a.csv"})).await.unwrap();
    assert!(
        text.contains("1 long line(s) cut to 4000 characters"),
        "{text}"
    );
    assert!(text.ends_with("x [line cut here]\nshort"), "{text}");
    let many: &'static [u8] = Vec::leak("y".repeat(999).into_bytes());
    let many: &'static [u8] = Vec::leak([many, b"\n"].concat().repeat(60));
    let text = read(many, json!({"name": "a.csv"})).await.unwrap();
    assert!(
        text.contains("lines 1-40 of 60; go on with offset 41"),
        "{text}"
    );
    assert!(text.chars().count() < 41_000);
}

#[tokio::test]
async fn a_file_that_is_no_text_is_described_and_one_that_is_missing_is_told() {
    let text = read(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", json!({"name": "a.csv"})).await;
    assert_eq!(
        text.unwrap(),
        "a.csv (image/png, 16 bytes) is not a text file. Use execute_python to look into it."
    );
    let error = read(b"", json!({"name": "b"})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "'b' cannot be read: there is no such file"
    );
    assert!(matches!(error, ToolError::Rejected(_)));
}

#[tokio::test]
async fn files_are_listed_and_variables_reset() {
    let scripted = Scripted {
        files: vec![
            ("a.csv", Bytes::from_static(b"abc")),
            ("sub/b.bin", Bytes::from_static(&[0; 2048])),
        ],
        ..Scripted::new()
    };
    let output = call(scripted, LIST_FILES, json!({})).await.unwrap();
    assert_eq!(
        output.content,
        "2 files in the working directory:\n- a.csv (3 bytes)\n- sub/b.bin (2 KiB)"
    );
    let output = call(Scripted::new(), LIST_FILES, json!({})).await.unwrap();
    assert_eq!(output.content, "The working directory is empty.");
    let output = call(Scripted::new(), RESET_PYTHON, json!({}))
        .await
        .unwrap();
    assert!(
        output
            .content
            .contains("Files in the working directory are kept")
    );
}

#[tokio::test]
async fn a_file_that_got_another_name_is_told_with_every_tool() {
    let scripted = || Scripted {
        files: vec![("a.txt", Bytes::from_static(b"x"))],
        notices: vec!["the file 'a.txt' is called 'a-2.txt' here".into()],
        ..Scripted::new()
    };
    for (tool, arguments, rest) in [
        (LIST_FILES, json!({}), "1 file in"),
        (READ_FILE, json!({"name": "a.txt"}), "a.txt (text/plain"),
    ] {
        let output = call(scripted(), tool, arguments).await.unwrap();
        let told = "Note: the file 'a.txt' is called 'a-2.txt' here.\n\n";
        let after = output.content.strip_prefix(told).unwrap();
        assert!(after.starts_with(rest), "{after}");
    }
}
