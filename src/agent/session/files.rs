//! Input and output files of tools: rows in the store, contents in a directory or in object storage.
//!
//! A file is visible only to its owner. A file created for a session is deleted with the last session that uses it. Any
//! other file is deleted when it was not used for a configured time. If the files exceed the total limit, the least
//! recently used ones are deleted. The content is in its place before its row is written and is removed after its row is
//! deleted, so every row has its content. Leftovers of a crash are removed at the next start, or a day later if other
//! processes use the same place.

mod blobs;
mod draft;
pub(crate) mod name;
mod new;
mod open;
mod reap;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::blobs::{Blobs, blocking};
pub use self::draft::FileDraft;
pub use self::new::NewFile;
pub use self::open::check_files;
use ::blobs::{Blob, BlobReader};
use protocol::ids::{FileId, Owner, SessionId};
pub(crate) use store::FilePage;
pub use store::{FileFilter, FileOrder, Purpose, StoredFile};
use store::{Store, StoreError};

/// Size of the parts in which a content is written, in bytes.
const PART_BYTES: usize = 64 * 1024;
/// Most files in the list of a session; others are left out.
const MAX_OF_SESSION: usize = 10_000;

/// The file store; cheap to clone.
#[derive(Debug, Clone)]
pub struct FileStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    blobs: Arc<Blobs>,
    limits: FileLimits,
    /// When leftovers are searched for next; `None` if no other process uses the storage.
    next_sweep: Mutex<Option<Instant>>,
}

/// The limits of the file store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Most bytes over all files; the least recently used files are deleted first.
    pub(crate) max_total_bytes: u64,
}

