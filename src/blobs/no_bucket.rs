//! Replaces object storage in a program that is built without the feature `s3`. No bucket is ever made.

use std::convert::Infallible;
use std::fs::File;
use std::future::{Ready, ready};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::settings::BucketSettings;
use super::{BlobPage, LocalBlob};

pub(super) use self::NoBucket as Bucket;
pub(super) use self::NoBucket as BucketObject;

/// A bucket, or an object in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoBucket(Infallible);

/// Refuses every bucket.
pub fn check(_settings: &BucketSettings) -> Ready<io::Result<()>> {
    ready(Err(refusal()))
}

fn refusal() -> io::Error {
    let text = "this program was built without the feature `s3`";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

impl NoBucket {
    pub(super) fn open(_settings: &BucketSettings, _store: &str) -> Ready<io::Result<Self>> {
        ready(Err(refusal()))
    }

    pub(super) fn unfinished_path(&self, _name: &str) -> PathBuf {
        match self.0 {}
    }

    pub(super) fn object(&self, _name: &str) -> Self {
        match self.0 {}
    }

    pub(super) fn upload(&self, _name: &str, _file: File) -> Ready<io::Result<()>> {
        match self.0 {}
    }

    pub(super) fn remove_all(&self, _names: Vec<String>) -> Ready<(Vec<String>, io::Result<()>)> {
        match self.0 {}
    }

    pub(super) fn page(&self, _after: Option<&str>, _age: Duration) -> Ready<io::Result<BlobPage>> {
        match self.0 {}
    }

    pub(super) fn ping(&self) -> Ready<io::Result<()>> {
        match self.0 {}
    }

    pub(super) fn close(&self) -> Ready<io::Result<()>> {
        match self.0 {}
    }

    pub(super) fn length(&self) -> Ready<io::Result<u64>> {
        match self.0 {}
    }

    pub(super) fn read(
        &self,
        _range: Range<u64>,
    ) -> Ready<io::Result<BoxStream<'static, io::Result<Bytes>>>> {
        match self.0 {}
    }

    pub(super) fn copy(&self, _length: u64) -> Ready<io::Result<LocalBlob>> {
        match self.0 {}
    }
}
