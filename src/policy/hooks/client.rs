//! The hooks of the settings. They are asked one after another in the order of the file. Each sees the changes of the
//! ones before.

use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::answer::{
    FinishHookAnswer, ModelHookAnswer, ResultHookAnswer, ToolDecision, ToolHookAnswer,
};
use super::digest::arguments_sha256;
use super::event::{HookEvent, HookedCall, HookedOutput, HookedResult};
use super::failure::HookFailure;
use super::record::HookedTurn;
use super::service::{self, HookService, HookSetupError};
use super::settings::{HookSettings, Settings};
use super::{HookMeter, HookPoint, OnFailure};
use protocol::openai::message::{Message, Role};

/// The reason of a denial by a hook that failed.
const UNDECIDED: &str = "a hook has to agree, and it could not be asked";
/// The reason of a denial because of what a hook made of the arguments.
const UNFIT: &str = "a hook changed its arguments, and they do not fit the tool any more";
/// Replaces the result that a failed hook was to see.
const UNSEEN_RESULT: &str = "The tool was called, but its result is withheld: a hook has to see it first, and it could not be asked.";
/// Stands before what hooks add to a text.
const BEFORE_CONTEXT: &str = "\n";

/// The hooks of the settings; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Hooks(Arc<[Hook]>);

/// One hook.
#[derive(Debug)]
struct Hook {
    on: HookPoint,
    /// The tools about whose calls it is asked; `None` for all.
    tools: Option<GlobSet>,
    service: HookService,
}

/// A tool call that hooks are asked about.
#[derive(Debug, Clone, Copy)]
pub struct ToolUse<'a> {
    /// The name of the tool.
    pub name: &'a str,
    /// The id of the call.
    pub id: &'a str,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
}

/// What hooks say about a call before it runs.
#[derive(Debug, Default)]
pub struct BeforeTool {
    /// The arguments, if a hook has changed them.
    pub arguments: Option<Map<String, Value>>,
    /// The strictest decision; `None` if no hook has decided.
    pub decision: Option<ToolDecision>,
    /// The reason for it.
    pub reason: Option<String>,
    /// Joins the result of the call, whatever that is.
    pub context: Option<String>,
}

/// What hooks make of the result of a call.
#[derive(Debug, Default)]
pub struct AfterTool {
    /// The text of the result, if a hook has changed it.
    pub content: Option<String>,
    /// How much of the result the text replaces.
    pub extent: ResultExtent,
    /// Counts as the `terminate` of the result.
    pub terminate: bool,
}

/// How much of a result is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ResultExtent {
    /// Nothing is replaced; text may have been added.
    #[default]
    Nothing,
    /// Its text.
    Text,
    /// All of it; it is an error now.
    Whole,
}

impl<'a> ToolUse<'a> {
    /// The call as hooks see it, with the digest of its arguments.
    pub(super) fn hooked<'b>(&self, sha256: &'b str) -> HookedCall<'b>
    where
        'a: 'b,
    {
        HookedCall {
            tool_name: self.name,
            tool_input: self.arguments,
            tool_use_id: self.id,
            arguments_sha256: sha256,
        }
    }
}

impl Hooks {
    /// The hooks of these settings. No connection is opened.
    ///
    /// # Errors
    /// When a URL, a secret or a pattern cannot be used, or the HTTP client cannot be created.
    pub fn new(
        settings: &Settings,
        meter: impl HookMeter + 'static,
    ) -> Result<Self, HookSetupError> {
        if settings.hooks.is_empty() {
            return Ok(Self::default());
        }
        let mut urls = settings.hooks.iter().map(|hook| &hook.service.url);
        let tls = urls.any(|url| url.scheme() == "https");
        let client = service::client(tls, &settings.certificates)?;
        let meter: Arc<dyn HookMeter> = Arc::new(meter);
        let hook = |(index, settings): (usize, &HookSettings)| {
            let name: Arc<str> = format!("hooks[{index}] ({})", settings.on.event_name()).into();
            let tools = settings.tools.as_deref().map(globs).transpose();
            Ok(Hook {
                on: settings.on,
                tools: tools.map_err(|_| HookSetupError::Tools(name.clone()))?,
                service: HookService::new(name, &client, &settings.service, &meter)?,
            })
        };
        let hooks = settings.hooks.iter().enumerate().map(hook);
        hooks.collect::<Result<Arc<[Hook]>, _>>().map(Self)
    }

