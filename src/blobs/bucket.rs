//! Blobs in S3-compatible object storage. The credentials come from the settings, or from the role of the machine.
//!
//! An unfinished file is local. When it is complete, it is uploaded from there: small files in one request, others in
//! parts, with few parts in memory at a time. A failed upload is aborted, even if its caller has been dropped.

mod copy;
mod failure;
mod upload;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path as ObjectPath;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use secrecy::ExposeSecret;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::failure::{failure, late, within};
use super::directory::{ignore_not_found, make_private};
use super::settings::BucketSettings;
use super::{BlobPage, NAME_BYTES};
use protocol::ids::random_hex;

/// Longest time of a request that carries no content, its retries included. After it the request is an error.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for the next bytes of a content. After it the content is an error.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// Longest time of the check whether the storage responds. After it the storage counts as away.
const PING_LIMIT: Duration = Duration::from_secs(4);
/// Longest time in which running uploads end when the storage is closed. After it they are dropped.
const CLOSE_LIMIT: Duration = Duration::from_millis(300);
/// Most retries of a request. After them the request is an error.
const MAX_RETRIES: usize = 3;
/// Most parts of uploads that are in memory at a time, all uploads together; others wait.
/// Tried by `file_storage::large_files_are_never_held_in_memory`.
const PARTS_IN_MEMORY: usize = 4;
/// Size of a page of a list, in objects.
const PAGE: usize = 1000;
/// The name of the object that is written at the start and looked at to find out whether the storage responds.
const MARKER: &str = "loopwright";

/// The objects of one store in a bucket; cheap to clone.
#[derive(Debug, Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    client: AmazonS3,
    /// What all keys begin with.
    prefix: ObjectPath,
    /// A temporary directory for unfinished files and copies.
    local: PathBuf,
    /// Permits to have a part in memory.
    parts: Semaphore,
    uploads: TaskTracker,
    closing: CancellationToken,
}

/// An object, for reading; cheap to clone.
#[derive(Clone)]
pub(super) struct BucketObject {
    bucket: Bucket,
    key: ObjectPath,
}

/// Gives the storage client the HTTP client of this program.
#[derive(Debug)]
struct SharedClient(reqwest::Client);

/// Checks that the storage answers, with the credentials and for the bucket of the settings. Nothing is written.
///
/// # Errors
/// When the bucket cannot be used, and why.
pub async fn check(settings: &BucketSettings) -> io::Result<()> {
    let mut key: Vec<&str> = settings.url.prefix.split('/').collect();
    key.retain(|segment| !segment.is_empty());
    key.push(MARKER);
    let client = client(settings)?;
    let listing = client.list(Some(&ObjectPath::from_iter(key))).take(1);
    within(PING_LIMIT, listing.try_collect::<Vec<ObjectMeta>>())
        .await
        .map(drop)
}

impl Bucket {
    /// Connects to the storage, and writes a small object to find out whether it can be written.
    pub(super) async fn open(settings: &BucketSettings, store: &str) -> io::Result<Self> {
        let client = client(settings)?;
        let mut prefix: Vec<&str> = settings.url.prefix.split('/').collect();
        prefix.retain(|segment| !segment.is_empty());
        prefix.push(store);
        let local = std::env::temp_dir().join(format!("loopwright-files-{}", random_hex::<8>()));
        make_private(&local)?;
        let bucket = Self(Arc::new(Inner {
            client,
            prefix: ObjectPath::from_iter(prefix),
            local,
            parts: Semaphore::new(PARTS_IN_MEMORY),
            uploads: TaskTracker::new(),
            closing: CancellationToken::new(),
        }));
        let marker = Bytes::from_static(MARKER.as_bytes());
        let key = bucket.key(MARKER);
        let written = bucket.0.client.put(&key, marker.into());
        within(REQUEST_LIMIT, written).await?;
        Ok(bucket)
    }

    pub(super) fn unfinished_path(&self, name: &str) -> PathBuf {
        self.0.local.join(name)
    }

    pub(super) fn object(&self, name: &str) -> BucketObject {
        BucketObject {
            bucket: self.clone(),
            key: self.key(name),
        }
    }

    fn key(&self, name: &str) -> ObjectPath {
        self.0.prefix.clone().join(name)
    }

    /// Uploads a complete file.
    pub(super) async fn upload(&self, name: &str, file: File) -> io::Result<()> {
        upload::upload(self, self.key(name), file).await
    }

    pub(super) async fn remove_all(&self, names: Vec<String>) -> (Vec<String>, io::Result<()>) {
        let keys: Vec<_> = names.iter().map(|name| Ok(self.key(name))).collect();
        let mut removing = self.0.client.delete_stream(stream::iter(keys).boxed());
        let mut gone = Vec::with_capacity(names.len());
        for name in names {
            let removed = match timeout(REQUEST_LIMIT, removing.next()).await {
                Ok(Some(removed)) => removed.map(drop).map_err(|error| failure(&error)),
                // There are as many answers as keys, unless an earlier request has failed.
                Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(_elapsed) => Err(late(REQUEST_LIMIT)),
            };
            match ignore_not_found(removed) {
                Ok(()) => gone.push(name),
                Err(error) => return (gone, Err(error)),
            }
        }
        (gone, Ok(()))
    }

