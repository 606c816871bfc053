//! The sources that an answer cites, its annotations, and the marks in its text.

mod mark;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::mark::{MarkScan, mark_link, scan_mark, with_plain_marks};

/// A source that a tool has found and that an answer may cite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CitedSource {
    /// The number by which the model cites the source, as in `[1]`. It is stable within a session.
    pub number: u32,
    /// The URL of the source.
    pub url: String,
    /// The title; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

/// How the marks of sources are written in the text of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CitationStyle {
    /// As the model writes them.
    #[default]
    Marks,
    /// As Markdown links to their sources.
    Links,
}

/// One entry of `annotations`: a range of the text and the source that it cites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "Annotation", from = "Annotation")]
pub struct UrlCitation {
    /// The first character of the range, counted in Unicode scalar values from the start of the text.
    pub start_index: usize,
    /// The end of the range, exclusive.
    pub end_index: usize,
    /// The title of the source, or its URL if it has no title.
    pub title: String,
    /// The URL of the source.
    pub url: String,
}

/// What is serialized.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Annotation {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "url_citation"))]
    kind: Cow<'static, str>,
    /// The range and the source.
    url_citation: CitedRange,
}

/// A range of the text, and the source that it cites.
#[derive(Serialize, Deserialize, JsonSchema)]
struct CitedRange {
    /// The first character of the range, counted in Unicode scalar values from the start of the text.
    start_index: usize,
    /// The end of the range, exclusive.
    end_index: usize,
    /// The title of the source, or its URL if it has no title.
    title: String,
    /// The URL of the source.
    url: String,
}

impl From<Annotation> for UrlCitation {
    fn from(Annotation { url_citation, .. }: Annotation) -> Self {
        let CitedRange {
            start_index,
            end_index,
            title,
            url,
        } = url_citation;
        Self {
            start_index,
            end_index,
            title,
            url,
        }
    }
}

impl From<UrlCitation> for Annotation {
    fn from(citation: UrlCitation) -> Self {
        let UrlCitation {
            start_index,
            end_index,
            title,
            url,
        } = citation;
        Self {
            kind: "url_citation".into(),
            url_citation: CitedRange {
                start_index,
                end_index,
                title,
                url,
            },
        }
    }
}
