//! The fields of code execution: `enable_code_execution`, `code_interpreter` in `tools[]`, and `files`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::field::Field;
use super::ToolEntry;
use super::web::MAX_LIST;
use agent::draft::{CodeDraft, FaultScope, Faults};
use agent::turn::{CODE_INTERPRETER, NamedFile, WantedFile};
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// Most entries of `files`, the output files that a request asks for. A longer list is a 400.
/// Tried by `hosted::code::errors_name_the_invalid_field`.
pub(in crate::dialects) const MAX_WANTED: usize = 20;
/// Longest name of an output file, in bytes. A longer one is a 400.
pub(in crate::dialects) const MAX_NAME_BYTES: usize = 255;
/// Longest format or description of an output file, in bytes; these texts are part of every model call. A longer one is
/// a 400.
/// Tried by `hosted::code::errors_name_the_invalid_field`.
pub(in crate::dialects) const MAX_TEXT_BYTES: usize = 1024;

/// Reads the code execution that a request asks for.
pub(super) fn read(
    enable: Field<'_>,
    files: Field<'_>,
    entries: &[ToolEntry<'_>],
    faults: &mut Faults,
) -> CodeDraft {
    let enable = enable.read::<bool>("true or false");
    let mut code = CodeDraft {
        enable: faults.note(FaultScope::Request, enable),
        ..CodeDraft::default()
    };
    for entry in entries {
        if let Some((CODE_INTERPRETER, json)) = entry.hosted() {
            code.declared = true;
            let named = read_container(json, &entry.param);
            code.files.extend(faults.note(FaultScope::Code, named));
        }
    }
    code.wanted = faults.note(FaultScope::Files, read_output_files(files));
    code
}

/// Reads the file ids of `container`, which is a member of the `code_interpreter` entry or of an object in it that is
/// named after the type.
fn read_container(entry: &RawValue, param: &str) -> Result<Vec<NamedFile>, RequestError> {
    let param = format!("{param}.container");
    let wrong = |problem: &str| RequestError::invalid(&param, problem);
    let shape = r#"must be an object such as {"type": "auto", "file_ids": []}"#;
    let Ok(outer) = RawObject::parse(entry.get()) else {
        return Ok(Vec::new());
    };
    let inner = outer
        .get_some(CODE_INTERPRETER)
        .and_then(|inner| RawObject::parse(inner.get()).ok());
    let found = outer
        .get_some("container")
        .or_else(|| inner.as_ref()?.get_some("container"));
    let Some(found) = found else {
        return Ok(Vec::new());
    };
    if found.get().starts_with('"') {
        return Err(wrong(
            "is the id of a container, but this server has no containers: every session has its own interpreter; send \
             {\"type\": \"auto\"} and the 'session_id' of the conversation",
        ));
    }
    let object = RawObject::parse(found.get()).map_err(|_| wrong(shape))?;
    let kind = object
        .get_some("type")
        .map(|kind| serde_json::from_str::<String>(kind.get()));
    if !matches!(kind, None | Some(Ok(_)))
        || kind.is_some_and(|kind| kind.is_ok_and(|kind| kind != "auto"))
    {
        return Err(wrong(shape));
    }
    let Some(list) = object.get_some("file_ids") else {
        return Ok(Vec::new());
    };
    let ids: Vec<String> = serde_json::from_str(list.get())
        .ok()
        .filter(|ids: &Vec<String>| ids.len() <= MAX_LIST)
        .ok_or_else(|| {
            let problem = format!("must be a list of at most {MAX_LIST} file ids");
            RequestError::invalid(&format!("{param}.file_ids"), &problem)
        })?;
    let named = ids.into_iter().enumerate();
    let named = named.map(|(index, id)| NamedFile {
        param: format!("{param}.file_ids[{index}]"),
        id,
    });
    Ok(named.collect())
}

/// An entry of `files`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFileFields {
    name: String,
    format: Option<String>,
    description: Option<String>,
}

fn read_output_files(files: Field<'_>) -> Result<Option<Vec<WantedFile>>, RequestError> {
    let expected = "a list of objects with 'name' and optionally 'format' and 'description'";
    let Some(entries) = files.read::<Vec<&RawValue>>(expected)? else {
        return Ok(None);
    };
    if entries.len() > MAX_WANTED {
        let message = format!(
            "'files' has {} entries; at most {MAX_WANTED} are allowed",
            entries.len()
        );
        return Err(RequestError::field("files", message));
    }
    let mut wanted: Vec<WantedFile> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let param = format!("files[{index}]");
        let wrong =
            |part: &str, problem: &str| RequestError::invalid(&format!("{param}{part}"), problem);
        let shape = "must be an object with the string 'name' and optionally the strings 'format' and 'description'";
        let raw: OutputFileFields =
            serde_json::from_str(entry.get()).map_err(|_| wrong("", shape))?;
        if !is_plain_path(&raw.name) {
            return Err(wrong(
                ".name",
                "must be a relative path without '.' and '..', such as \"report.csv\", of at most 255 bytes",
            ));
        }
        let texts = [(".format", &raw.format), (".description", &raw.description)];
        let long = |text: &Option<String>| {
            text.as_ref()
                .is_some_and(|text| text.len() > MAX_TEXT_BYTES)
        };
        if let Some((part, _)) = texts.into_iter().find(|(_, text)| long(text)) {
            return Err(wrong(part, "is longer than 1024 bytes; shorten it"));
        }
        if wanted.iter().any(|known| known.name == raw.name) {
            return Err(wrong(
                ".name",
                "is the name of an earlier entry; send each name once",
            ));
        }
        wanted.push(WantedFile {
            name: raw.name,
            format: raw.format,
            description: raw.description,
        });
    }
    Ok(Some(wanted))
}

