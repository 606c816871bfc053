//! `POST /v1/files`: a multipart form with one file, which is written to the disk while it arrives.

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
use super::super::error::{ApiError, codes};
use super::{purpose, session_id};
use agent::session::files::{FileDraft, FileError, FileStore, NewFile, Purpose};
use protocol::ids::{Owner, SessionId};
use protocol::openai::request::RequestError;

/// Longest value of a field other than the file, in bytes. A longer one is a 400.
pub(in super::super) const MAX_VALUE_BYTES: usize = 1024;
/// Most bytes that the parser may hold before it yields a field or a piece of one, with more of which the form is a
/// 400, and that a form may declare besides the largest file, with more of which it is a 413.
const MAX_UNPARSED_BYTES: usize = 256 * 1024;
/// Most fields of a form. With more the form is a 400.
/// Tried by `files::a_form_that_cannot_be_used_says_why_and_leaves_nothing`.
pub(in super::super) const MAX_FIELDS: usize = 32;
/// Longest time of an upload, to which the time of the largest file at [`MIN_UPLOAD_RATE`] is added. After it the
/// upload is a 408.
/// Tried by `upload::a_form_that_arrives_slowly_without_end_is_refused`.
const BASE_UPLOAD_TIME: Duration = Duration::from_secs(60);
/// Least rate at which the largest file must arrive, in bytes per second.
/// Tried by `upload::a_form_that_arrives_slowly_without_end_is_refused`.
const MIN_UPLOAD_RATE: u64 = 32 * 1024;
/// Most bytes of a refused body that are read and discarded; then the connection is closed. Most clients read the
/// response only after they have sent everything; if the connection were closed before, they would report that instead
/// of the error.
/// Tried by `files::too_large_a_file_is_refused_while_it_arrives`.
const MAX_DISCARDED_BYTES: u64 = 256 * 1024 * 1024;
/// Longest time for which a refused body is read and discarded; then the connection is closed.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// `POST /v1/files`
pub(in super::super) async fn upload(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    request: Request,
) -> Result<Response, ApiError> {
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
    }
    let headers = request.headers();
    require_form(headers)?;
    let files = &state.sessions.files;
    let most = files.limits().max_file_bytes;
    if declared_length(headers)
        .is_some_and(|length| length > most.saturating_add(MAX_UNPARSED_BYTES as u64))
    {
        if !headers.contains_key(EXPECT) {
            discard(request.into_body().into_data_stream()).await;
        }
        return Err(FileError::TooLarge { limit: most }.into());
    }
    let (head, body) = request.into_parts();
    let progress = Arc::new(ParserProgress::default());
    let body = SharedBody(Arc::new(Mutex::new(body.into_data_stream())));
    let input = ParserInput {
        body: body.clone(),
        progress: Arc::clone(&progress),
        paused: false,
    };
    let request = Request::from_parts(head, Body::from_stream(input));
    let form = Multipart::from_request(request, &state).await;
    let form = form.map_err(|_no_boundary| form_error("the content type has no boundary"))?;
    let mut reader = FormReader {
        form,
        progress,
        idle: state.settings.body_timeout,
    };
    let received = match reader.read_within(files, max_upload_time(most)).await {
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

/// A complete form, checked.
#[derive(Debug)]
struct UploadForm {
    draft: FileDraft,
    name: String,
    mime_type: Option<String>,
    purpose: Purpose,
    session: Option<SessionId>,
}

/// The file of a form, not yet stored.
#[derive(Debug)]
struct UploadedFile {
    draft: FileDraft,
    name: String,
    mime_type: Option<String>,
}

/// Reads a form from the body of a request.
#[derive(Debug)]
struct FormReader {
    form: Multipart,
    progress: Arc<ParserProgress>,
    /// Longest wait for the next data.
    idle: Duration,
}

/// The time limit of an upload when files may have up to `most` bytes.
fn max_upload_time(most: u64) -> Duration {
    BASE_UPLOAD_TIME.saturating_add(Duration::from_secs(most / MIN_UPLOAD_RATE))
}

impl FormReader {
    /// Reads the form within the time `total`.
    async fn read_within(
        &mut self,
        files: &FileStore,
        total: Duration,
    ) -> Result<UploadForm, ApiError> {
        let received = timeout(total, self.read(files)).await;
        received.unwrap_or_else(|_elapsed| Err(codes::REQUEST_TIMEOUT.into()))
    }

    /// Reads the form to its end; the fields may come in any order.
    async fn read(&mut self, files: &FileStore) -> Result<UploadForm, ApiError> {
        let Self {
            form,
            progress,
            idle,
        } = self;
        let (mut file, mut purposes, mut sessions) = (None, Vec::new(), Vec::new());
        for _ in 0..MAX_FIELDS {
            let next = within(*idle, form.next_field()).await?;
            let Some(mut field) = progress.checked(next)? else {
                return checked_form(file, &purposes, &sessions);
            };
            let mut part = FieldReader {
                progress,
                idle: *idle,
            };
            match field.name().unwrap_or_default().to_owned().as_str() {
                "file" if file.is_some() => {
                    return Err(field_error(
                        "file",
                        "is given more than once; upload one file per request",
                    ));
                }
                "file" => file = Some(part.file(&mut field, files).await?),
                "purpose" => purposes.push(part.value(&mut field, "purpose").await?),
                "session_id" => sessions.push(part.value(&mut field, "session_id").await?),
                name if name.starts_with("expires_after") => {
                    let problem = "is not available in this version; leave it out";
                    return Err(field_error("expires_after", problem));
                }
                _ => part.skip(&mut field).await?,
            }
        }
        Err(form_error(&format!("it has more than {MAX_FIELDS} fields")))
    }
}

/// Reads one field of a form.
#[derive(Debug)]
struct FieldReader<'a> {
    progress: &'a ParserProgress,
    idle: Duration,
}

