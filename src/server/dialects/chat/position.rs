//! Paths of a chat request, as `param` of an error names them.

use agent::inputs::{FileMember, FilePosition, PartForm, PartIndex};

/// The path of the field that names or holds a file, such as `messages[0].content[1].file.file_id`.
pub(crate) fn file_path(position: &FilePosition) -> String {
    match position {
        FilePosition::Part {
            index: PartIndex { message, part },
            form,
            member,
        } => {
            let object = match form {
                PartForm::File => ".file",
                PartForm::InputFile => "",
            };
            let member = match member {
                FileMember::Id => "file_id",
                FileMember::Data => "file_data",
                FileMember::Url => "file_url",
            };
            format!("messages[{message}].content[{part}]{object}.{member}")
        }
        FilePosition::Field(param) => param.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_names_the_member_of_its_content_part() {
        let index = PartIndex {
            message: 1,
            part: 2,
        };
        for (form, member, path) in [
            (
                PartForm::File,
                FileMember::Id,
                "messages[1].content[2].file.file_id",
            ),
            (
                PartForm::File,
                FileMember::Data,
                "messages[1].content[2].file.file_data",
            ),
            (
                PartForm::InputFile,
                FileMember::Id,
                "messages[1].content[2].file_id",
            ),
            (
                PartForm::InputFile,
                FileMember::Data,
                "messages[1].content[2].file_data",
            ),
        ] {
            let position = FilePosition::Part {
                index,
                form,
                member,
            };
            assert_eq!(file_path(&position), path);
        }
        let field = FilePosition::Field("tools[0].container.file_ids[3]".to_owned());
        assert_eq!(file_path(&field), "tools[0].container.file_ids[3]");
    }
}
