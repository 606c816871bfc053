//! `text` and `reasoning`.

use serde_json::value::RawValue;

use protocol::openai::raw::{RawObject, push_entry};
use protocol::openai::request::{RequestError, body_member};

/// The format of an answer as text.
const PLAIN: &str = r#"{"type":"text"}"#;

/// The fields of the form of an answer.
#[derive(Debug, Default)]
pub(super) struct TextFields {
    /// `response_format` of a chat request; `None` for text.
    pub(super) response_format: Option<String>,
    pub(super) verbosity: Option<String>,
    /// `text`, as responses have it.
    pub(super) echo: String,
}

/// The fields of reasoning.
#[derive(Debug, Default)]
pub(super) struct ReasoningFields {
    /// `reasoning_effort` of a chat request, as JSON text.
    pub(super) effort: Option<String>,
    /// A summary is asked for.
    pub(super) summary: bool,
    /// `reasoning`, as responses have it.
    pub(super) echo: String,
}

impl TextFields {
    pub(super) fn read(object: &RawObject<'_>) -> Result<Self, RequestError> {
        let text: Option<RawObject<'_>> = body_member(object, "text", "an object")?;
        let text = text.unwrap_or_default();
        let mut fields = Self::default();
        let mut echo = String::from("{");
        match text.get_some("format") {
            Some(format) => {
                fields.response_format = response_format(format)?;
                push_entry(&mut echo, "format", format.get());
            }
            None => push_entry(&mut echo, "format", PLAIN),
        }
        word(&text, "text.verbosity", &["low", "medium", "high"])?;
        if let Some(verbosity) = text.get_some("verbosity") {
            fields.verbosity = Some(verbosity.get().to_owned());
            push_entry(&mut echo, "verbosity", verbosity.get());
        }
        echo.push('}');
        fields.echo = echo;
        Ok(fields)
    }
}

/// The `response_format` of a chat request, whose schema is in an object of its own.
fn response_format(format: &RawValue) -> Result<Option<String>, RequestError> {
    let shape = r#"must be an object such as {"type": "json_schema", "name": "…", "schema": {…}}"#;
    let invalid = || RequestError::invalid("text.format", shape);
    let object = RawObject::parse(format.get()).map_err(|_| invalid())?;
    let kind = object.get_some("type").ok_or_else(invalid)?;
    match kind.get() {
        "\"text\"" => Ok(None),
        "\"json_schema\"" => {
            let has = |key: &str, start: char| {
                let value = object.get_some(key);
                value.is_some_and(|value| value.get().starts_with(start))
            };
            if !has("name", '"') || !has("schema", '{') {
                return Err(invalid());
            }
            let present = object.iter().filter(|(_, value)| value.get() != "null");
            let mut schema = String::from("{");
            for (key, value) in present.filter(|(key, _)| *key != "type") {
                push_entry(&mut schema, key, value.get());
            }
            schema.push('}');
            Ok(Some(format!(
                r#"{{"type":"json_schema","json_schema":{schema}}}"#
            )))
        }
        "\"json_object\"" => Ok(Some(format.get().to_owned())),
        _ => Err(invalid()),
    }
}

/// Checks a member that is one of these words. Without words, any text will do.
fn word(object: &RawObject<'_>, param: &str, words: &[&str]) -> Result<(), RequestError> {
    let key = param.rsplit('.').next().unwrap_or(param);
    let Some(value) = object.get_some(key) else {
        return Ok(());
    };
    let text: Option<String> = serde_json::from_str(value.get()).ok();
    let known = |text: String| words.is_empty() || words.contains(&text.as_str());
    match text.is_some_and(known) {
        true => Ok(()),
        false if words.is_empty() => Err(RequestError::invalid(param, "must be a text")),
        false => {
            let problem = format!("must be one of: {}", words.join(", "));
            Err(RequestError::invalid(param, &problem))
        }
    }
}

impl ReasoningFields {
    pub(super) fn read(object: &RawObject<'_>) -> Result<Self, RequestError> {
        let reasoning: Option<RawObject<'_>> = body_member(object, "reasoning", "an object")?;
        let reasoning = reasoning.unwrap_or_default();
        word(&reasoning, "reasoning.effort", &[])?;
        for name in ["reasoning.summary", "reasoning.generate_summary"] {
            word(&reasoning, name, &["auto", "concise", "detailed"])?;
        }
        let member = |name: &str| reasoning.get_some(name).map(|value| value.get().to_owned());
        let effort = member("effort");
        // The older name is still sent.
        let summary = member("summary").or_else(|| member("generate_summary"));
        let or_null = |text: &Option<String>| text.clone().unwrap_or_else(|| "null".to_owned());
        let echo = format!(
            "{{\"effort\":{},\"summary\":{}}}",
            or_null(&effort),
            or_null(&summary)
        );
        Ok(Self {
            effort,
            summary: summary.is_some(),
            echo,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_nested_for_chat() {
        let read = |text: &str| {
            let body = format!("{{\"text\":{text}}}");
            TextFields::read(&RawObject::parse(&body).unwrap())
        };
        let fields =
            read(r#"{"format":{"type":"json_schema","name":"a","schema":{},"strict":null}}"#);
        assert_eq!(
            fields.unwrap().response_format.as_deref(),
            Some(r#"{"type":"json_schema","json_schema":{"name":"a","schema":{}}}"#)
        );
        let fields = read(r#"{"verbosity":"low"}"#).unwrap();
        assert_eq!(fields.response_format, None);
        assert_eq!(
            fields.echo,
            r#"{"format":{"type":"text"},"verbosity":"low"}"#
        );
        assert_eq!(read("null").unwrap().echo, r#"{"format":{"type":"text"}}"#);
        let error = read(r#"{"format":"json"}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("text.format"));
    }
}
