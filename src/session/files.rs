//! Files that go into and come out of tools: their rows in the store, their bytes on disk.
//!
//! A file belongs to its owner; to anybody else it does not exist. One made for a session is deleted with the last
//! session that uses it, any other one when it was not used for long, and both when there is no more room. Bytes are
//! in place before the row is written and are removed after it is gone, so that a row always has its bytes. The next start
//! removes the leftovers of a crash.

mod blobs;
mod draft;
pub mod name;
mod new;
mod open;
mod reap;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use self::blobs::{Blobs, blocking};
pub use self::draft::Draft;
pub use self::new::{FileSource, NewFile};
use crate::ids::{FileId, Owner, SessionId};
pub use crate::store::{FileFilter, FileOrder, FilePage, FileUsage, Purpose, StoredFile};
use crate::store::{Store, StoreError};

/// Bytes read at once from a source.
const READ_BYTES: usize = 64 * 1024;
/// Most files of a session that are listed.
const MAX_OF_SESSION: usize = 10_000;

/// The file store; cheap to clone.
#[derive(Debug, Clone)]
pub struct FileStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    blobs: Arc<Blobs>,
    limits: FileLimits,
}

/// How much may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Largest file, in bytes.
    pub max_file_bytes: u64,
    /// Most bytes over all files; older ones give way.
    pub max_total_bytes: u64,
}

/// Why a file could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The owner has none with this id.
    #[error("file not found")]
    NotFound,
    /// The row is there, the bytes are not: the directory was tampered with, or a backup holds one without the other.
    #[error("the content of the file is lost")]
    Lost,
    /// It is larger than allowed.
    #[error("file is larger than {limit} bytes")]
    TooLarge {
        /// Most bytes.
        limit: u64,
    },
    /// More is being written at once than all files together may have.
    #[error("too many files are being written")]
    Full,
    /// Its content could not be read.
    #[error("content cannot be read")]
    Source(#[source] io::Error),
    /// The directory of files cannot be used.
    #[error("cannot use the directory {} for files", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The disk failed.
    #[error("cannot {doing}")]
    Io {
        /// What was being done.
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
    /// `TooLarge`, `Full`, `Source` when the content cannot be read; else when the disk or the database fails. Nothing
    /// is stored then.
    ///
    /// # Cancel safety
    /// A dropped future stores the file or nothing.
    pub async fn put(
        &self,
        owner: &Owner,
        file: NewFile<'_>,
        content: FileSource<'_>,
    ) -> Result<StoredFile, FileError> {
        let mut draft = self.draft().await?;
        match content {
            FileSource::Bytes(bytes) => draft.write(bytes).await?,
            FileSource::Reader(reader) => {
                let mut buffer = vec![0; READ_BYTES];
                loop {
                    let read = reader.read(&mut buffer).await.map_err(FileError::Source)?;
                    match buffer.get(..read) {
                        Some(bytes) if !bytes.is_empty() => draft.write(bytes).await?,
                        _ => break,
                    }
                }
            }
        }
        draft.finish(owner, file).await
    }

    /// Stores a file that a client sends with every request of a conversation: equal name and bytes of the same owner
    /// give the same file.
    ///
    /// # Errors
    /// As [`FileStore::put`].
    ///
    /// # Cancel safety
    /// A dropped future stores the file or nothing.
    pub async fn put_inline(
        &self,
        owner: &Owner,
        file: NewFile<'_>,
        content: Bytes,
    ) -> Result<StoredFile, FileError> {
        self.limits().check(content.len() as u64)?;
        let id = {
            let (owner, name, content) = (owner.clone(), name::clean(file.name), content.clone());
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
        draft.finish_as(id, owner, file).await
    }

    /// Begins a file whose content arrives in pieces, before its name.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn draft(&self) -> Result<Draft, FileError> {
        Draft::begin(self).await
    }

    /// What is known of a file.
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
    /// `NotFound` when `after` is none of the owner's; else when the database fails.
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

    /// Opens the content of a file, which can be read to its end even if the file is deleted meanwhile.
    ///
    /// # Errors
    /// `NotFound`, `Lost`; else when the disk or the database fails.
    pub async fn open_content(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<(StoredFile, tokio::fs::File), FileError> {
        let stored = self.get(owner, id).await?;
        let file = match tokio::fs::File::open(self.path(&stored)).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It may have been deleted just now.
                self.get(owner, id).await?;
                return Err(FileError::Lost);
            }
            Err(source) => {
                let doing = "open a file";
                return Err(FileError::Io { doing, source });
            }
        };
        if let Err(error) = self.touch(owner, id).await {
            // The bytes can be read even while nothing can be written.
            tracing::debug!(%error, "the use of a file was not noted");
        }
        Ok((stored, file))
    }

    /// Where the bytes of a file are, to be read only. They are gone once the file is deleted.
    pub fn path(&self, file: &StoredFile) -> PathBuf {
        self.blobs().path(&file.blob)
    }

    /// Makes a session use a file, which then lives at least as long. A session without messages is made if there is
    /// none.
    ///
    /// # Errors
    /// `NotFound`; else when the database fails.
    ///
    /// # Cancel safety
    /// A dropped future does it whole or not at all.
    pub async fn attach(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), FileError> {
        Ok(self.store().attach_file(owner, id, session).await?)
    }

    /// Deletes a file; says whether there was one.
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

    /// How much is stored, over all owners.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn usage(&self) -> Result<FileUsage, FileError> {
        Ok(self.store().file_usage().await?)
    }

    /// How much may be stored.
    pub fn limits(&self) -> &FileLimits {
        &self.0.limits
    }

    /// Deletes the directory if it is temporary.
    pub(super) async fn close(&self) {
        let blobs = self.blobs().clone();
        let deleted = blocking("delete temporary files", move || blobs.delete_temporary());
        if let Err(error) = deleted.await {
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
        if !tokio::fs::try_exists(self.path(&stored))
            .await
            .unwrap_or(true)
        {
            // The client has just given the bytes again.
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

    /// Notes that a file is used now.
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
    /// Whether a file of that size can be stored at all.
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
