//! S3-compatible object storage that keeps everything in memory, checks what it is sent, and fails or waits when told to.

mod signature;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use url::form_urlencoded;

use super::app::Builder;
use super::server::{Arrived, Gate, Outgoing, Server, whole};

/// The access key that requests are signed with.
pub(crate) const ACCESS_KEY: &str = "AKIDOFTHETESTS";
/// Its secret.
pub(crate) const SECRET_KEY: &str = "secret-of-the-tests-0123456789";
/// The bucket.
const BUCKET: &str = "files";
/// The least size of a part that is not the last one, as in S3.
const LEAST_PART: usize = 5 << 20;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Stores an object.
    Put,
    /// Begins an upload in parts.
    Create,
    /// Stores a part with this number.
    Part(u32),
    /// Ends an upload.
    Complete,
    /// Drops an upload.
    Abort,
    /// Reads this range.
    Get(Option<String>),
    /// Looks whether there is an object.
    Head,
    /// Removes an object.
    Delete,
    /// Lists objects.
    List,
}

/// What becomes of a request instead.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// This status, with a body that repeats what a real storage repeats.
    Status(u16),
    /// It waits at the gate, then goes on.
    Wait(Gate),
}

/// A running storage.
pub(crate) struct Storage {
    server: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: HashMap<String, Upload>,
    log: Vec<(Operation, String)>,
    faults: Vec<(Operation, Fault)>,
    violations: Vec<String>,
}

#[derive(Clone)]
struct Object {
    content: Bytes,
    modified: SystemTime,
}

#[derive(Default)]
struct Upload {
    key: String,
    parts: BTreeMap<u32, Bytes>,
}

impl Storage {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let handler = move |arrived: Arrived| {
            let state = shared.clone();
            let answering: futures_util::future::BoxFuture<'static, Outgoing> =
                Box::pin(async move { Outgoing::Response(answer(&state, arrived).await) });
            answering
        };
        Self {
            server: Server::start(Arc::new(handler)).await,
            state,
        }
    }

    /// Keeps the files of a server in this storage.
    pub(crate) fn keep_files(&self, builder: Builder) -> Builder {
        let builder = builder.args(["--files-dir", "s3://files/some/prefix"]);
        self.with_credentials(builder)
    }

    /// Tells a server where this storage is, and the key.
    pub(crate) fn with_credentials(&self, builder: Builder) -> Builder {
        builder
            .env(
                "AWS_ENDPOINT_URL",
                &format!("http://{}", self.server.addr()),
            )
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    }

    /// From now on, requests for this operation fail or wait.
    pub(crate) fn fault(&self, operation: Operation, fault: Fault) {
        self.state.lock().faults.push((operation, fault));
    }

    /// No more faults.
    pub(crate) fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// What has been asked for so far, apart from the object and the list of the start.
    pub(crate) fn log(&self) -> Vec<Operation> {
        let state = self.state.lock();
        let log = state.log.iter();
        let log = log.filter(|(operation, key)| {
            !key.ends_with("/loopwright") && *operation != Operation::List
        });
        log.map(|(operation, _)| operation.clone()).collect()
    }

    /// The keys of the stored files.
    pub(crate) fn keys(&self) -> Vec<String> {
        let state = self.state.lock();
        let keys = state
            .objects
            .keys()
            .filter(|key| !key.ends_with("/loopwright"));
        keys.cloned().collect()
    }

    /// The number of uploads in parts that are neither complete nor aborted.
    pub(crate) fn open_uploads(&self) -> usize {
        self.state.lock().uploads.len()
    }

    /// Adds an object of this age beside another one, as an interrupted write leaves it.
    pub(crate) fn add_beside(&self, key: &str, name: &str, age: Duration) {
        let (folder, _) = key.rsplit_once('/').unwrap();
        let object = Object {
            content: Bytes::from_static(b"left"),
            modified: SystemTime::now() - age,
        };
        let key = format!("{folder}/{name}");
        self.state.lock().objects.insert(key, object);
    }

    /// Fails if a request broke the protocol.
    pub(crate) fn assert_no_violations(&self) {
        let violations = &self.state.lock().violations;
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_no_violations();
        }
    }
}

