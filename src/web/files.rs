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
use net::{BodyError, CappedBody};
use protocol::ids::Owner;

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
    /// The clients of the request, without TLS and with it, once they were needed.
    clients: [Option<reqwest::Client>; 2],
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
    /// The file is larger than the bytes that are left for the files of the request.
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
            clients: [None, None],
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
        let client = self.client(owner, &url, budget)?;
        let download = self.download(client, url, budget.bytes);
        let downloaded = timeout_at(budget.deadline, download).await;
        let file = downloaded.unwrap_or(Err(DownloadError::TimedOut(self.timeout)))?;
        budget.bytes -= file.content.len();
        Ok(file)
    }

    /// The client of a request for a URL.
    fn client(
        &self,
        owner: &Owner,
        url: &Url,
        budget: &mut DownloadBudget,
    ) -> Result<reqwest::Client, DownloadError> {
        let [plain, encrypted] = &mut budget.clients;
        let kept = match url.scheme() {
            "https" => encrypted,
            _ => plain,
        };
        if let Some(client) = kept {
            return Ok(client.clone());
        }
        let client = self.hosts.client(owner, url);
        let client = client.map_err(|error| failed(&error))?;
        Ok(kept.insert(client).clone())
    }

    async fn download(
        &self,
        client: reqwest::Client,
        url: Url,
        limit: usize,
    ) -> Result<DownloadedFile, DownloadError> {
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

fn failed(error: &dyn std::error::Error) -> DownloadError {
    tracing::warn!(cause = ?error.source(), "a file could not be downloaded");
    DownloadError::Failed
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    use super::*;

    async fn serve(mut connection: TcpStream) {
        let mut head = Vec::new();
        while let Ok(byte) = connection.read_u8().await {
            head.push(byte);
            if head.ends_with(b"\r\n\r\n") {
                head.clear();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
                connection.write_all(answer).await.unwrap();
            }
        }
    }

    /// A host that counts its connections; it ends with the set.
    async fn host(tasks: &mut JoinSet<()>) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a", listener.local_addr().unwrap());
        let count = Arc::new(AtomicUsize::new(0));
        let connections = Arc::clone(&count);
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                serving.spawn(serve(connection));
            }
        });
        (url, count)
    }

    #[tokio::test]
    async fn the_files_of_one_request_share_a_client_and_those_of_two_do_not() {
        let mut tasks = JoinSet::new();
        let (first, second) = (host(&mut tasks).await, host(&mut tasks).await);
        let downloads = FileDownloads::new(&FileUrlSettings {
            hosts: Vec::new(),
            private: vec!["127.0.0.1".to_owned()],
            ports: Vec::new(),
            timeout: Duration::from_secs(30),
            max_bytes: 1_000,
        });
        let downloads = downloads.unwrap();
        let owner = Owner::key("alice");
        for request in 1..=2 {
            let mut budget = downloads.budget();
            for _ in 0..20 {
                for (url, _) in [&first, &second] {
                    let file = downloads.get(&owner, url, &mut budget).await.unwrap();
                    assert_eq!(file.content, "a");
                }
            }
            for (_, connections) in [&first, &second] {
                assert_eq!(connections.load(Ordering::Relaxed), request);
            }
        }
    }

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
