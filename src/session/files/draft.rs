//! A file that is being stored: its row is written once all of it is on disk.

use std::path::PathBuf;

use tokio::io::{AsyncWriteExt, BufWriter};

use super::blobs::{Leftover, blocking};
use super::{FileError, FileStore, NewFile, StoredFile, name};
use crate::ids::{FileId, Owner};
use crate::media::MediaSniffer;
use crate::store::FileRecord;

/// Bytes that are collected for one write.
const BUFFER_BYTES: usize = 256 * 1024;

/// A file that is being written. Dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct Draft {
    files: FileStore,
    file: BufWriter<tokio::fs::File>,
    leftover: Leftover,
    sniffer: MediaSniffer,
    bytes: u64,
}

impl Draft {
    pub(super) async fn begin(files: &FileStore) -> Result<Self, FileError> {
        let blobs = files.blobs().clone();
        let (file, leftover) = blocking("begin a file", move || blobs.begin()).await?;
        Ok(Self {
            files: files.clone(),
            file: BufWriter::with_capacity(BUFFER_BYTES, file.into()),
            leftover,
            sniffer: MediaSniffer::default(),
            bytes: 0,
        })
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// `TooLarge` past the limit of one file, `Full` when too much is being written at once; else when the disk fails.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let more = bytes.len() as u64;
        let limits = self.files.limits();
        self.bytes = self.bytes.saturating_add(more);
        limits.check(self.bytes)?;
        if self.leftover.grow(more) > limits.max_total_bytes {
            return Err(FileError::Full);
        }
        self.sniffer.add(bytes);
        self.file.write_all(bytes).await.map_err(cannot_write)
    }

    /// Where what was written so far can be read, for a file that is never stored: it lasts as long as the draft.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn settle(&mut self) -> Result<PathBuf, FileError> {
        self.file.flush().await.map_err(cannot_write)?;
        Ok(self.leftover.path())
    }

    /// The media type of what was written so far, given the name and the claimed type.
    pub fn media_type(&self, file_name: &str, claimed: Option<&str>) -> String {
        self.sniffer.media_type(file_name, claimed)
    }

    /// Stores what was written as a file with a fresh id, in place of older files if need be.
    ///
    /// # Errors
    /// When the disk or the database fails; nothing is stored then.
    ///
    /// # Cancel safety
    /// A dropped future stores the file or nothing.
    pub async fn finish(self, owner: &Owner, file: NewFile<'_>) -> Result<StoredFile, FileError> {
        self.finish_as(FileId::fresh(), owner, file).await
    }

    /// The same under an id. If the owner has a file with that id, that file is kept instead.
    pub(super) async fn finish_as(
        mut self,
        id: FileId,
        owner: &Owner,
        file: NewFile<'_>,
    ) -> Result<StoredFile, FileError> {
        self.file.flush().await.map_err(cannot_write)?;
        let Self {
            files,
            file: writer,
            mut leftover,
            sniffer,
            bytes,
        } = self;
        let whole = writer.into_inner().into_std().await;
        let leftover = blocking("write a file", move || {
            leftover.place(&whole)?;
            Ok(leftover)
        })
        .await?;
        let name = name::clean(file.name);
        let record = FileRecord {
            id,
            owner: owner.clone(),
            session: file.session.cloned(),
            mime_type: sniffer.media_type(&name, file.mime_type),
            name,
            bytes,
            purpose: file.purpose,
            tool: file.tool.map(str::to_owned),
            round: file.round,
            blob: leftover.blob().to_owned(),
        };
        let max_total_bytes = files.limits().max_total_bytes;
        let inserted = files.store().insert_file(record, max_total_bytes).await?;
        if inserted.known {
            blocking("remove a file", move || leftover.discard()).await?;
        } else {
            leftover.keep();
        }
        if inserted.evicted > 0 {
            tracing::info!(evicted = inserted.evicted, "files deleted to make room");
            files.clean_up().await;
        }
        inserted.file.ok_or(FileError::NotFound)
    }
}

fn cannot_write(source: std::io::Error) -> FileError {
    FileError::Io {
        doing: "write a file",
        source,
    }
}
