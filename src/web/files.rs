//! Files that requests name by their URLs.

use std::time::Duration;

use bytes::Bytes;
use http::header;
use percent_encoding::percent_decode_str;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::SetupError;
use super::fetch::{GuardedHosts, HostRefusal};
use super::settings::FileUrlSettings;
use crate::ids::Owner;
use crate::net::{BodyError, CappedBody};

/// Downloads files from the hosts that the operator permits.
#[derive(Debug)]
pub struct FileDownloads {
    hosts: GuardedHosts,
    timeout: Duration,
    max_bytes: usize,
}

/// What the files of one request may still take.
#[derive(Debug)]
pub struct DownloadBudget {
    bytes: usize,
    deadline: Instant,
}

/// A downloaded file.
#[derive(Debug)]
pub struct DownloadedFile {
    /// The last part of the URL's path; may be empty.
    pub name: String,
    /// The media type that the host names.
    pub media_type: Option<String>,
    /// The content.
    pub content: Bytes,
}

/// Why a file could not be downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownloadError {
    /// The URL may not be used.
    #[error(transparent)]
    Refused(#[from] HostRefusal),
    /// The host answered with another status than 200. Redirects are not followed.
    #[error("the host answered with the status {0}")]
    Status(u16),
    /// The file is larger than what the files of the request may still have.
    #[error("the file is larger than the {0} bytes that are left to the files of the request")]
    TooLarge(usize),
    /// The downloads of the request took too long.
    #[error("the files of the request took longer than {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The host could not be reached, or the connection failed.
    #[error("the host could not be reached, or the connection failed")]
    Failed,
}

impl FileDownloads {
    /// Downloads from the hosts of the settings.
    ///
    /// # Errors
    /// When a host pattern is invalid.
    pub fn new(settings: &FileUrlSettings) -> Result<Self, SetupError> {
        Ok(Self {
            hosts: GuardedHosts::new(&settings.hosts, &settings.private, &settings.ports)?,
            timeout: settings.timeout,
            max_bytes: settings.max_bytes,
        })
    }

    /// What the files of one request may take, from now on.
    #[must_use]
    pub fn budget(&self) -> DownloadBudget {
        DownloadBudget {
            bytes: self.max_bytes,
            deadline: Instant::now() + self.timeout,
        }
    }

    /// Downloads a file on behalf of an owner, and takes it from the budget of its request.
    ///
    /// # Errors
    /// When the URL may not be used, or the download fails.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub async fn get(
        &self,
        owner: &Owner,
        url: &str,
        budget: &mut DownloadBudget,
    ) -> Result<DownloadedFile, DownloadError> {
        let url = self.hosts.check(url)?;
        let download = self.download(owner, url, budget.bytes);
        let downloaded = timeout_at(budget.deadline, download).await;
        let file = downloaded.unwrap_or(Err(DownloadError::TimedOut(self.timeout)))?;
        budget.bytes -= file.content.len();
        Ok(file)
    }

    async fn download(
        &self,
        owner: &Owner,
        url: Url,
        limit: usize,
    ) -> Result<DownloadedFile, DownloadError> {
        let failed = |error: &dyn std::error::Error| {
            tracing::warn!(cause = ?error.source(), "a file could not be downloaded");
            DownloadError::Failed
        };
        let client = self.hosts.client(owner, &url);
        let client = client.map_err(|error| failed(&error))?;
        let name = file_name(&url);
        let answer = client.get(url).send().await;
        let answer = answer.map_err(|error| failed(&error.without_url()))?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(DownloadError::Status(answer.status().as_u16()));
        }
        let media_type = answer.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let media_type = media_type.map(str::to_owned);
        let body = CappedBody::new(answer, limit);
        let content = async { body?.whole().await }.await;
        let content = content.map_err(|error| match error {
            BodyError::TooLarge(limit) => DownloadError::TooLarge(limit),
            BodyError::Broken(_) => failed(&error),
        })?;
        Ok(DownloadedFile {
            name,
            media_type,
            content,
        })
    }
}

/// The last part of a URL's path, decoded.
fn file_name(url: &Url) -> String {
    let last = url.path_segments().and_then(|mut parts| parts.next_back());
    percent_decode_str(last.unwrap_or_default())
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_at_the_end_of_its_path() {
        for (url, name) in [
            ("https://a/b/c%20d.csv?e=f.txt#g", "c d.csv"),
            ("https://a/b/", ""),
            ("https://a", ""),
        ] {
            assert_eq!(file_name(&Url::parse(url).unwrap()), name, "{url}");
        }
    }
}
