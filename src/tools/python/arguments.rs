//! Parses the arguments of the tools strictly; every error says what the model should send instead.

use serde_json::{Map, Value};

use crate::ToolError;
use protocol::ids::shown;

/// Longest code of one call, in bytes. The model is asked to send it in several.
/// Tried by `arguments::outputs_are_names_or_objects_and_others_are_told`.
const MAX_CODE_BYTES: usize = 1024 * 1024;
/// Most files that one call may request. The model is asked for fewer.
/// Tried by `python::arguments::outputs_are_names_or_objects_and_others_are_told`.
const MAX_OUTPUTS: usize = 20;
/// Longest path, in bytes; a longer one is refused.
/// Tried by `python::arguments::names_that_lead_out_of_the_working_directory_are_no_paths`.
const MAX_PATH_BYTES: usize = 512;

/// Arguments of `execute_python`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Execute<'a> {
    pub(super) code: &'a str,
    /// Paths relative to the working directory.
    pub(super) outputs: Vec<String>,
    /// Names that are not valid paths.
    pub(super) refused: Vec<String>,
}

impl<'a> Execute<'a> {
    pub(super) fn from_arguments(
        arguments: &'a Map<String, Value>,
        working_directory: Option<&str>,
    ) -> Result<Self, ToolError> {
        let code = text(arguments, "code")?
            .filter(|code| !code.trim().is_empty())
            .ok_or_else(|| rejected("'code' is missing or empty; send Python source code"))?;
        if code.len() > MAX_CODE_BYTES {
            return Err(rejected(
                "'code' is longer than 1 MiB; send it in several calls, as variables are kept between them",
            ));
        }
        let expected =
            "'outputs' must be a list of file names, such as [\"report.csv\"], of at most 20";
        let entries: &[Value] = match arguments.get("outputs") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(entries)) if entries.len() <= MAX_OUTPUTS => entries,
            Some(_) => return Err(rejected(expected)),
        };
        let (mut outputs, mut refused) = (Vec::new(), Vec::new());
        for entry in entries {
            let name = match entry {
                Value::String(name) => Some(name.as_str()),
                Value::Object(object) => object.get("name").and_then(Value::as_str),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
            };
            let name = name.ok_or_else(|| rejected(expected))?;
            match working_path(name, working_directory) {
                Some(path) if outputs.contains(&path) => {}
                Some(path) => outputs.push(path),
                None => refused.push(shown(name)),
            }
        }
        Ok(Self {
            code,
            outputs,
            refused,
        })
    }
}

/// Arguments of `read_file`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) name: String,
    /// The first line, from 1.
    pub(super) offset: usize,
    pub(super) limit: Option<usize>,
}

impl Read {
    pub(super) fn from_arguments(
        arguments: &Map<String, Value>,
        working_directory: Option<&str>,
    ) -> Result<Self, ToolError> {
        let name = text(arguments, "name")?
            .ok_or_else(|| rejected("'name' is missing; list_files shows the names"))?;
        let path = working_path(name, working_directory).ok_or_else(|| {
            rejected("'name' must be a path relative to the working directory; list_files shows the names")
        })?;
        Ok(Self {
            name: path,
            offset: count(arguments, "offset")?.unwrap_or(1),
            limit: count(arguments, "limit")?,
        })
    }
}

/// Resolves a name to a path relative to the working directory; `None` if it leads elsewhere.
pub(super) fn working_path(name: &str, working_directory: Option<&str>) -> Option<String> {
    let inside = working_directory
        .and_then(|directory| name.strip_prefix(directory))
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(name);
    let usable = |part: &str| {
        part != ".." && !part.contains(['\\', '\0']) && !part.contains(char::is_control)
    };
    if inside.starts_with('/') || inside.len() > MAX_PATH_BYTES || !inside.split('/').all(usable) {
        return None;
    }
    let parts: Vec<&str> = inside
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(rejected(&format!("'{name}' must be a string"))),
    }
}

fn count(arguments: &Map<String, Value>, name: &str) -> Result<Option<usize>, ToolError> {
    let wrong = || rejected(&format!("'{name}' must be a whole number of 1 or more"));
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let count = value.as_u64().filter(|count| *count > 0);
            count
                .and_then(|count| usize::try_from(count).ok())
                .map(Some)
                .ok_or_else(wrong)
        }
    }
}

fn rejected(text: &str) -> ToolError {
    ToolError::Rejected(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_lead_out_of_the_working_directory_are_no_paths() {
        for (name, expected) in [
            ("a.csv", Some("a.csv")),
            ("./sub//a.csv", Some("sub/a.csv")),
            ("/mnt/data/a.csv", Some("a.csv")),
            ("/mnt/database/a.csv", None),
            ("/etc/passwd", None),
            ("../a", None),
            ("a/../../b", None),
            ("", None),
            (".", None),
            ("/mnt/data/", None),
            ("a\\b", None),
            ("a\nb", None),
        ] {
            let path = working_path(name, Some("/mnt/data"));
            assert_eq!(path.as_deref(), expected, "{name:?}");
        }
        assert_eq!(working_path("/mnt/data/a", None), None);
        assert_eq!(working_path(&"x".repeat(513), None), None);
    }

    #[test]
    fn outputs_are_names_or_objects_and_others_are_told() {
        let arguments =
            json!({"code": "1", "outputs": ["a", {"name": "b", "format": "csv"}, "a", "/etc/x"]});
        let read = Execute::from_arguments(arguments.as_object().unwrap(), None).unwrap();
        assert_eq!(read.outputs, ["a", "b"]);
        assert_eq!(read.refused, ["/etc/x"]);
        for wrong in [
            json!({}),
            json!({"code": " \n"}),
            json!({"code": 1}),
            json!({"code": "1", "outputs": "a"}),
            json!({"code": "1", "outputs": [1]}),
            json!({"code": "1", "outputs": [{"format": "csv"}]}),
            json!({"code": "1", "outputs": vec!["a"; 21]}),
            json!({"code": "#".repeat(MAX_CODE_BYTES + 1)}),
        ] {
            let error = Execute::from_arguments(wrong.as_object().unwrap(), None).unwrap_err();
            assert!(matches!(error, ToolError::Rejected(_)), "{error}");
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let read = |value: Value| Read::from_arguments(value.as_object().unwrap(), None);
        let found = read(json!({"name": "a", "limit": 3})).unwrap();
        assert_eq!((found.offset, found.limit), (1, Some(3)));
        for wrong in [
            json!({"name": "a", "offset": 0}),
            json!({"name": "a", "limit": -1}),
            json!({"name": "a", "limit": "3"}),
            json!({"name": "../a"}),
            json!({"offset": 1}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