    /// Whether any hook is asked at this point.
    pub fn has(&self, on: HookPoint) -> bool {
        self.0.iter().any(|hook| hook.on == on)
    }

    fn at(&self, on: HookPoint) -> impl Iterator<Item = &Hook> {
        self.0.iter().filter(move |hook| hook.on == on)
    }

    fn about<'a>(&'a self, on: HookPoint, tool: &'a str) -> impl Iterator<Item = &'a Hook> {
        self.at(on).filter(move |hook| {
            let tools = hook.tools.as_ref();
            tools.is_none_or(|tools| tools.is_match(tool))
        })
    }

    /// Asks whether a call may run, and with which arguments. `fits` says whether arguments that a hook has changed can be
    /// used. A denial ends the chain.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn before_tool(
        &self,
        turn: HookedTurn<'_>,
        call: ToolUse<'_>,
        fits: impl Fn(&Map<String, Value>) -> bool + Send + Sync,
    ) -> BeforeTool {
        let mut said = BeforeTool::default();
        for hook in self.about(HookPoint::BeforeTool, call.name) {
            let arguments = said.arguments.as_ref().unwrap_or(call.arguments);
            let call = ToolUse { arguments, ..call };
            let sha256 = arguments_sha256(arguments);
            let event = HookEvent::PreToolUse(call.hooked(&sha256));
            let read = |body: &[u8]| Ok(ToolHookAnswer::parse(body)?);
            let answer = hook.service.ask(&turn, event, read).await;
            match hook.passes_over(&turn, answer) {
                Ok(Some(answer)) => said.take(&turn, answer, &fits),
                Ok(None) => {}
                Err(_) => said.deny(Some(UNDECIDED.to_owned())),
            }
            if said.decision == Some(ToolDecision::Deny) {
                break;
            }
        }
        said
    }

    /// Gives the text and the status of a result to the hooks. A hook that replaces all of it ends the chain.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn after_tool(
        &self,
        turn: HookedTurn<'_>,
        call: ToolUse<'_>,
        result: HookedOutput<'_>,
    ) -> AfterTool {
        let mut after = AfterTool::default();
        let sha256 = arguments_sha256(call.arguments);
        for hook in self.about(HookPoint::AfterTool, call.name) {
            let content = after.content.as_deref().unwrap_or(result.content);
            let event = HookEvent::PostToolUse(HookedResult {
                call: call.hooked(&sha256),
                tool_response: HookedOutput { content, ..result },
            });
            let read = |body: &[u8]| Ok(ResultHookAnswer::parse(body)?);
            let answer = hook.service.ask(&turn, event, read).await;
            match hook.passes_over(&turn, answer) {
                Ok(Some(answer)) => after.take(&turn, answer, result.content),
                Ok(None) => {}
                Err(_) => after.replace(UNSEEN_RESULT.to_owned(), ResultExtent::Whole),
            }
            if after.extent == ResultExtent::Whole {
                break;
            }
        }
        after
    }

    /// Asks about the messages of a model call. Returns the messages to send, if a hook has changed them. If a hook
    /// ends the turn, the record of the turn says so, and no further hook is asked.
    ///
    /// # Errors
    /// When a hook fails without which no model may be called.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn before_model(
        &self,
        turn: HookedTurn<'_>,
        mut messages: Vec<Box<RawValue>>,
    ) -> Result<Option<Vec<Box<RawValue>>>, HookFailure> {
        let mut has_changed = false;
        for hook in self.at(HookPoint::BeforeModel) {
            let sent: Vec<&RawValue> = messages.iter().map(|message| &**message).collect();
            let event = HookEvent::PreModelCall { messages: &sent };
            let answer = hook.service.ask(&turn, event, read_messages).await;
            let Some((answer, updated)) = hook.passes_over(&turn, answer)? else {
                continue;
            };
            if let Some(text) = answer.ends_turn {
                turn.record.end_turn(text);
                return Ok(None);
            }
            has_changed |= updated.is_some() || answer.additional_context.is_some();
            messages = updated.unwrap_or(messages);
            messages.extend(
                answer
                    .additional_context
                    .and_then(|text| user_message(&text)),
            );
        }
        Ok(has_changed.then_some(messages))
    }

    /// Asks whether a turn may end with this answer. Returns the message for the model if it may not.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn before_finish(
        &self,
        turn: HookedTurn<'_>,
        answer: &str,
        was_sent_back: bool,
    ) -> Option<String> {
        for hook in self.at(HookPoint::BeforeFinish) {
            let event = HookEvent::Stop {
                last_assistant_message: answer,
                stop_hook_active: was_sent_back,
            };
            let read = |body: &[u8]| Ok(FinishHookAnswer::parse(body)?);
            match hook.service.ask(&turn, event, read).await {
                Ok(FinishHookAnswer { blocks: None }) => {}
                Ok(FinishHookAnswer { blocks }) => return blocks,
                // It has no effect, whatever `on_failure` says.
                Err(failure) => turn.record.passed_over(&hook.service.name, &failure),
            }
        }
        None
    }
}

