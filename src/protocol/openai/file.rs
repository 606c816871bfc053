//! The file object of OpenAI's files API.

use schemars::JsonSchema;
use serde::Serialize;

/// The members that every file object has, in the list of files as well as in an answer.
///
/// It is flattened into a larger object, which adds its own members.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(into = "FileMembers<'_>")]
pub struct FileObject<'a> {
    /// The file's id.
    pub id: &'a str,
    /// The size in bytes.
    pub bytes: u64,
    /// When the file was stored, in seconds since 1970.
    pub created_at: i64,
    /// The file's name without folders.
    pub name: &'a str,
    /// The media type, without parameters.
    pub mime_type: &'a str,
    /// OpenAI's word for what the file is for, such as `user_data`.
    pub purpose: &'a str,
}

/// What is serialized. The name and the size are repeated under mistral.rs's keys.
#[derive(Serialize, JsonSchema)]
struct FileMembers<'a> {
    /// The id.
    id: &'a str,
    #[schemars(extend("const" = "file"))]
    object: &'static str,
    /// The size in bytes.
    bytes: u64,
    /// When the file was stored, in seconds since 1970.
    created_at: i64,
    /// The name without folders.
    filename: &'a str,
    /// What the file is for.
    purpose: &'a str,
    /// Always `processed`; OpenAI's clients expect a status.
    #[schemars(extend("const" = "processed"))]
    status: &'static str,
    /// The same as `filename`.
    name: &'a str,
    /// The media type, without parameters.
    mime_type: &'a str,
    /// The same as `bytes`.
    size: u64,
}

impl<'a> From<FileObject<'a>> for FileMembers<'a> {
    fn from(file: FileObject<'a>) -> Self {
        Self {
            id: file.id,
            object: "file",
            bytes: file.bytes,
            created_at: file.created_at,
            filename: file.name,
            purpose: file.purpose,
            status: "processed",
            name: file.name,
            mime_type: file.mime_type,
            size: file.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flattened_file_object_keeps_the_order_of_its_members() {
        #[derive(Serialize)]
        struct Outer<'a> {
            #[serde(flatten)]
            file: FileObject<'a>,
            round: u32,
        }
        let file = FileObject {
            id: "file-1",
            bytes: 3,
            created_at: 7,
            name: "a.csv",
            mime_type: "text/csv",
            purpose: "user_data",
        };
        let json = serde_json::to_string(&Outer { file, round: 1 }).unwrap();
        assert_eq!(
            json,
            r#"{"id":"file-1","object":"file","bytes":3,"created_at":7,"filename":"a.csv","purpose":"user_data","status":"processed","name":"a.csv","mime_type":"text/csv","size":3,"round":1}"#
        );
    }
}
