//! `POST /v1/files`: a form with one file, which goes to the disk while it arrives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{Extension, FromRequest, Multipart, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::super::AppState;
use super::super::auth::foreign_origin;
use super::super::error::ApiError;
use super::super::forward::known_origin;
use super::{purpose, session_id};
use crate::ids::{Owner, SessionId};
use crate::openai::request::RequestError;
use crate::session::files::{Draft, FileError, FileStore, NewFile, Purpose};

/// Room for what a form holds besides the file, in bytes.
const FORM_BYTES: u64 = 1024 * 1024;
/// Longest value of a field that is no file, in bytes.
const MAX_VALUE_BYTES: usize = 1024;
/// Most bytes that are held because no part of the form has come of them yet.
const MAX_UNREAD_BYTES: usize = 256 * 1024;
/// Most fields of a form.
const MAX_FIELDS: usize = 32;
/// Longest upload of an empty file; the largest one gets the time that it takes at the slowest rate besides.
const BASE_WAIT: Duration = Duration::from_secs(60);
/// The slowest rate at which the largest file still arrives in time, in bytes per second.
const SLOWEST_RATE: u64 = 32 * 1024;
/// How much of a refused body is read for nothing, and for how long: most clients look for an answer only once all is
/// sent, and would be told of a broken connection instead of the reason.
const LINGER_BYTES: u64 = 256 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(10);

/// `POST /v1/files`
pub(in super::super) async fn upload(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    request: Request,
) -> Result<Response, ApiError> {
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let headers = request.headers();
    require_form(headers)?;
    // A page can send a form without asking first.
    if foreign_origin(headers) && !known_origin(&state, headers) {
        return Err(ApiError::origin_not_allowed());
    }
    let files = &state.sessions.files;
    let most = files.limits().max_file_bytes;
    if declared_length(headers).is_some_and(|length| length > most.saturating_add(FORM_BYTES)) {
        if !headers.contains_key(EXPECT) {
            discard(request.into_body().into_data_stream()).await;
        }
        return Err(FileError::TooLarge { limit: most }.into());
    }
    let (head, body) = request.into_parts();
    let arrived = Arc::new(Arrived::default());
    let body = SharedBody(Arc::new(Mutex::new(body.into_data_stream())));
    let arriving = Arriving {
        body: body.clone(),
        arrived: Arc::clone(&arrived),
        resting: false,
    };
    let request = Request::from_parts(head, Body::from_stream(arriving));
    let form = Multipart::from_request(request, &state).await;
    let form = form.map_err(|_no_boundary| broken("the content type has no boundary"))?;
    let mut reader = FormReader {
        form,
        arrived,
        idle: state.settings.body_timeout,
    };
    let received = match reader.read_in_time(files, longest(most)).await {
        Ok(received) => received,
        Err(error) => {
            if error.status() != StatusCode::REQUEST_TIMEOUT {
                discard(body).await;
            }
            return Err(error);
        }
    };
    let new = NewFile {
        session: received.session.as_ref(),
        name: &received.name,
        mime_type: received.mime_type.as_deref(),
        purpose: received.purpose,
        tool: None,
        round: None,
    };
    let stored = received.draft.finish(&owner, new).await?;
    Ok(Json(stored).into_response())
}

/// A whole form.
#[derive(Debug)]
struct Received {
    draft: Draft,
    name: String,
    mime_type: Option<String>,
    purpose: Purpose,
    session: Option<SessionId>,
}

/// The file of a form.
#[derive(Debug)]
struct ReceivedFile {
    draft: Draft,
    name: String,
    mime_type: Option<String>,
}

#[derive(Debug)]
struct FormReader {
    form: Multipart,
    arrived: Arc<Arrived>,
    /// Longest silence.
    idle: Duration,
}

/// Longest upload where files may have so many bytes.
fn longest(most: u64) -> Duration {
    BASE_WAIT.saturating_add(Duration::from_secs(most / SLOWEST_RATE))
}