impl Hook {
    /// The answer, or nothing if the hook failed and may be passed over, which is noted.
    fn passes_over<T>(
        &self,
        turn: &HookedTurn<'_>,
        answer: Result<T, HookFailure>,
    ) -> Result<Option<T>, HookFailure> {
        match (answer, self.service.on_failure) {
            (Ok(answer), _) => Ok(Some(answer)),
            (Err(failure), OnFailure::Block) => Err(failure),
            (Err(failure), OnFailure::Continue) => {
                turn.record.passed_over(&self.service.name, &failure);
                Ok(None)
            }
        }
    }
}

impl BeforeTool {
    fn take(
        &mut self,
        turn: &HookedTurn<'_>,
        answer: ToolHookAnswer,
        fits: &impl Fn(&Map<String, Value>) -> bool,
    ) {
        if answer.decision > self.decision {
            (self.decision, self.reason) = (answer.decision, answer.reason);
        }
        if let Some(text) = answer.additional_context {
            join(self.context.get_or_insert_default(), &text);
        }
        if let Some(text) = answer.ends_turn {
            turn.record.end_turn(text);
        }
        match answer.updated_input {
            Some(arguments) if fits(&arguments) => self.arguments = Some(arguments),
            Some(_) => self.deny(Some(UNFIT.to_owned())),
            None => {}
        }
    }

    fn deny(&mut self, reason: Option<String>) {
        (self.decision, self.reason) = (Some(ToolDecision::Deny), reason);
    }
}

impl AfterTool {
    /// `first` is the text of the result before any hook.
    fn take(&mut self, turn: &HookedTurn<'_>, answer: ResultHookAnswer, first: &str) {
        if let Some(text) = answer.updated_output {
            self.replace(text, ResultExtent::Text);
        }
        if let Some(text) = answer.replaced {
            self.replace(text, ResultExtent::Whole);
        }
        if let Some(text) = answer.additional_context {
            join(self.content.get_or_insert_with(|| first.to_owned()), &text);
        }
        if let Some(text) = answer.ends_turn {
            turn.record.end_turn(text);
        }
        self.terminate |= answer.terminate;
    }

    fn replace(&mut self, text: String, extent: ResultExtent) {
        self.content = Some(text);
        self.extent = self.extent.max(extent);
    }
}

/// Adds a text on a line of its own.
pub fn join(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push_str(BEFORE_CONTEXT);
    }
    text.push_str(more);
}

/// An answer to the event before a model call, and its messages, each as its JSON text.
type ModelAnswerRead = (ModelHookAnswer, Option<Vec<Box<RawValue>>>);

fn read_messages(body: &[u8]) -> Result<ModelAnswerRead, HookFailure> {
    let mut answer = ModelHookAnswer::parse(body)?;
    let message = |value: Value| {
        let json = value.to_string();
        Message::parse(&json).ok()?;
        RawValue::from_string(json).ok()
    };
    let messages = answer.messages.take().map(|messages| {
        let read: Option<Vec<_>> = messages.into_iter().map(message).collect();
        read.ok_or(HookFailure::Messages)
    });
    Ok((answer, messages.transpose()?))
}

fn user_message(text: &str) -> Option<Box<RawValue>> {
    let message = Message::text(Role::User, text);
    RawValue::from_string(message.json_str().to_owned()).ok()
}

fn globs(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        builder.add(Glob::new(pattern)?);
    }
    builder.build()
}

#[cfg(test)]
mod tests;
