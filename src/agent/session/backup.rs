//! Backups of a store together with the contents of its files.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;

use super::settings::{BlobLocation, StoreUrl, default_files_dir};
use blobs::{Blob, BlobStorage};
pub use store::BackupError;
use store::{BackupCounts, StoreBackup};

/// What was backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// What the file has.
    pub counts: BackupCounts,
    /// The bytes of the file.
    pub bytes: u64,
    /// The contents of files.
    pub files: CopiedFiles,
}

/// What became of the contents of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopiedFiles {
    /// They were copied.
    Copied(FilesReport),
    /// They were not to be copied. Holds how many there are.
    LeftOut(usize),
}

/// Which contents of files were copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesReport {
    /// The directory.
    pub directory: PathBuf,
    /// How many were copied.
    pub copied: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many were not there: their files were deleted meanwhile, or had lost their content before.
    pub missing: u64,
}

/// Copies a store into a new SQLite file. With `files`, also copies the contents of its files into the directory in
/// which a store in that file looks for them. Other processes can serve from the store during the copy.
///
/// # Errors
/// See [`BackupError`]. The file gets its name only after everything is copied.
pub fn back_up<'a>(
    source: &'a StoreUrl,
    files: Option<&'a BlobLocation>,
    path: &'a Path,
) -> BoxFuture<'a, Result<BackupReport, BackupError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(async move {
        let directory = default_files_dir(path);
        if files.is_some() && directory.symlink_metadata().is_ok() {
            return Err(BackupError::TargetExists(directory));
        }
        let backup = StoreBackup::make(source, path).await?;
        let files = match files {
            Some(location) => match copy_files(&backup, location, directory.clone()).await {
                Ok(report) => CopiedFiles::Copied(report),
                Err(error) => {
                    let _may_not_exist = std::fs::remove_dir_all(&directory);
                    return Err(error);
                }
            },
            None => CopiedFiles::LeftOut(backup.contents().await?.1.len()),
        };
        let (counts, bytes) = backup.finish()?;
        Ok(BackupReport {
            counts,
            bytes,
            files,
        })
    })
}

async fn copy_files(
    backup: &StoreBackup,
    location: &BlobLocation,
    directory: PathBuf,
) -> Result<FilesReport, BackupError> {
    let (name, contents) = backup.contents().await?;
    let mut report = FilesReport {
        directory,
        copied: 0,
        bytes: 0,
        missing: 0,
    };
    let target = open(BlobLocation::Directory(report.directory.clone()), &name).await?;
    if contents.is_empty() {
        return Ok(report);
    }
    if let BlobLocation::Directory(path) = location
        && !path.is_dir()
    {
        let source = std::io::ErrorKind::NotFound.into();
        let path = path.clone();
        return Err(BackupError::Disk { path, source });
    }
    let source = open(location.clone(), &name).await?;
    for (blob, length) in contents {
        let content = source.blob(&blob, length);
        if !content.exists().await {
            report.missing += 1;
            continue;
        }
        let copied = copy(&content, &target, &blob).await;
        copied.map_err(|source| BackupError::Disk {
            path: report.directory.clone(),
            source,
        })?;
        report.copied += 1;
        report.bytes += length;
    }
    source.close().await.map_err(|source| BackupError::Disk {
        path: PathBuf::from(location.to_string()),
        source,
    })?;
    Ok(report)
}

/// Opens a storage that other processes can use immediately.
async fn open(location: BlobLocation, store: &str) -> Result<BlobStorage, BackupError> {
    let path = PathBuf::from(location.to_string());
    let open = async {
        let (storage, _) = BlobStorage::open(location, store, false).await?;
        storage.share().await?;
        Ok(storage)
    };
    open.await
        .map_err(|source| BackupError::Disk { path, source })
}

async fn copy(content: &Blob, target: &BlobStorage, name: &str) -> std::io::Result<()> {
    let mut reader = content.read(0..content.length()).await?;
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    let mut file = options.open(target.unfinished_path(name)).await?;
    tokio::io::copy(&mut reader, &mut file).await?;
    tokio::io::AsyncWriteExt::flush(&mut file).await?;
    target.place(name, file.into_std().await).await
}
