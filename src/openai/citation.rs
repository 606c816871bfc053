//! Sources of an answer, and the annotations that lead to them.

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// Something that a tool found and an answer may refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CitedSource {
    /// By which the model refers to it: `[1]`. The same for as long as the conversation remembers it.
    pub number: u32,
    /// Where it is.
    pub url: String,
    /// Its title, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

/// One entry of `annotations`: which part of a text a source stands behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlCitation {
    /// Where the part begins, in characters (Unicode scalar values) of the whole text.
    pub start_index: usize,
    /// Where it ends: the character after the last one.
    pub end_index: usize,
    /// The source's title; its URL where it has none.
    pub title: String,
    /// Where the source is.
    pub url: String,
}

impl Serialize for UrlCitation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Inner<'a> {
            start_index: usize,
            end_index: usize,
            title: &'a str,
            url: &'a str,
        }
        let inner = Inner {
            start_index: self.start_index,
            end_index: self.end_index,
            title: &self.title,
            url: &self.url,
        };
        let mut annotation = serializer.serialize_struct("Annotation", 2)?;
        annotation.serialize_field("type", "url_citation")?;
        annotation.serialize_field("url_citation", &inner)?;
        annotation.end()
    }
}
