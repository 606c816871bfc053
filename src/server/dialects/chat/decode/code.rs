//! The fields of code execution: `enable_code_execution`, `code_interpreter` in `tools[]`, and `files`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::Field;
use super::tools::ToolEntry;
use super::web::MAX_LIST;
use agent::turn::{Availability, CodeOptions, NamedFile, WantedFile};
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// OpenAI's hosted tool type for code execution.
pub(super) const CODE_INTERPRETER: &str = "code_interpreter";
/// Most entries of `files`, the output files that a request asks for. A longer list is a 400.
/// Tried by `decode::code::errors_name_the_invalid_field`.
pub(super) const MAX_WANTED: usize = 20;
/// Longest name of an output file, in bytes. A longer one is a 400.
pub(super) const MAX_NAME_BYTES: usize = 255;
/// Longest format or description of an output file, in bytes; these texts are part of every model call. A longer one is
/// a 400.
/// Tried by `decode::code::errors_name_the_invalid_field`.
pub(super) const MAX_TEXT_BYTES: usize = 1024;

/// What a request says of code execution.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CodeRequest {
    /// Nothing.
    Unsaid,
    /// It does not want it.
    Declined,
    /// It asks for it, with the ids of stored files for the working directory.
    Asked(CodeOptions, Vec<NamedFile>),
}

