//! The file object of OpenAI's files API.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// The members that every file object has, in the list of files as well as in an answer.
///
/// It is flattened into a larger object, which adds its own members.
#[derive(Debug, Clone, Copy)]
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

impl Serialize for FileObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("FileObject", 10)?;
        object.serialize_field("id", self.id)?;
        object.serialize_field("object", "file")?;
        object.serialize_field("bytes", &self.bytes)?;
        object.serialize_field("created_at", &self.created_at)?;
        object.serialize_field("filename", self.name)?;
        object.serialize_field("purpose", self.purpose)?;
        // OpenAI's clients expect a status.
        object.serialize_field("status", "processed")?;
        // The name and the size are repeated under mistral.rs's keys.
        object.serialize_field("name", self.name)?;
        object.serialize_field("mime_type", self.mime_type)?;
        object.serialize_field("size", &self.bytes)?;
        object.end()
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
