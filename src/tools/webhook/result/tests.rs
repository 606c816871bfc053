use serde_json::json;

use super::*;
use crate::{ToolFile, ToolImage};

const JSON: &str = "application/json";

fn content(body: &str) -> String {
    let output = parse(&Bytes::copy_from_slice(body.as_bytes()), JSON).unwrap();
    let expected = text_output(output.content.clone());
    assert_eq!(output, expected, "{body}");
    output.content
}

fn error(body: &str) -> String {
    parse(&Bytes::copy_from_slice(body.as_bytes()), JSON)
        .unwrap_err()
        .to_string()
}

#[test]
fn content_is_accepted_in_each_of_its_forms() {
    for (body, expected) in [
        (r#"{"content":"a\n\u00e4"}"#, "a\nä"),
        (r#"{"content":null}"#, ""),
        (r#"{"content":""}"#, ""),
        (
            r#"{"content":{"b": 1.50, "a": [1, "x \" y"]}}"#,
            r#"{"b":1.50,"a":[1,"x \" y"]}"#,
        ),
        (r#"{"content":[]}"#, ""),
        (r#"{"content":[{"id": 1}, 2]}"#, r#"[{"id":1},2]"#),
        (r#"{"content":[{"type":"row"}]}"#, r#"[{"type":"row"}]"#),
        (
            r#"{"content":12345678901234567890123}"#,
            "12345678901234567890123",
        ),
        (
            r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#,
            "a\nb",
        ),
        (
            r#"{"content":[{"type":"output_text","text":"a","annotations":[]}]}"#,
            "a",
        ),
        (
            r#"{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://h/x.png"}}]}"#,
            "a\nhttps://h/x.png",
        ),
        (
            r#"{"content":"a","is_error":null,"terminate":false,"files":[],"images":null,"more":1}"#,
            "a",
        ),
    ] {
        assert_eq!(content(body), expected, "{body}");
    }
}

#[test]
fn a_body_without_the_content_key_is_the_content() {
    for (body, expected) in [
        ("", ""),
        (" \n", ""),
        ("null", ""),
        (r#""a \"b\"""#, r#"a "b""#),
        ("true", "true"),
        ("1.50\n", "1.50"),
        (r#"{"z": 1, "a": [ ]}"#, r#"{"z": 1, "a": [ ]}"#),
        ("[1, 2]", "[1, 2]"),
        (r#"{"is_error":true}"#, r#"{"is_error":true}"#),
        ("plain {text}\n", "plain {text}\n"),
        (r#"{"content":"a"} x"#, r#"{"content":"a"} x"#),
        ("\u{feff}{\"content\":\"a\"}", "a"),
    ] {
        assert_eq!(content(body), expected, "{body}");
    }
}

#[test]
fn flags_images_and_files_are_parsed() {
    let body = json!({
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "image", "data": "BBBB", "mimeType": "image/jpeg"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,CCCC"}},
            {"type": "input_image", "image_url": "data:IMAGE/WEBP;base64,DDDD"},
        ],
        "is_error": true,
        "terminate": true,
        "images": ["EEE=", "data:image/gif;base64,FF\r\nFF"],
        "files": [
            {"name": "../../etc/a\u{0}b.txt", "mime_type": "text/plain; charset=utf-8", "data": "YWJj"},
            {"name": "C:\\x\\y.csv", "data": "YQ=="},
            {"name": "..", "mime_type": "no type", "data": ""},
        ],
    });
    let file = |name: &str, mime_type: &str, content: &'static str| ToolFile {
        name: name.into(),
        path: name.into(),
        mime_type: mime_type.into(),
        content: content.into(),
    };
    let expected = ToolOutput {
        content: "see".into(),
        status: OutputStatus::Error,
        terminate: true,
        images: [
            ("image/png", &[0, 0, 0][..]),
            ("image/jpeg", &[4, 16, 65]),
            ("image/png", &[8, 32, 130]),
            ("image/webp", &[12, 48, 195]),
            ("image/png", &[16, 65]),
            ("image/gif", &[20, 81, 69]),
        ]
        .map(|(mime_type, content)| ToolImage {
            mime_type: mime_type.into(),
            content: content.into(),
        })
        .to_vec(),
        files: vec![
            file("ab.txt", "text/plain; charset=utf-8", "abc"),
            file("y.csv", "application/octet-stream", "a"),
            file("file", "application/octet-stream", ""),
        ],
        ..ToolOutput::default()
    };
    assert_eq!(parse(&body.to_string().into(), JSON).unwrap(), expected);
}

#[test]
fn long_file_names_are_cut_between_characters() {
    let body = json!({"content": "", "files": [{"name": "ä".repeat(200), "data": ""}]});
    let output = parse(&body.to_string().into(), JSON).unwrap();
    assert_eq!(output.files[0].name, "ä".repeat(127));
}

#[test]
fn an_error_names_the_invalid_field_but_not_its_value() {
    for (fields, named) in [
        (r#""is_error":"secret""#, "'is_error'"),
        (r#""terminate":1"#, "'terminate'"),
        (r#""images":"secret""#, "'images'"),
        (r#""images":["AAAA","secret!"]"#, "'images[1]'"),
        (r#""images":["data:text/html;base64,AAAA"]"#, "'images[0]'"),
        (r#""files":{}"#, "'files'"),
        (r#""files":[{"name":"secret"}]"#, "'files'"),
        (r#""files":[{"name":1,"data":""}]"#, "'files'"),
        (
            r#""files":[{"name":"secret","data":"a"}]"#,
            "'files[0].data'",
        ),
        (
            r#""content":[{"type":"text","text":"a"},{"type":"text"}]"#,
            "'content[1]'",
        ),
        (
            r#""content":[{"type":"image","data":"secret!"}]"#,
            "'content[0]'",
        ),
        (
            r#""content":[{"type":"image_url","image_url":"data:secret"}]"#,
            "'content[0]'",
        ),
    ] {
        let text = error(&format!(r#"{{"content":"",{fields}}}"#));
        assert!(text.contains(named), "{fields}: {text}");
        assert!(!text.contains("secret"), "{fields}: {text}");
    }
    let many = json!({"content": "", "images": vec!["AAAA"; 101]}).to_string();
    assert!(error(&many).contains("'images'"));
}

#[test]
fn binary_bodies_are_refused_by_type() {
    let read = |body: &[u8], media_type| {
        parse(&Bytes::copy_from_slice(body), media_type).map(|output| output.content)
    };
    for media_type in ["image/png", "application/octet-stream", "audio/wav"] {
        let text = read(b"abc", media_type).unwrap_err().to_string();
        assert!(text.contains(media_type), "{text}");
        assert_eq!(read(b"", media_type).unwrap(), "");
    }
    assert!(read(b"\xff", "application/x-thing").is_err());
    assert_eq!(read(b"a", "application/x-thing").unwrap(), "a");
    assert_eq!(read(b"a\xff", "text/plain").unwrap(), "a\u{fffd}");
    assert_eq!(read(b"a\xff", "").unwrap(), "a\u{fffd}");
    assert_eq!(read(b"<svg/>", "image/svg+xml").unwrap(), "<svg/>");
    let text = read(b"a", "image/<https://secret>")
        .unwrap_err()
        .to_string();
    assert!(!text.contains("secret"), "{text}");
}
