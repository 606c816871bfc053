//! `POST /v1/agent/tools/{name}/call`: a call of a server-side tool outside of a turn.

use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use schemars::JsonSchema;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::whole_of;
use super::encoding::{AnswerContext, encode};
use super::error::{ApiError, codes};
use super::extract::Path;
use super::headers::session_header;
use super::idempotency::{self, IdempotencyOutcome, KeyedRequest};
use super::openapi::cases;
use super::openapi::headers::OF_CALL;
use super::openapi::operation::Operation;
use super::routes::ApiEndpoint;
use super::{AppState, body, caller};
use crate::dialects::answer::AnswerForm;
use crate::dialects::chat::encode::DirectCallAnswer;
use agent::direct::{CallRequest, CheckedCall};
use agent::runs::{
    Closed, Encode, FirstReader, IdempotencyKey, InlineRunSlot, PreparedRun, RunStart,
};
use protocol::ids::{Owner, RequestId, RunId, SessionId};
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, body_member, body_object, refuse_unknown};

/// The body of a call.
#[derive(Debug, Default, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CallBody {
    /// The arguments. Without them: `{}`.
    #[schemars(with = "Option<Map<String, Value>>")]
    arguments: Option<String>,
    /// The session whose working files, interpreter, grants and MCP connections the call uses. Without it: none that last.
    session_id: Option<SessionId>,
}

impl CallBody {
    fn read(bytes: &Bytes) -> Result<Self, RequestError> {
        let body = body_object(bytes)?;
        refuse_unknown(&body, &["arguments", "session_id"])?;
        let session: Option<String> = body_member(&body, "session_id", "a string")?;
        let session = session.map(|id| {
            SessionId::parse(&id).map_err(|problem| {
                let message = format!("the session id in 'session_id' {problem}");
                RequestError::field("session_id", message)
            })
        });
        let arguments = body.get_some("arguments").map(RawValue::get);
        if arguments.is_some_and(|text| RawObject::parse(text).is_err()) {
            return Err(RequestError::invalid("arguments", "must be an object"));
        }
        Ok(Self {
            arguments: arguments.map(str::to_owned),
            session_id: session.transpose()?,
        })
    }
}

/// The request that asks for a call.
#[derive(Debug)]
pub(super) struct CallOrigin<'a> {
    pub(super) owner: Owner,
    pub(super) request_id: RequestId,
    pub(super) headers: &'a HeaderMap,
}

impl CallOrigin<'_> {
    /// The call of a tool.
    ///
    /// # Errors
    /// When a header of the request is not valid.
    pub(super) fn request(
        self,
        state: &AppState,
        tool: &str,
        arguments: Option<String>,
        session_id: Option<SessionId>,
    ) -> Result<CallRequest, ApiError> {
        let session_header = session_header(self.headers)?;
        let mut caller = caller::caller(state, self.owner, self.request_id);
        caller.trace = caller::trace_of(state, self.headers);
        Ok(CallRequest {
            session_id: session_id.or(session_header),
            caller,
            name: tool.to_owned(),
            arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
        })
    }
}

/// The run of a call, which can be started.
pub(super) fn prepared_run(
    state: &AppState,
    owner: &Owner,
    call: &CheckedCall,
    key: Option<IdempotencyKey>,
    (id, encode, held): (RunId, Encode, Box<dyn Send>),
) -> Result<PreparedRun, ApiError> {
    let permit = state.permit_for_turn(owner)?;
    let start = RunStart {
        id,
        encode,
        finish: key.is_some(),
        streamed: false,
        recorded: key.is_some(),
        // Without a key no client can ask for the answer again.
        ephemeral: key.is_none(),
        key,
        session_id: call.session_id().cloned(),
        unfinished: None,
        held: Box::new((held, permit)),
    };
    let prepared = state.runs.prepare(owner, start);
    prepared.map_err(|Closed| codes::SHUTTING_DOWN.error())
}

/// Calls a tool.
async fn call(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Path(tool): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
    }
    let began = head.extensions.get::<Instant>().copied();
    let began = began.unwrap_or_else(Instant::now);
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let CallBody {
        arguments,
        session_id,
    } = CallBody::read(&bytes)?;
    let key = idempotency::key(&head.headers, head.uri.path(), &bytes)?;
    let origin = CallOrigin {
        owner: owner.clone(),
        request_id,
        headers: &head.headers,
    };
    let call = origin.request(&state, &tool, arguments, session_id)?;
    let call = state.agent.admit_call(call);
    let call = call.map_err(|error| ApiError::of_call(&tool, error))?;
    let id = RunId::fresh();
    let context = AnswerContext {
        metrics: state.metrics.clone(),
        began,
        has_key: key.is_some(),
        is_resumed: false,
    };
    let form = AnswerForm::Call;
    let encode = encode(&form, &id, context);
    let parts = (
        id.clone(),
        encode,
        Box::new(bytes.into_kept()) as Box<dyn Send>,
    );
    let prepared = prepared_run(&state, &owner, &call, key.clone(), parts)?;
    if let Some(key) = &key {
        let keyed = KeyedRequest {
            owner: &owner,
            key,
            form: &form,
            background: false,
            restarts: !call.may_change(),
        };
        match idempotency::attach(&state, keyed, &id).await? {
            IdempotencyOutcome::Start(_) => {}
            IdempotencyOutcome::Answer(response) => return Ok(response),
            // Only a turn waits.
            IdempotencyOutcome::Suspended { .. } => return Err(codes::INTERNAL.into()),
        }
    }
    // The server gives every request the handle of its connection.
    let connection = head.extensions.get::<InlineRunSlot>().cloned();
    let reader: FirstReader = prepared.launch(call.into(), &connection.unwrap_or_default());
    Ok(whole_of(reader, began).await)
}

/// The route of calls.
pub(super) fn endpoint() -> ApiEndpoint {
    ApiEndpoint::post("/v1/agent/tools/{name}/call", call, describe_call)
}

fn describe_call(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("callTool", "Calls a server-side tool")
        .described(
            "No model takes part. The call takes the path of a call of the model: repair, validation, hooks, permissions, \
             redaction, the cap of its result. How it ended is in `status`; an error of the request means that no tool was \
             called.",
        )
        .path("name", "The name of the tool, as `GET /v1/agent/tools` lists it, or of a function of the dispatch URL.")
        .keyed("A request that is sent again under the same key gets the same answer, and the call is made once.")
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more.",
        )
        .reads::<CallBody>(true)
        .answers::<DirectCallAnswer<'_>>(200, "The call, with its files and notices.")
        .with_headers(200, &OF_CALL)
        .with_error_headers(&OF_CALL)
        .fails(&[
            codes::NOT_FOUND,
            codes::APPROVAL_REQUIRED,
            codes::CALL_CANCELLED,
            codes::CALL_INTERRUPTED,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::SHUTTING_DOWN,
        ])
        .fails(cases::KEYED)
}