async fn answer(state: &Mutex<State>, arrived: Arrived) -> Response<super::server::Body> {
    let (head, body) = arrived.request.into_parts();
    let Ok(body) = body.collect().await else {
        return error(400, "IncompleteBody");
    };
    let body = body.to_bytes();
    if let Err(problem) = signature::check(&head, &body) {
        state.lock().violations.push(problem);
        return error(403, "SignatureDoesNotMatch");
    }
    let query: HashMap<String, String> =
        form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let path = head.uri.path().trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket != BUCKET {
        return error(404, "NoSuchBucket");
    }
    let range = head
        .headers
        .get("range")
        .map(|range| range.to_str().unwrap().to_owned());
    let number = query.get("partNumber").map(|text| text.parse().unwrap());
    let operation = match (&head.method, number, query.contains_key("uploadId")) {
        (&Method::POST, None, false) if query.contains_key("uploads") => Operation::Create,
        (&Method::PUT, Some(number), true) => Operation::Part(number),
        (&Method::POST, None, true) => Operation::Complete,
        (&Method::DELETE, None, true) => Operation::Abort,
        (&Method::PUT, None, false) => Operation::Put,
        (&Method::GET, None, false) if key.is_empty() => Operation::List,
        (&Method::GET, None, false) => Operation::Get(range.clone()),
        (&Method::HEAD, None, false) => Operation::Head,
        (&Method::DELETE, None, false) => Operation::Delete,
        _ => {
            let problem = format!("what is {} {}?", head.method, head.uri);
            state.lock().violations.push(problem);
            return error(400, "InvalidRequest");
        }
    };
    let is_marker = key.ends_with("/loopwright");
    let fault = {
        let mut state = state.lock();
        state.log.push((operation.clone(), key.to_owned()));
        let is_meant = |meant: &Operation| {
            matches!(
                (meant, &operation),
                (Operation::Get(None), Operation::Get(_))
            ) || *meant == operation
        };
        let fault = state
            .faults
            .iter()
            .find(|(meant, _)| is_meant(meant) && !is_marker);
        fault.map(|(_, fault)| fault.clone())
    };
    match fault {
        Some(Fault::Status(status)) => return error(status, "InternalError"),
        Some(Fault::Wait(gate)) => gate.pass().await,
        None => {}
    }
    state.lock().act(&operation, key, &query, body)
}

