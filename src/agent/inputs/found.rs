//! The list of a turn's input files, with unique names for the working directory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::session::files::FileDraft;
use blobs::Blob;
use tools::WorkFile;

/// One input file.
#[derive(Debug, Clone)]
pub(super) struct InputFile {
    pub(super) id: String,
    /// The name in the working directory.
    pub(super) name: String,
    pub(super) mime_type: String,
    /// The size in bytes.
    pub(super) size: u64,
    pub(super) content: Blob,
    /// Whether code of the session made it.
    pub(super) is_produced: bool,
}

/// The input files found so far. Ids and names are unique.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    files: Vec<InputFile>,
    by_id: HashMap<String, usize>,
    names: HashSet<String>,
    /// The content of the unstored ones.
    pub(super) drafts: Vec<FileDraft>,
}

impl FoundFiles {
    pub(super) fn known(&self, id: &str) -> Option<&InputFile> {
        self.files.get(*self.by_id.get(id)?)
    }

    /// Adds a file unless its id is known, and returns it with its name. A name that another file has gets a number.
    pub(super) fn add(&mut self, mut input: InputFile) -> InputFile {
        if let Some(known) = self.known(&input.id) {
            return known.clone();
        }
        input.name = self.free_name(&input.name);
        self.names.insert(input.name.clone());
        self.by_id.insert(input.id.clone(), self.files.len());
        self.files.push(input.clone());
        input
    }

    fn free_name(&self, name: &str) -> String {
        let (stem, ending) = match name.rsplit_once('.') {
            Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
            Some(_) | None => (name, String::new()),
        };
        let numbered = (2..).map(|number: u32| format!("{stem} ({number}){ending}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.names.contains(name))
            .unwrap_or_else(|| name.to_owned())
    }

    /// The files for the working directory.
    pub(super) fn work_files(&self) -> Arc<[WorkFile]> {
        let work_file = |input: &InputFile| WorkFile {
            id: input.id.clone(),
            name: input.name.clone(),
            content: input.content.clone(),
            is_produced: input.is_produced,
        };
        self.files.iter().map(work_file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(id: &str, name: &str) -> InputFile {
        InputFile {
            id: id.into(),
            name: name.into(),
            mime_type: "text/csv".into(),
            size: 1_234_567,
            content: Blob::file(std::path::PathBuf::from("/blob").join(id), 1_234_567),
            is_produced: false,
        }
    }

    #[test]
    fn no_two_files_share_a_name_and_no_file_is_there_twice() {
        let mut found = FoundFiles::default();
        let names: Vec<String> = [
            ("1", "data.csv"),
            ("2", "data.csv"),
            ("1", "data.csv"),
            ("3", "data (2).csv"),
            ("4", "data.csv"),
            ("5", ".env"),
            ("6", ".env"),
            ("7", "none"),
            ("8", "none"),
        ]
        .map(|(id, name)| found.add(input(id, name)).name)
        .to_vec();
        assert_eq!(
            names,
            [
                "data.csv",
                "data (2).csv",
                "data.csv",
                "data (2) (2).csv",
                "data (3).csv",
                ".env",
                ".env (2)",
                "none",
                "none (2)"
            ]
        );
        let files = found.work_files();
        assert_eq!(files.len(), 8);
        assert_eq!(files[1].content, input("2", "").content);
    }
}