    /// A page of the blobs after a name that are at least this old.
    pub(super) async fn page(
        &self,
        after: Option<&str>,
        min_age: Duration,
    ) -> io::Result<BlobPage> {
        let prefix = Some(&self.0.prefix);
        let objects = match after {
            Some(name) => self.0.client.list_with_offset(prefix, &self.key(name)),
            None => self.0.client.list(prefix),
        };
        let listing = objects.take(PAGE).try_collect::<Vec<ObjectMeta>>();
        let objects = within(REQUEST_LIMIT, listing).await?;
        let next = match objects.len() {
            PAGE => objects.last().and_then(|object| object.location.filename()),
            _ => None,
        };
        let old = objects.iter().filter(|object| is_older(object, min_age));
        let names = old.filter_map(|object| object.location.filename());
        let is_blob = |name: &&str| {
            name.len() == 2 * NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        Ok(BlobPage {
            names: names.filter(is_blob).map(ToOwned::to_owned).collect(),
            next: next.map(ToOwned::to_owned),
        })
    }

    pub(super) async fn ping(&self) -> io::Result<()> {
        let key = self.key(MARKER);
        match within(PING_LIMIT, self.0.client.head(&key)).await {
            // The marker was removed, but the storage answers.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Aborts the running uploads, and deletes the local files.
    pub(super) async fn close(&self) -> io::Result<()> {
        self.0.closing.cancel();
        self.0.uploads.close();
        let _ended_or_late = timeout(CLOSE_LIMIT, self.0.uploads.wait()).await;
        self.0.delete_local()
    }
}

impl Inner {
    fn delete_local(&self) -> io::Result<()> {
        ignore_not_found(std::fs::remove_dir_all(&self.local))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.delete_local() {
            tracing::warn!(%error, "temporary files could not be deleted");
        }
    }
}

impl BucketObject {
    /// The number of bytes.
    pub(super) async fn length(&self) -> io::Result<u64> {
        let looking = self.bucket.0.client.head(&self.key);
        Ok(within(REQUEST_LIMIT, looking).await?.size)
    }

    /// Opens a range of the bytes. For an empty range it only checks that the object exists.
    pub(super) async fn read(
        &self,
        range: Range<u64>,
    ) -> io::Result<BoxStream<'static, io::Result<Bytes>>> {
        if range.is_empty() {
            self.length().await?;
            return Ok(stream::empty().boxed());
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let opening = self.bucket.0.client.get_opts(&self.key, options);
        let content = within(REQUEST_LIMIT, opening).await?.into_stream();
        let pieces = stream::try_unfold(content, async |mut content| {
            match timeout(STALL_LIMIT, content.next()).await {
                Ok(Some(Ok(piece))) => Ok(Some((piece, content))),
                Ok(Some(Err(error))) => Err(failure(&error)),
                Ok(None) => Ok(None),
                Err(_elapsed) => Err(late(STALL_LIMIT)),
            }
        });
        Ok(pieces.boxed())
    }
}

/// The client of the storage: this program's HTTP client, with few and short retries.
fn client(settings: &BucketSettings) -> io::Result<AmazonS3> {
    let options = net::ClientOptions {
        tls: !settings.plain_http,
        certificates: settings.certificates.clone(),
        ..net::ClientOptions::default()
    };
    let http = options
        .build()
        .map_err(|error| io::Error::other(error.without_url()))?;
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.url.bucket)
        .with_http_connector(SharedClient(http))
        .with_allow_http(settings.plain_http)
        // Not every storage removes several objects in one request.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            max_retries: MAX_RETRIES,
            ..RetryConfig::default()
        });
    for (name, value) in &settings.variables {
        let key = name.to_ascii_lowercase().parse();
        let key = key.map_err(|error| failure(&error))?;
        builder = builder.with_config(key, value.expose_secret());
    }
    builder.build().map_err(|error| failure(&error))
}

/// Whether an object was written longer ago, by the clock of the storage and of this machine.
fn is_older(object: &ObjectMeta, age: Duration) -> bool {
    let written = u64::try_from(object.last_modified.timestamp()).unwrap_or_default();
    let now = UNIX_EPOCH.elapsed().unwrap_or_default();
    now.saturating_sub(Duration::from_secs(written)) >= age
}

impl HttpConnector for SharedClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

impl PartialEq for BucketObject {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bucket.0, &other.bucket.0) && self.key == other.key
    }
}

impl Eq for BucketObject {}

impl fmt::Debug for BucketObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("BucketObject")
            .field(&self.key)
            .finish()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Bucket")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