impl FormReader {
    /// Reads the form, which has this much time however steadily it comes.
    async fn read_in_time(
        &mut self,
        files: &FileStore,
        total: Duration,
    ) -> Result<Received, ApiError> {
        let received = timeout(total, self.read(files)).await;
        received.unwrap_or_else(|_elapsed| Err(ApiError::body_timeout()))
    }

    /// Reads the form to its end; the fields may come in any order.
    async fn read(&mut self, files: &FileStore) -> Result<Received, ApiError> {
        let Self {
            form,
            arrived,
            idle,
        } = self;
        let (mut file, mut purposes, mut sessions) = (None, Vec::new(), Vec::new());
        for _ in 0..MAX_FIELDS {
            let next = in_time(*idle, form.next_field()).await?;
            let Some(mut field) = arrived.checked(next)? else {
                return received(file, &purposes, &sessions);
            };
            let mut part = Part {
                arrived,
                idle: *idle,
            };
            match field.name().unwrap_or_default().to_owned().as_str() {
                "file" if file.is_some() => {
                    return Err(refused(
                        "file",
                        "is given more than once; upload one file per request",
                    ));
                }
                "file" => file = Some(part.file(&mut field, files).await?),
                "purpose" => purposes.push(part.value(&mut field, "purpose").await?),
                "session_id" => sessions.push(part.value(&mut field, "session_id").await?),
                name if name.starts_with("expires_after") => {
                    let problem = "is not available in this version; leave it out";
                    return Err(refused("expires_after", problem));
                }
                _ => part.skip(&mut field).await?,
            }
        }
        Err(broken(&format!("it has more than {MAX_FIELDS} fields")))
    }
}

/// How one field is read.
#[derive(Debug)]
struct Part<'a> {
    arrived: &'a Arrived,
    idle: Duration,
}

impl Part<'_> {
    async fn next(&mut self, field: &mut Field<'_>) -> Result<Option<Bytes>, ApiError> {
        let chunk = in_time(self.idle, field.chunk()).await?;
        self.arrived.checked(chunk)
    }

    async fn file(
        &mut self,
        field: &mut Field<'_>,
        files: &FileStore,
    ) -> Result<ReceivedFile, ApiError> {
        let name = field.file_name().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(refused("file", "must be a file with a name (filename=…)"));
        }
        let mime_type = field.content_type().map(ToOwned::to_owned);
        let mut draft = files.draft().await?;
        while let Some(bytes) = self.next(field).await? {
            draft.write(&bytes).await?;
        }
        Ok(ReceivedFile {
            draft,
            name,
            mime_type,
        })
    }

    async fn value(&mut self, field: &mut Field<'_>, name: &str) -> Result<String, ApiError> {
        let mut value = Vec::new();
        while let Some(bytes) = self.next(field).await? {
            value.extend_from_slice(&bytes);
            if value.len() > MAX_VALUE_BYTES {
                let problem = format!("is longer than {MAX_VALUE_BYTES} bytes; send a shorter one");
                return Err(refused(name, &problem));
            }
        }
        String::from_utf8(value).map_err(|_| refused(name, "is not UTF-8; encode it as UTF-8"))
    }

    /// Reads over a field that means nothing here.
    async fn skip(&mut self, field: &mut Field<'_>) -> Result<(), ApiError> {
        let name = field.name().unwrap_or_default().to_owned();
        self.value(field, &name).await.map(drop)
    }
}

/// What a form with these fields asks for.
fn received(
    file: Option<ReceivedFile>,
    purposes: &[String],
    sessions: &[String],
) -> Result<Received, ApiError> {
    let twice = |name: &str| refused(name, "is given more than once; send it once");
    let purpose = match purposes {
        [] => Purpose::default(),
        [text] => purpose(text)?,
        _ => return Err(twice("purpose")),
    };
    let session = match sessions {
        [] => None,
        [text] => Some(session_id(text)?),
        _ => return Err(twice("session_id")),
    };
    let file = file.ok_or_else(|| refused("file", "is missing; send the file in this field"))?;
    let ReceivedFile {
        draft,
        name,
        mime_type,
    } = file;
    Ok(Received {
        draft,
        name,
        mime_type,
        purpose,
        session,
    })
}