/// Whether the name is a relative path without `.` and `..`, backslashes and control characters.
fn is_plain_path(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && !name.contains(|character: char| character == '\\' || character.is_control())
        && name
            .split('/')
            .all(|part| !matches!(part.trim(), "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::tests::read_tools;

    fn parse(json: &str) -> Result<CodeDraft, RequestError> {
        let (tools, faults) = read_tools(json);
        for scope in [FaultScope::Request, FaultScope::Code, FaultScope::Files] {
            faults.check(scope)?;
        }
        Ok(tools.code)
    }

    #[test]
    fn a_field_and_a_hosted_tool_ask_for_code_and_a_field_declines_it() {
        let read = |json: &str| {
            let code = parse(json).unwrap();
            (code.enable, code.declared)
        };
        assert_eq!(read("{}"), (None, false));
        assert_eq!(read(r#"{"enable_code_execution":null}"#), (None, false));
        assert_eq!(
            read(r#"{"enable_code_execution":false}"#),
            (Some(false), false)
        );
        assert_eq!(
            read(r#"{"enable_code_execution":true}"#),
            (Some(true), false)
        );
        let tool = r#"{"tools":[{"type":"code_interpreter"}]}"#;
        assert_eq!(read(tool), (None, true));
    }

    #[test]
    fn a_hosted_tool_names_files() {
        let of = |index: usize, id: &str| NamedFile {
            param: format!("tools[0].container.file_ids[{index}]"),
            id: id.to_owned(),
        };
        for json in [
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["a","b"]}}]}"#,
            r#"{"tools":[{"type":"code_interpreter","code_interpreter":{"container":{"type":"auto","file_ids":["a","b"],"memory_limit":"1g"}}}]}"#,
        ] {
            assert_eq!(
                parse(json).unwrap().files,
                [of(0, "a"), of(1, "b")],
                "{json}"
            );
        }
    }

    #[test]
    fn errors_name_the_invalid_field() {
        let files = |files: &str| format!(r#"{{"enable_code_execution":true,"files":{files}}}"#);
        let tool = |container: &str| {
            format!(r#"{{"tools":[{{"type":"code_interpreter","container":{container}}}]}}"#)
        };
        let many = format!("[{}]", vec![r#"{"name":"a"}"#; 21].join(","));
        for (json, param) in [
            (
                r#"{"enable_code_execution":1}"#.to_owned(),
                "enable_code_execution",
            ),
            (files("{}"), "files"),
            (files(&many), "files"),
            (files(r#"["a"]"#), "files[0]"),
            (files(r#"[{"name":"a"},{"nam":"b"}]"#), "files[1]"),
            (files(r#"[{"name":"a","size":1}]"#), "files[0]"),
            (files(r#"[{"name":"/a"}]"#), "files[0].name"),
            (files(r#"[{"name":"a/../b"}]"#), "files[0].name"),
            (files(r#"[{"name":""}]"#), "files[0].name"),
            (files(r#"[{"name":"a\\b"}]"#), "files[0].name"),
            (files(r#"[{"name":"a"},{"name":"a"}]"#), "files[1].name"),
            (
                files(&format!(
                    r#"[{{"name":"a","format":"{}"}}]"#,
                    "x".repeat(1025)
                )),
                "files[0].format",
            ),
            (tool("\"cntr_1\""), "tools[0].container"),
            (tool("[]"), "tools[0].container"),
            (tool(r#"{"type":"named"}"#), "tools[0].container"),
            (tool(r#"{"file_ids":"a"}"#), "tools[0].container.file_ids"),
        ] {
            let error = parse(&json).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{json}");
        }
        let named = parse(&tool("\"cntr_1\"")).unwrap_err();
        assert!(named.message.contains("session_id"), "{named}");
    }

    #[test]
    fn output_files_keep_the_texts_of_the_request() {
        let json = r#"{"enable_code_execution":true,"files":[{"name":"out/a.csv","format":"csv","description":"sums"},{"name":"b"}]}"#;
        let wanted = parse(json).unwrap().wanted.unwrap();
        assert_eq!(wanted[0].name, "out/a.csv");
        assert_eq!(wanted[0].description.as_deref(), Some("sums"));
        assert_eq!(wanted[1].format, None);
    }
}