impl State {
    fn act(
        &mut self,
        operation: &Operation,
        key: &str,
        query: &HashMap<String, String>,
        body: Bytes,
    ) -> Response<super::server::Body> {
        let upload_id = query.get("uploadId").cloned().unwrap_or_default();
        match operation {
            Operation::Put => {
                self.put(key, body);
                respond(200, &[("etag", "\"whole\"")], "")
            }
            Operation::Create => {
                let id = format!("upload-{}", self.log.len());
                let upload = Upload {
                    key: key.to_owned(),
                    ..Upload::default()
                };
                self.uploads.insert(id.clone(), upload);
                let xml = format!(
                    "<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                );
                respond(200, &[], xml)
            }
            Operation::Part(number) => match self.uploads.get_mut(&upload_id) {
                Some(upload) if upload.key == key => {
                    upload.parts.insert(*number, body);
                    respond(200, &[("etag", &format!("\"part-{number}\""))], "")
                }
                _ => error(404, "NoSuchUpload"),
            },
            Operation::Complete => self.complete(&upload_id, &body),
            Operation::Abort => match self.uploads.remove(&upload_id) {
                Some(_) => respond(204, &[], ""),
                None => error(404, "NoSuchUpload"),
            },
            Operation::Get(range) => self.get(key, range.as_deref()),
            Operation::Head => self.get(key, None),
            Operation::Delete => {
                self.objects.remove(key);
                respond(204, &[], "")
            }
            Operation::List => self.list(query),
        }
    }

    fn put(&mut self, key: &str, content: Bytes) {
        let modified = SystemTime::now();
        self.objects
            .insert(key.to_owned(), Object { content, modified });
    }

    fn complete(&mut self, id: &str, body: &[u8]) -> Response<super::server::Body> {
        let Some(upload) = self.uploads.remove(id) else {
            return error(404, "NoSuchUpload");
        };
        let body = String::from_utf8_lossy(body);
        let listed: Vec<String> = upload
            .parts
            .keys()
            .map(|number| format!("part-{number}"))
            .collect();
        let missing = listed.iter().find(|part| !body.contains(*part));
        let numbers: Vec<u32> = upload.parts.keys().copied().collect();
        let in_order = numbers
            .iter()
            .zip(1_u32..)
            .all(|(number, expected)| *number == expected);
        let short = upload
            .parts
            .values()
            .rev()
            .skip(1)
            .any(|part| part.len() < LEAST_PART);
        if missing.is_some() || !in_order || short {
            let problem = format!("parts {numbers:?} do not make a whole: {body}");
            self.violations.push(problem);
            return error(400, "InvalidPart");
        }
        let content: Vec<u8> = upload.parts.into_values().flatten().collect();
        self.put(&upload.key, content.into());
        respond(
            200,
            &[],
            "<CompleteMultipartUploadResult><ETag>&quot;whole&quot;</ETag></CompleteMultipartUploadResult>",
        )
    }

    fn get(&self, key: &str, range: Option<&str>) -> Response<super::server::Body> {
        let Some(object) = self.objects.get(key) else {
            return error(404, "NoSuchKey");
        };
        let modified = httpdate::fmt_http_date(object.modified);
        let headers = [("etag", "\"whole\""), ("last-modified", modified.as_str())];
        let Some(range) = range else {
            let length = object.content.len().to_string();
            let [etag, modified] = headers;
            // Also in the answer to HEAD.
            let headers = [etag, modified, ("content-length", length.as_str())];
            return respond(200, &headers, object.content.clone());
        };
        let (first, last) = range
            .strip_prefix("bytes=")
            .unwrap()
            .split_once('-')
            .unwrap();
        let size = object.content.len();
        let first: usize = first.parse().unwrap();
        let last = last.parse().unwrap_or(usize::MAX).min(size - 1);
        let content_range = format!("bytes {first}-{last}/{size}");
        let [etag, modified] = headers;
        let headers = [etag, modified, ("content-range", content_range.as_str())];
        respond(206, &headers, object.content.slice(first..=last))
    }

    fn list(&self, query: &HashMap<String, String>) -> Response<super::server::Body> {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let after = query.get("start-after").map_or("", String::as_str);
        let objects = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix));
        let entries = objects.filter(|(key, _)| key.as_str() > after).map(|(key, object)| {
            let modified = chrono::DateTime::<chrono::Utc>::from(object.modified).to_rfc3339();
            let size = object.content.len();
            format!("<Contents><Key>{key}</Key><LastModified>{modified}</LastModified><ETag>&quot;whole&quot;</ETag><Size>{size}</Size></Contents>")
        });
        let entries: String = entries.collect();
        respond(
            200,
            &[],
            format!(
                "<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
            ),
        )
    }
}

fn respond(
    status: u16,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<super::server::Body> {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(whole(body.into())).unwrap()
}

/// An error as S3 writes it: it repeats the access key and what was signed.
fn error(status: u16, code: &str) -> Response<super::server::Body> {
    let xml = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId><StringToSign>AWS4-HMAC-SHA256</StringToSign></Error>"
    );
    respond(status, &[], xml)
}