/// Why a file could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The owner has no file with this id.
    #[error("file not found")]
    NotFound,
    /// The row exists, but the content does not: the storage was changed by another program, or a backup has only one
    /// of both.
    #[error("the content of the file is missing")]
    ContentMissing,
    /// It is larger than allowed.
    #[error("file is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The files that are being written exceed the limit for all files together.
    #[error("too many files are being written")]
    Full,
    /// The storage of files cannot be used.
    #[error("cannot use {location} for files")]
    Storage {
        /// The directory or the bucket.
        location: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file operation failed.
    #[error("cannot {doing}")]
    Io {
        /// The operation, as a verb phrase.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database failed.
    #[error("file store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl FileStore {
    /// Stores a file.
    ///
    /// # Errors
    /// `TooLarge`, `Full`; else when the storage or the database fails. Nothing is stored then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is stored completely or not at all.
    pub async fn put(
        &self,
        owner: &Owner,
        file: NewFile<'_>,
        content: &[u8],
    ) -> Result<StoredFile, FileError> {
        let mut draft = self.draft().await?;
        // In parts, because the file copies each part that it gets.
        for part in content.chunks(PART_BYTES) {
            draft.write(part).await?;
        }
        draft.finish(owner, file).await
    }

    /// Stores a file that a client sends with every request of a conversation. Its id depends on the owner, the name
    /// and the content, so that repetitions give the same file. It is deleted with the last session that uses it.
    ///
    /// # Errors
    /// As [`FileStore::put`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is stored completely or not at all.
    pub(crate) async fn put_inline(
        &self,
        owner: &Owner,
        file: NewFile<'_>,
        content: Bytes,
    ) -> Result<StoredFile, FileError> {
        self.limits().check(content.len() as u64)?;
        let id = {
            let (owner, name, content) =
                (owner.clone(), name::sanitize(file.name), content.clone());
            blocking("read a file", move || {
                Ok(FileId::of_content(&owner, &name, &content))
            })
            .await?
        };
        if let Some(known) = self.known(owner, &id, file.session).await? {
            return Ok(known);
        }
        let mut draft = self.draft().await?;
        draft.write(&content).await?;
        draft.finish_as(id, true, owner, file).await
    }

    /// Creates a file whose content is written in several parts and whose name may be known only at the end.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn draft(&self) -> Result<FileDraft, FileError> {
        FileDraft::create(self).await
    }

    /// The metadata of a file.
    ///
    /// # Errors
    /// `NotFound`; else when the database fails.
    pub async fn get(&self, owner: &Owner, id: &FileId) -> Result<StoredFile, FileError> {
        self.store()
            .file(owner, id)
            .await?
            .ok_or(FileError::NotFound)
    }

    /// A page of the owner's files.
    ///
    /// # Errors
    /// `NotFound` when the owner has no file `after`; else when the database fails.
    pub async fn list(
        &self,
        owner: &Owner,
        filter: &FileFilter<'_>,
    ) -> Result<FilePage, FileError> {
        Ok(self.store().files(owner, filter).await?)
    }

    /// The files that a session uses, oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn of_session(
        &self,
        owner: &Owner,
        session: &SessionId,
    ) -> Result<Vec<StoredFile>, FileError> {
        let filter = FileFilter {
            limit: MAX_OF_SESSION,
            after: None,
            order: FileOrder::Ascending,
            purpose: None,
            session: Some(session),
        };
        Ok(self.list(owner, &filter).await?.data)
    }

    /// Opens a range of the content of a file. In a directory, it can be read to its end even if the file is deleted
    /// meanwhile.
    ///
    /// # Errors
    /// `NotFound`, `ContentMissing`; else when the storage or the database fails.
    pub async fn open_content(
        &self,
        owner: &Owner,
        file: &StoredFile,
        range: Range<u64>,
    ) -> Result<BlobReader, FileError> {
        let reader = match self.content(file).read(range).await {
            Ok(reader) => reader,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The file may have been deleted after its row was read.
                self.get(owner, &file.id).await?;
                return Err(FileError::ContentMissing);
            }
            Err(source) => {
                let doing = "open a file";
                return Err(FileError::Io { doing, source });
            }
        };
        if let Err(error) = self.touch(owner, &file.id).await {
            // Reading must work even if the store cannot be written.
            tracing::debug!(%error, "the time of use of a file was not updated");
        }
        Ok(reader)
    }

    /// The content of a file, for reading only. It is removed after the file is deleted.
    pub fn content(&self, file: &StoredFile) -> Blob {
        self.blobs().storage.blob(&file.blob, file.bytes)
    }

    /// Adds a file to a session. The file is kept at least as long as the session. The session is created if it does
    /// not exist.
    ///
    /// # Errors
    /// `NotFound`; else when the database fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is added or nothing is changed.
    pub(crate) async fn attach(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), FileError> {
        Ok(self.store().attach_file(owner, id, session).await?)
    }

    /// Deletes a file; returns whether it existed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete(&self, owner: &Owner, id: &FileId) -> Result<bool, FileError> {
        let deleted = self.store().delete_file(owner, id).await?;
        if deleted {
            self.clean_up().await;
        }
        Ok(deleted)
    }

    /// The limits of the file store.
    pub fn limits(&self) -> &FileLimits {
        &self.0.limits
    }

    /// Checks that the storage responds.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), FileError> {
        let answer = self.blobs().storage.ping().await;
        answer.map_err(|source| FileError::Io {
            doing: "reach the storage of files",
            source,
        })
    }

    /// Ends running uploads, and deletes what is temporary.
    pub(super) async fn close(&self) {
        if let Err(error) = self.blobs().storage.close().await {
            tracing::warn!(%error, "temporary files could not be deleted");
        }
    }

    /// The file with that id, if there is one, attached to the session.
    async fn known(
        &self,
        owner: &Owner,
        id: &FileId,
        session: Option<&SessionId>,
    ) -> Result<Option<StoredFile>, FileError> {
        let stored = match self.get(owner, id).await {
            Ok(stored) => stored,
            Err(FileError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !self.content(&stored).exists().await {
            // The content is missing; the caller stores it again.
            self.delete(owner, id).await?;
            return Ok(None);
        }
        let attached = match session {
            Some(session) => self.attach(owner, id, session).await,
            None => self.touch(owner, id).await,
        };
        match attached {
            Ok(()) => self.get(owner, id).await.map(Some),
            Err(FileError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the time of last use of a file to now.
    async fn touch(&self, owner: &Owner, id: &FileId) -> Result<(), FileError> {
        Ok(self.store().touch_file(owner, id).await?)
    }

    fn store(&self) -> &Store {
        &self.0.store
    }

    fn blobs(&self) -> &Arc<Blobs> {
        &self.0.blobs
    }
}

impl FileLimits {
    /// Fails if a file of this size exceeds a limit.
    fn check(self, bytes: u64) -> Result<(), FileError> {
        let limit = self.max_file_bytes.min(self.max_total_bytes);
        match bytes > limit {
            true => Err(FileError::TooLarge { limit }),
            false => Ok(()),
        }
    }
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::NotFound,
            StoreError::Failed(source) => Self::Store(source),
            other => Self::Store(Box::new(other)),
        }
    }
}
