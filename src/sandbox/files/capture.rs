//! Collects the files of a cell from a working directory.

use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;

use super::confined::FileMeta;
use super::placed_name::MAX_PLACED_NAME;
use super::{FileCapture, Refusal, Snapshot, WorkDir};
use crate::CapturedFile;
use crate::settings::InterpreterLimits;

/// Most files that notices name; one more notice counts the others.
/// Tried by `capture::floods_and_names_are_bounded`.
const MAX_NAMED: usize = 8;

impl WorkDir {
    /// Reads the files that are new or changed since `before`, and the requested ones even if unchanged.
    pub(crate) fn capture(
        &self,
        before: &Snapshot,
        declared: &[String],
        limits: &InterpreterLimits,
    ) -> FileCapture {
        let after = self.snapshot();
        let mut builder = CaptureBuilder::new(limits);
        for name in declared {
            match self.open(name) {
                Ok((name, file, meta)) => builder.take(&name, file, &meta),
                Err(refusal) => builder.reject(name, refusal),
            }
        }
        for name in after.changed_since(before) {
            match self.open(name) {
                Ok((name, file, meta)) => builder.take(&name, file, &meta),
                // Deleted since the snapshot.
                Err(Refusal::Missing) => {}
                Err(refusal) => builder.reject(name, refusal),
            }
        }
        builder.finish(before, &after)
    }
}

/// Builds a [`FileCapture`] within limits.
pub(super) struct CaptureBuilder<'a> {
    limits: &'a InterpreterLimits,
    capture: FileCapture,
    total_bytes: u64,
    too_many: Vec<String>,
    unnamed: usize,
}

impl<'a> CaptureBuilder<'a> {
    pub(super) fn new(limits: &'a InterpreterLimits) -> Self {
        Self {
            limits,
            capture: FileCapture::default(),
            total_bytes: 0,
            too_many: Vec::new(),
            unnamed: 0,
        }
    }

    /// Whether a file has been taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.capture.files.iter().any(|taken| taken.name == name)
    }

    fn take(&mut self, name: &str, file: File, meta: &FileMeta) {
        if self.has(name) {
            return;
        }
        if let Some(max) = self.byte_limit(name, meta.size, meta.stored) {
            match read(file, meta.size, max) {
                Ok((bytes, whole)) => self.add(name, bytes, whole),
                Err(_) => self.note_rejected(name, "reading it failed"),
            }
        }
    }

    /// The most bytes that may be read of a file of this size; `None` if the file is rejected.
    pub(super) fn byte_limit(&mut self, name: &str, size: u64, stored: u64) -> Option<u64> {
        if self.capture.files.len() >= self.limits.files {
            self.too_many.push(name.to_owned());
            return None;
        }
        let left = self.limits.captured_total.saturating_sub(self.total_bytes);
        let max = self.limits.captured_file.min(left);
        if size > self.limits.captured_file {
            let max = self.limits.captured_file;
            let sparse = if stored < size / 2 {
                ", most of it holes"
            } else {
                ""
            };
            self.note_rejected(
                name,
                &format!("it has {size} bytes{sparse}; the limit is {max}"),
            );
            return None;
        }
        if size > max {
            let total = self.limits.captured_total;
            let problem = format!("all files of one call would have more than {total} bytes");
            self.note_rejected(name, &problem);
            return None;
        }
        Some(max)
    }

    /// Adds a file, or its beginning.
    pub(super) fn add(&mut self, name: &str, bytes: Bytes, whole: bool) {
        if !whole {
            self.note(format!(
                "'{}' grew while it was read; its first {} bytes are returned",
                shown(name),
                bytes.len()
            ));
        }
        self.total_bytes += bytes.len() as u64;
        self.capture.files.push(CapturedFile {
            name: name.to_owned(),
            bytes,
        });
    }

    /// Records a file that cannot be read.
    pub(super) fn reject(&mut self, name: &str, refusal: Refusal) {
        match refusal {
            Refusal::Missing => self.capture.missing.push(shown(name)),
            Refusal::Reason(problem) => self.note_rejected(name, problem),
        }
    }

    fn note_rejected(&mut self, name: &str, problem: &str) {
        self.note(format!("'{}' is not returned: {problem}", shown(name)));
    }

    fn note(&mut self, notice: String) {
        if self.capture.notices.len() < MAX_NAMED {
            self.capture.notices.push(notice);
        } else {
            self.unnamed += 1;
        }
    }

    pub(super) fn finish(mut self, before: &Snapshot, after: &Snapshot) -> FileCapture {
        let notices = &mut self.capture.notices;
        if self.unnamed > 0 {
            notices.push(format!(
                "{} more files are not returned, or only in part",
                self.unnamed
            ));
        }
        if !self.too_many.is_empty() {
            let named: Vec<_> = self.too_many.iter().take(MAX_NAMED).collect();
            let named: Vec<_> = named.into_iter().map(|name| shown(name)).collect();
            let more = if self.too_many.len() > named.len() {
                ", …"
            } else {
                ""
            };
            notices.push(format!(
                "{} files are not returned, because one call returns at most {}: {}{more}",
                self.too_many.len(),
                self.limits.files,
                named.join(", ")
            ));
        }
        if after.odd_names > before.odd_names {
            notices.push(
                "files whose names are not UTF-8 or hold control characters are not returned; rename them"
                    .to_owned(),
            );
        }
        if after.special > before.special {
            notices.push(
                "symbolic links, pipes, sockets and devices are not returned; write regular files"
                    .to_owned(),
            );
        }
        if !after.complete {
            notices.push(format!(
                "only files in the first {} entries and {} levels of the working directory are returned without being requested",
                super::LISTED.entries,
                super::LISTED.depth
            ));
        }
        self.capture
    }
}

/// Reads a file up to `max` bytes; the flag says whether that was all.
pub(super) fn read(file: File, size: u64, max: u64) -> io::Result<(Bytes, bool)> {
    // Reading one byte more tells whether the file is longer. The size is only a hint, because the file may change
    // meanwhile.
    let mut bytes = Vec::with_capacity(usize::try_from(size).map_err(io::Error::other)?);
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    let whole = bytes.len() as u64 <= max;
    bytes.truncate(usize::try_from(max).map_err(io::Error::other)?);
    Ok((bytes.into(), whole))
}

/// A file name for use in a notice.
fn shown(name: &str) -> String {
    crate::output::clean(name, MAX_PLACED_NAME).replace('\n', " ")
}