/// Reads the request for code execution.
///
/// # Errors
/// When code execution is requested but switched off, or a field is invalid.
pub(super) fn read(
    enable: Field<'_>,
    files: Field<'_>,
    entries: &[ToolEntry<'_>],
    availability: Availability,
) -> Result<CodeRequest, RequestError> {
    let available = availability != Availability::Off;
    let enable = enable.read::<bool>("true or false")?;
    let enabled = enable == Some(true);
    if enabled && !available {
        let message = "'enable_code_execution' asks for code execution, which is switched off on this server; leave the field out, or start \
             the server with --enable-code-execution";
        return Err(RequestError::field("enable_code_execution", message));
    }
    let mut requested = enabled;
    let mut named = Vec::new();
    // If switched off here, the upstream may still run the hosted tool; `DeclaredTools::check` decides that.
    if available {
        for (index, entry) in entries.iter().enumerate() {
            if let ToolEntry::Hosted { kind, json } = entry
                && kind == CODE_INTERPRETER
            {
                requested = true;
                read_container(json, &format!("tools[{index}]"), &mut named)?;
            }
        }
    }
    let wanted = read_output_files(files)?;
    requested |= wanted.is_some() && enable.is_none() && availability == Availability::Always;
    if wanted.is_some() && !requested {
        let remedy = match available {
            true => "; send \"enable_code_execution\": true with it",
            false => ", which is switched off on this server; leave the field out",
        };
        let message = format!("'files' needs code execution{remedy}");
        return Err(RequestError::field("files", message));
    }
    let wanted = wanted.unwrap_or_default();
    Ok(match (requested, enable) {
        (true, _) => CodeRequest::Asked(CodeOptions { wanted }, named),
        (false, Some(false)) => CodeRequest::Declined,
        (false, _) => CodeRequest::Unsaid,
    })
}

/// Reads the file ids of `container`, which is a member of the `code_interpreter` entry or of an object in it that is
/// named after the type.
fn read_container(
    entry: &RawValue,
    param: &str,
    files: &mut Vec<NamedFile>,
) -> Result<(), RequestError> {
    let param = format!("{param}.container");
    let wrong = |problem: &str| RequestError::invalid(&param, problem);
    let shape = r#"must be an object such as {"type": "auto", "file_ids": []}"#;
    let Ok(outer) = RawObject::parse(entry.get()) else {
        return Ok(());
    };
    let inner = outer
        .get_some(CODE_INTERPRETER)
        .and_then(|inner| RawObject::parse(inner.get()).ok());
    let found = outer
        .get_some("container")
        .or_else(|| inner.as_ref()?.get_some("container"));
    let Some(found) = found else { return Ok(()) };
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
        return Ok(());
    };
    let ids: Vec<String> = serde_json::from_str(list.get())
        .ok()
        .filter(|ids: &Vec<String>| ids.len() <= MAX_LIST)
        .ok_or_else(|| {
            let problem = format!("must be a list of at most {MAX_LIST} file ids");
            RequestError::invalid(&format!("{param}.file_ids"), &problem)
        })?;
    let named = ids.into_iter().enumerate();
    files.extend(named.map(|(index, id)| NamedFile {
        param: format!("{param}.file_ids[{index}]"),
        id,
    }));
    Ok(())
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

    use super::super::body::ChatFields;
    use super::super::tools::entries;

    fn read_with(json: &str, availability: Availability) -> Result<CodeRequest, RequestError> {
        let object = RawObject::parse(json).unwrap();
        let fields = ChatFields::sort(&object).tools;
        let entries = entries(fields.tools).unwrap();
        read(
            fields.enable_code_execution,
            fields.files,
            &entries,
            availability,
        )
    }

    fn parse(
        json: &str,
        available: bool,
    ) -> Result<Option<(CodeOptions, Vec<NamedFile>)>, RequestError> {
        let availability = match available {
            true => Availability::OnRequest,
            false => Availability::Off,
        };
        Ok(match read_with(json, availability)? {
            CodeRequest::Asked(ask, files) => Some((ask, files)),
            CodeRequest::Unsaid | CodeRequest::Declined => None,
        })
    }

    #[test]
    fn a_request_can_decline_what_every_request_is_offered() {
        let read = |json: &str| read_with(json, Availability::Always).unwrap();
        assert_eq!(read("{}"), CodeRequest::Unsaid);
        assert_eq!(
            read(r#"{"enable_code_execution":null}"#),
            CodeRequest::Unsaid
        );
        assert_eq!(
            read(r#"{"enable_code_execution":false}"#),
            CodeRequest::Declined
        );
        let files = read(r#"{"files":[{"name":"a"}]}"#);
        assert!(matches!(files, CodeRequest::Asked(ask, _) if ask.wanted.len() == 1));
        let declined = r#"{"enable_code_execution":false,"files":[{"name":"a"}]}"#;
        assert!(read_with(declined, Availability::Always).is_err());
    }

    #[test]
    fn code_execution_is_requested_by_the_field_or_the_hosted_tool() {
        let asks = |json: &str| parse(json, true).unwrap().is_some();
        assert!(!asks("{}"));
        assert!(!asks(r#"{"enable_code_execution":false,"tools":[]}"#));
        assert!(asks(r#"{"enable_code_execution":true}"#));
        assert!(asks(r#"{"tools":[{"type":"code_interpreter"}]}"#));
        let ids = |json: &str| parse(json, true).unwrap().unwrap().1;
        let of = |index: usize, id: &str| NamedFile {
            param: format!("tools[0].container.file_ids[{index}]"),
            id: id.to_owned(),
        };
        for json in [
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["a","b"]}}]}"#,
            r#"{"tools":[{"type":"code_interpreter","code_interpreter":{"container":{"type":"auto","file_ids":["a","b"],"memory_limit":"1g"}}}]}"#,
        ] {
            assert_eq!(ids(json), [of(0, "a"), of(1, "b")], "{json}");
        }
    }

    #[test]
    fn when_switched_off_only_the_hosted_tool_is_not_refused() {
        assert_eq!(
            parse(r#"{"tools":[{"type":"code_interpreter"}]}"#, false),
            Ok(None)
        );
        assert_eq!(parse(r#"{"enable_code_execution":false}"#, false), Ok(None));
        for (json, param) in [
            (r#"{"enable_code_execution":true}"#, "enable_code_execution"),
            (r#"{"files":[]}"#, "files"),
        ] {
            let error = parse(json, false).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param));
            assert!(error.message.contains("switched off"), "{error}");
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
            (r#"{"files":[{"name":"a"}]}"#.to_owned(), "files"),
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
            let error = parse(&json, true).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{json}");
        }
        let named = parse(&tool("\"cntr_1\""), true).unwrap_err();
        assert!(named.message.contains("session_id"), "{named}");
    }

    #[test]
    fn output_files_keep_the_texts_of_the_request() {
        let json = r#"{"enable_code_execution":true,"files":[{"name":"out/a.csv","format":"csv","description":"sums"},{"name":"b"}]}"#;
        let wanted = parse(json, true).unwrap().unwrap().0.wanted;
        assert_eq!(wanted[0].name, "out/a.csv");
        assert_eq!(wanted[0].description.as_deref(), Some("sums"));
        assert_eq!(wanted[1].format, None);
    }
}