/// What the form's parser has taken from the body.
#[derive(Debug, Default)]
struct Arrived {
    /// Bytes of which no part of the form has come yet.
    unread: AtomicUsize,
}

impl Arrived {
    /// What came of the bytes so far.
    fn checked<T>(&self, result: Result<T, MultipartError>) -> Result<T, ApiError> {
        let unread = self.unread.swap(0, Ordering::Relaxed);
        result.map_err(|error| match unread > MAX_UNREAD_BYTES {
            true => broken("too many bytes come before or between its fields"),
            false => broken(&error.body_text()),
        })
    }
}

/// A body that can still be read when the parser has given it up.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<BodyDataStream>>);

impl Stream for SharedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().poll_next_unpin(context)
    }
}

/// A body on its way to the parser, which takes and holds all that it is offered.
struct Arriving {
    body: SharedBody,
    arrived: Arc<Arrived>,
    /// The parser is to use what it has been given before it gets more.
    resting: bool,
}

impl Stream for Arriving {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        if std::mem::take(&mut self.resting) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(data) = ready!(self.body.poll_next_unpin(context)) else {
            return Poll::Ready(None);
        };
        let Ok(data) = data else {
            return Poll::Ready(Some(Err(io::Error::other("the body is incomplete"))));
        };
        self.resting = true;
        let before = self.arrived.unread.fetch_add(data.len(), Ordering::Relaxed);
        Poll::Ready(Some(if before > MAX_UNREAD_BYTES {
            Err(io::Error::other("too many bytes without a field"))
        } else {
            Ok(data)
        }))
    }
}

async fn in_time<T>(idle: Duration, work: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(idle, work)
        .await
        .map_err(|_elapsed| ApiError::body_timeout())
}

/// Reads on for nothing, within bounds.
async fn discard<E>(mut rest: impl Stream<Item = Result<Bytes, E>> + Unpin) {
    let reading = async {
        let mut left = LINGER_BYTES;
        while let Some(Ok(data)) = rest.next().await {
            let Some(less) = left.checked_sub(data.len() as u64) else {
                break;
            };
            left = less;
        }
    };
    let _enough_in_any_case = timeout(LINGER, reading).await;
}

fn require_form(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = kind
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    match kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        true => Ok(()),
        false => Err(ApiError::not_a_form()),
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn refused(field: &str, problem: &str) -> ApiError {
    RequestError::invalid(field, problem).into()
}

fn broken(problem: &str) -> ApiError {
    let message = format!(
        "the form is not valid ({problem}); send it as multipart/form-data with the field 'file'"
    );
    RequestError::body(&message).into()
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::session::Sessions;
    use crate::session::settings::{Settings, StoreUrl};
    use crate::store::Store;

    #[tokio::test]
    async fn a_form_that_never_falls_silent_and_never_ends_is_given_up() {
        assert_eq!(longest(0), BASE_WAIT);
        assert_eq!(
            longest(SLOWEST_RATE * 10),
            BASE_WAIT + Duration::from_secs(10)
        );
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            store: StoreUrl::Sqlite(folder.path().join("sessions.db")),
            ttl: None,
            wait: Duration::from_secs(1),
            max_messages: 100,
            files_dir: None,
            max_file_bytes: 1024 * 1024,
            max_total_file_bytes: 1024 * 1024,
        };
        let store = Store::open(&settings.store).await.unwrap();
        let store = Sessions::open(store, &settings).await.unwrap();
        let head = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        let slow = stream::unfold(Bytes::from(head), async |next| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((Ok::<_, io::Error>(next), Bytes::from_static(b"x")))
        });
        let request = Request::builder()
            .header(CONTENT_TYPE, "multipart/form-data; boundary=b")
            .body(Body::from_stream(slow))
            .unwrap();
        let mut reader = FormReader {
            form: Multipart::from_request(request, &()).await.unwrap(),
            arrived: Arc::default(),
            idle: Duration::from_secs(60),
        };
        let total = Duration::from_millis(300);
        let given_up = reader.read_in_time(&store.files, total).await;
        assert_eq!(given_up.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