impl FieldReader<'_> {
    async fn next(&mut self, field: &mut Field<'_>) -> Result<Option<Bytes>, ApiError> {
        let chunk = within(self.idle, field.chunk()).await?;
        self.progress.checked(chunk)
    }

    async fn file(
        &mut self,
        field: &mut Field<'_>,
        files: &FileStore,
    ) -> Result<UploadedFile, ApiError> {
        let name = field.file_name().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(field_error(
                "file",
                "must be a file with a name (filename=…)",
            ));
        }
        let mime_type = field.content_type().map(ToOwned::to_owned);
        let mut draft = files.draft().await?;
        while let Some(bytes) = self.next(field).await? {
            draft.write(&bytes).await?;
        }
        Ok(UploadedFile {
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
                return Err(field_error(name, &problem));
            }
        }
        String::from_utf8(value).map_err(|_| field_error(name, "is not UTF-8; encode it as UTF-8"))
    }

    /// Skips an unknown field.
    async fn skip(&mut self, field: &mut Field<'_>) -> Result<(), ApiError> {
        let name = field.name().unwrap_or_default().to_owned();
        self.value(field, &name).await.map(drop)
    }
}

/// Checks the fields of a form.
fn checked_form(
    file: Option<UploadedFile>,
    purposes: &[String],
    sessions: &[String],
) -> Result<UploadForm, ApiError> {
    let twice = |name: &str| field_error(name, "is given more than once; send it once");
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
    let file =
        file.ok_or_else(|| field_error("file", "is missing; send the file in this field"))?;
    let UploadedFile {
        draft,
        name,
        mime_type,
    } = file;
    Ok(UploadForm {
        draft,
        name,
        mime_type,
        purpose,
        session,
    })
}

/// How many bytes the parser has taken since it last yielded something; shared by the body and the reader.
#[derive(Debug, Default)]
struct ParserProgress {
    /// Bytes that the parser has taken and not yielded.
    unparsed: AtomicUsize,
}

