//! A file that is being stored. Its row is written when its content is complete in the storage.

use tokio::io::{AsyncWriteExt, BufWriter};

use super::blobs::{PendingBlob, blocking};
use super::{FileError, FileStore, NewFile, StoredFile, name};
use blobs::Blob;
use protocol::ids::{FileId, Owner};
use protocol::media::MediaSniffer;
use store::FileRecord;

/// Size of the write buffer, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// A file that is being written. If it is dropped before it is finished, its content is removed.
#[derive(Debug)]
pub struct FileDraft {
    files: FileStore,
    file: BufWriter<tokio::fs::File>,
    pending: PendingBlob,
    sniffer: MediaSniffer,
    bytes: u64,
}

impl FileDraft {
    pub(super) async fn create(files: &FileStore) -> Result<Self, FileError> {
        let blobs = files.blobs().clone();
        let (file, pending) = blocking("create a file", move || blobs.create()).await?;
        Ok(Self {
            files: files.clone(),
            file: BufWriter::with_capacity(BUFFER_BYTES, file.into()),
            pending,
            sniffer: MediaSniffer::default(),
            bytes: 0,
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// `TooLarge` past the limit of one file, `Full` when all unfinished files exceed the total limit; else when the
    /// disk fails.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let more = bytes.len() as u64;
        let limits = self.files.limits();
        self.bytes = self.bytes.saturating_add(more);
        limits.check(self.bytes)?;
        if self.pending.grow(more) > limits.max_total_bytes {
            return Err(FileError::Full);
        }
        self.sniffer.add(bytes);
        self.file.write_all(bytes).await.map_err(write_error)
    }

    /// Writes buffered bytes to disk and returns the content, which is valid as long as the draft. For files that are
    /// read but not stored.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn flush(&mut self) -> Result<Blob, FileError> {
        self.file.flush().await.map_err(write_error)?;
        Ok(Blob::file(self.pending.path(), self.bytes))
    }

    /// The media type of the content so far, given the file name and the claimed type.
    pub(crate) fn media_type(&self, file_name: &str, claimed: Option<&str>) -> String {
        self.sniffer.media_type(file_name, claimed)
    }

    /// Stores the content as a file with a new id. Older files are deleted if the total limit is exceeded.
    ///
    /// # Errors
    /// When the storage or the database fails; nothing is stored then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is stored completely or not at all.
    pub async fn finish(self, owner: &Owner, file: NewFile<'_>) -> Result<StoredFile, FileError> {
        self.finish_as(FileId::fresh(), false, owner, file).await
    }

    /// As [`FileDraft::finish`], with a given id. If the owner already has a file with this id, that file is kept
    /// instead. A `bound` file is deleted with the last session that uses it, also if it is created for none.
    pub(super) async fn finish_as(
        mut self,
        id: FileId,
        bound: bool,
        owner: &Owner,
        file: NewFile<'_>,
    ) -> Result<StoredFile, FileError> {
        self.file.flush().await.map_err(write_error)?;
        let Self {
            files,
            file: writer,
            mut pending,
            sniffer,
            bytes,
        } = self;
        let whole = writer.into_inner().into_std().await;
        pending.place(whole).await?;
        let name = name::sanitize(file.name);
        let record = FileRecord {
            id,
            owner: owner.clone(),
            session: file.session.cloned(),
            bound,
            mime_type: sniffer.media_type(&name, file.mime_type),
            name,
            bytes,
            purpose: file.purpose,
            tool: file.tool.map(str::to_owned),
            round: file.round,
            blob: pending.blob().to_owned(),
        };
        let max_total_bytes = files.limits().max_total_bytes;
        let inserted = files.store().insert_file(record, max_total_bytes).await?;
        if inserted.known {
            // Without a row, it is removed below.
            drop(pending);
        } else {
            pending.keep();
        }
        if inserted.evicted > 0 {
            tracing::info!(evicted = inserted.evicted, "files deleted to make room");
        }
        if inserted.known || inserted.evicted > 0 {
            files.clean_up().await;
        }
        inserted.file.ok_or(FileError::NotFound)
    }
}

fn write_error(source: std::io::Error) -> FileError {
    FileError::Io {
        doing: "write a file",
        source,
    }
}
