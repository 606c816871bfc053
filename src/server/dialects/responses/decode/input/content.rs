//! The contents of items.

use serde_json::value::RawValue;

use super::text;
use protocol::ids::FileId;
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::request::RequestError;

/// The content of a tool's result.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolResultContent {
    pub(super) text: String,
    /// JSON texts of content parts of a chat message.
    pub(super) images: Vec<String>,
}

/// The content of a user's message for chat, as JSON text.
///
/// # Errors
/// When a part is not usable.
pub(super) fn user_content(content: &RawValue, item: usize) -> Result<String, RequestError> {
    if content.get().starts_with('"') {
        return Ok(content.get().to_owned());
    }
    let parts = Part::all(content, item)?;
    if let [part] = parts.as_slice()
        && part.is_text()
    {
        return Ok(quoted(&part.text()?));
    }
    let parts: Result<Vec<String>, RequestError> = parts.iter().map(Part::of_user).collect();
    Ok(format!("[{}]", parts?.join(",")))
}

/// The text of an assistant's message, and its refusal.
///
/// # Errors
/// When a part is not usable.
pub(super) fn assistant_text(
    content: &RawValue,
    item: usize,
) -> Result<(String, Option<String>), RequestError> {
    let (mut whole, mut refusal) = (String::new(), None);
    for part in Part::all(content, item)? {
        match part.kind.as_str() {
            "refusal" => refusal = text(&part.object, "refusal"),
            _ if part.is_text() => whole.push_str(&part.text()?),
            _ => return Err(part.unsupported()),
        }
    }
    Ok((whole, refusal))
}

/// The text of instructions. Parts are lines of it.
///
/// # Errors
/// When a part is no text.
pub(super) fn plain_text(content: &RawValue, item: usize) -> Result<String, RequestError> {
    let parts = Part::all(content, item)?;
    let texts = parts.iter().map(|part| match part.is_text() {
        true => part.text(),
        false => Err(part.unsupported()),
    });
    let texts: Result<Vec<String>, RequestError> = texts.collect();
    Ok(texts?.join("\n"))
}

/// The output of a call of the client: a text, or parts whose texts are lines of it. Other JSON counts as its text.
///
/// # Errors
/// When a part is not usable.
pub(super) fn tool_output(
    output: Option<&RawValue>,
    item: usize,
) -> Result<ToolResultContent, RequestError> {
    let mut content = ToolResultContent::default();
    match output {
        None => {}
        Some(output) if output.get().starts_with(['"', '[']) => {
            let mut texts = Vec::new();
            for part in Part::all(output, item)? {
                match part.is_text() {
                    true => texts.push(part.text()?),
                    false => content.images.push(part.of_user()?),
                }
            }
            content.text = texts.join("\n");
        }
        Some(output) => output.get().clone_into(&mut content.text),
    }
    Ok(content)
}

/// A part of a content.
#[derive(Debug)]
struct Part<'a> {
    item: usize,
    index: usize,
    kind: String,
    json: &'a str,
    object: RawObject<'a>,
    /// The content is a text and not a list.
    whole: Option<String>,
}

impl<'a> Part<'a> {
    fn all(content: &'a RawValue, item: usize) -> Result<Vec<Self>, RequestError> {
        let param = format!("input[{item}].content");
        let wrong = || RequestError::invalid(&param, "must be a text or a list of parts");
        if content.get().starts_with('"') {
            let whole = serde_json::from_str(content.get()).map_err(|_| wrong())?;
            return Ok(vec![Self {
                item,
                index: 0,
                kind: "input_text".to_owned(),
                json: content.get(),
                object: RawObject::default(),
                whole: Some(whole),
            }]);
        }
        let parts: Vec<&RawValue> = serde_json::from_str(content.get()).map_err(|_| wrong())?;
        let read = |(index, json): (usize, &'a RawValue)| {
            let object = RawObject::parse(json.get()).map_err(|_| wrong())?;
            let kind = text(&object, "type").ok_or_else(wrong)?;
            Ok(Self {
                item,
                index,
                kind,
                json: json.get(),
                object,
                whole: None,
            })
        };
        parts.into_iter().enumerate().map(read).collect()
    }

    fn is_text(&self) -> bool {
        matches!(self.kind.as_str(), "input_text" | "output_text" | "text")
    }

    fn text(&self) -> Result<String, RequestError> {
        match &self.whole {
            Some(text) => Ok(text.clone()),
            None => {
                text(&self.object, "text").ok_or_else(|| self.invalid("text", "must be a text"))
            }
        }
    }

    /// The part of a chat message.
    fn of_user(&self) -> Result<String, RequestError> {
        match self.kind.as_str() {
            _ if self.is_text() => {
                let text = quoted(&self.text()?);
                Ok(format!(r#"{{"type":"text","text":{text}}}"#))
            }
            "input_image" => self.image(),
            "input_file" => self.file(),
            "input_audio" => Ok(self.json.replace(['\n', '\r'], " ")),
            _ => Err(self.unsupported()),
        }
    }

    fn image(&self) -> Result<String, RequestError> {
        let detail = self.object.get_some("detail");
        let detail = detail.filter(|detail| detail.get().starts_with('"'));
        if let Some(id) = self.object.get_some("file_id") {
            let id = self.file_id(id)?;
            let detail = detail.map_or("\"auto\"", RawValue::get);
            return Ok(format!(
                r#"{{"type":"image_file","image_file":{{"file_id":{},"detail":{detail}}}}}"#,
                quoted(id.as_str())
            ));
        }
        let Some(url) = text(&self.object, "image_url") else {
            let problem = "must be a URL; or send the 'file_id' of an uploaded image";
            return Err(self.invalid("image_url", problem));
        };
        let mut image = format!("{{\"url\":{}", quoted(&url));
        if let Some(detail) = detail {
            push_entry(&mut image, "detail", detail.get());
        }
        Ok(format!(r#"{{"type":"image_url","image_url":{image}}}}}"#))
    }

    /// The part for a file. The kind of file decides its form for the model.
    fn file(&self) -> Result<String, RequestError> {
        if let Some(id) = self.object.get_some("file_id") {
            self.file_id(id)?;
        }
        let mut file = String::from("{");
        for key in ["file_id", "file_data", "file_url", "filename"] {
            if let Some(value) = self.object.get_some(key) {
                push_entry(&mut file, key, value.get());
            }
        }
        Ok(format!(r#"{{"type":"file","file":{file}}}}}"#))
    }

    fn file_id(&self, id: &RawValue) -> Result<FileId, RequestError> {
        let text: Option<String> = serde_json::from_str(id.get()).ok();
        let problem = "names no file of this server; upload it first";
        text.and_then(|id| FileId::parse(&id))
            .ok_or_else(|| self.invalid("file_id", problem))
    }

    fn unsupported(&self) -> RequestError {
        let problem = format!("is '{}', which is not supported here", self.kind);
        self.invalid("type", &problem)
    }

    fn invalid(&self, member: &str, problem: &str) -> RequestError {
        let param = format!("input[{}].content[{}].{member}", self.item, self.index);
        RequestError::invalid(&param, problem)
    }
}