impl ParserProgress {
    /// Resets the count after the parser has yielded a result, and turns an error of the parser into a response.
    fn checked<T>(&self, result: Result<T, MultipartError>) -> Result<T, ApiError> {
        let unparsed = self.unparsed.swap(0, Ordering::Relaxed);
        result.map_err(|error| match unparsed > MAX_UNPARSED_BYTES {
            true => form_error("too many bytes come before or between its fields"),
            false => form_error(&error.body_text()),
        })
    }
}

/// A body that can still be read after the parser has failed.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<BodyDataStream>>);

impl Stream for SharedBody {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.lock().poll_next_unpin(context)
    }
}

/// The body as the parser reads it. The parser buffers everything that is ready, so this stream pauses after each chunk
/// and fails when the parser holds too much.
struct ParserInput {
    body: SharedBody,
    progress: Arc<ParserProgress>,
    /// Whether the next poll returns pending, so that the parser processes what it has.
    paused: bool,
}

impl Stream for ParserInput {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        if std::mem::take(&mut self.paused) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(data) = ready!(self.body.poll_next_unpin(context)) else {
            return Poll::Ready(None);
        };
        let Ok(data) = data else {
            return Poll::Ready(Some(Err(io::Error::other("the body is incomplete"))));
        };
        self.paused = true;
        let before = self
            .progress
            .unparsed
            .fetch_add(data.len(), Ordering::Relaxed);
        Poll::Ready(Some(if before > MAX_UNPARSED_BYTES {
            Err(io::Error::other("too many bytes without a field"))
        } else {
            Ok(data)
        }))
    }
}

async fn within<T>(idle: Duration, work: impl Future<Output = T>) -> Result<T, ApiError> {
    timeout(idle, work)
        .await
        .map_err(|_elapsed| codes::REQUEST_TIMEOUT.error())
}

/// Reads and discards the rest of a body, up to [`MAX_DISCARDED_BYTES`] and [`DISCARD_TIMEOUT`].
async fn discard<E>(mut rest: impl Stream<Item = Result<Bytes, E>> + Unpin) {
    let reading = async {
        let mut left = MAX_DISCARDED_BYTES;
        while let Some(Ok(data)) = rest.next().await {
            let Some(less) = left.checked_sub(data.len() as u64) else {
                break;
            };
            left = less;
        }
    };
    let _ended_or_timed_out = timeout(DISCARD_TIMEOUT, reading).await;
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
        false => Err(codes::UNSUPPORTED_MEDIA_TYPE.with(
            "the content type must be multipart/form-data; send the file as the field 'file' of a form",
        )),
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn field_error(field: &str, problem: &str) -> ApiError {
    RequestError::invalid(field, problem).into()
}

fn form_error(problem: &str) -> ApiError {
    let message = format!(
        "the form is not valid ({problem}); send it as multipart/form-data with the field 'file'"
    );
    RequestError::body(&message).into()
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use agent::session::Sessions;
    use agent::session::settings::{SessionLimits, Settings, StoreUrl};
    use store::Store;

    #[tokio::test]
    async fn a_form_that_arrives_slowly_without_end_is_refused() {
        assert_eq!(max_upload_time(0), BASE_UPLOAD_TIME);
        assert_eq!(
            max_upload_time(MIN_UPLOAD_RATE * 10),
            BASE_UPLOAD_TIME + Duration::from_secs(10)
        );
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            store: StoreUrl::Sqlite(folder.path().join("sessions.db")),
            ttl: None,
            nameless_ttl: None,
            wait: Duration::from_secs(1),
            max_messages: 100,
            limits: SessionLimits::default(),
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
            progress: Arc::default(),
            idle: Duration::from_secs(60),
        };
        let total = Duration::from_millis(300);
        let result = reader.read_within(&store.files, total).await;
        assert_eq!(result.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
    }
}
