//! Loopwright's extensions of a request, and members of OpenAI's API that limit a turn or its storage. They mean the same in
//! all dialects. Unknown keys inside `agent` are refused.

pub(in crate::dialects) mod agent;

use self::agent::AgentFields;
use super::field::Field;
use super::head::RequestHead;
use ::agent::draft::{DraftFilter, DraftPermissions};
use ::agent::options::{Options, TextMode, ToolExecution};
use ::agent::turn::{Effect, SessionMode};
use protocol::ids::SessionId;
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, listed, one_of};

/// The extensions of a request.
#[derive(Debug, Default)]
pub(in crate::dialects) struct Extensions {
    pub(in crate::dialects) options: Options,
    pub(in crate::dialects) permissions: DraftPermissions,
    pub(in crate::dialects) filter: DraftFilter,
    /// `agent.progress`, whose words differ between the dialects.
    pub(in crate::dialects) progress: Option<String>,
}

/// The members of the extensions.
#[derive(Debug)]
pub(in crate::dialects) struct ExtensionFields<'a> {
    session_id: Field<'a>,
    max_tool_rounds: Field<'a>,
    agent: Field<'a>,
    agent_permission: Field<'a>,
    code_execution_permission: Field<'a>,
    max_tool_calls: Field<'a>,
    parallel_tool_calls: Field<'a>,
    store: Field<'a>,
    /// Whether the body uses an extension, so that it does not pass through.
    pub(in crate::dialects) used: bool,
}

impl<'a> ExtensionFields<'a> {
    /// The members that are never sent to an upstream.
    pub(in crate::dialects) const NAMES: [&'static str; 7] = [
        "session_id",
        "max_tool_rounds",
        "enable_code_execution",
        "files",
        "agent_permission",
        "code_execution_permission",
        "agent",
    ];

    pub(in crate::dialects) fn of(object: &RawObject<'a>) -> Self {
        let field = |name| Field::of(object, name);
        // `max_tool_rounds: 0` alone does not count: the request then passes through without that field.
        let used = |name: &&str| match *name {
            "max_tool_rounds" => object
                .get_some(name)
                .is_some_and(|value| value.get() != "0"),
            _ => object.get(name).is_some(),
        };
        Self {
            session_id: field("session_id"),
            max_tool_rounds: field("max_tool_rounds"),
            agent: field("agent"),
            agent_permission: field("agent_permission"),
            code_execution_permission: field("code_execution_permission"),
            max_tool_calls: field("max_tool_calls"),
            parallel_tool_calls: field("parallel_tool_calls"),
            store: field("store"),
            used: Self::NAMES.iter().any(used),
        }
    }

    /// The most rounds of tools, if they are a whole number.
    pub(in crate::dialects) fn rounds(&self) -> Option<u32> {
        let asked = self
            .max_tool_rounds
            .clone()
            .read::<u64>("a number")
            .ok()??;
        Some(u32::try_from(asked).unwrap_or(u32::MAX))
    }

    /// Reads the members. What the head names applies if the body names no session. `wants_json` says that the answer is to
    /// be a JSON document: texts of several rounds would be none.
    ///
    /// # Errors
    /// When a field has the wrong type, is unknown, or is not available in this version.
    pub(in crate::dialects) fn read(
        self,
        head: &RequestHead,
        wants_json: bool,
    ) -> Result<Extensions, RequestError> {
        let session_id = match self.session_id.read::<String>("a string")? {
            Some(text) => Some(
                SessionId::parse(&text)
                    .map_err(|problem| RequestError::invalid("session_id", &problem.to_string()))?,
            ),
            None => head.session.clone(),
        };
        let chat = head.chat.clone().filter(|_| session_id.is_none());
        let whole_number = "a whole number of 0 or more";
        let rounds = self.max_tool_rounds.read::<u64>(whole_number)?;
        let agent = AgentFields::read(self.agent)?;
        let top_level = self.max_tool_calls.read::<u64>(whole_number)?;
        let parallel = self.parallel_tool_calls.read::<bool>("true or false")?;
        let mut options = agent.options;
        let limit = &mut options.limits.max_tool_calls;
        *limit = [*limit, top_level].into_iter().flatten().min();
        // The session of a chat is found by the first message, so that the request always has the whole conversation.
        if chat.is_some() {
            options.session_mode = SessionMode::Replay;
        }
        if let Some(rounds) = rounds {
            options.max_tool_rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        }
        if parallel == Some(false) {
            options.tool_execution = ToolExecution::Sequential;
        }
        let by_form = match wants_json {
            true => TextMode::Final,
            false => TextMode::All,
        };
        let options = Options {
            session_id,
            chat,
            text: agent.text.unwrap_or(by_form),
            ephemeral: self.store.read::<bool>("true or false")? == Some(false),
            ..options
        };
        if options.background && options.ephemeral {
            let problem = "needs a stored answer; leave out 'store' or send \"store\": true";
            return Err(RequestError::invalid("agent.background", problem));
        }
        let word = word(self.agent_permission)?.max(word(self.code_execution_permission)?);
        Ok(Extensions {
            options,
            permissions: DraftPermissions {
                rules: agent.permissions,
                word,
            },
            filter: agent.filter,
            progress: agent.progress,
        })
    }
}

/// What the request says of calls that none of its rules matches.
fn word(field: Field<'_>) -> Result<Option<Effect>, RequestError> {
    let name = field.name;
    let word = field.read::<String>(&listed(&Effect::WORDS))?;
    word.map(|word| one_of(name, &word, &Effect::WORDS))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::ChatId;

    fn parse_for(json: &str, head: &RequestHead) -> Result<Options, RequestError> {
        let object = RawObject::parse(json).unwrap();
        let extensions = ExtensionFields::of(&object).read(head, false)?;
        Ok(extensions.options)
    }

    fn head(session: Option<&str>, chat: Option<&str>) -> RequestHead {
        RequestHead {
            session: session.map(|id| SessionId::parse(id).unwrap()),
            chat: chat.map(|id| ChatId::parse(id).unwrap()),
            ..RequestHead::default()
        }
    }

    fn parse(json: &str) -> Result<Options, RequestError> {
        parse_for(json, &RequestHead::default())
    }

    #[test]
    fn a_session_comes_before_a_chat_and_a_chat_is_always_replayed() {
        let append = r#"{"agent":{"session_mode":"append"}}"#;
        let in_body = r#"{"session_id":"b"}"#;
        for (json, session, chat, expected) in [
            (append, None, Some("c"), (None, true, SessionMode::Replay)),
            (append, None, None, (None, false, SessionMode::Append)),
            (
                "{}",
                Some("s"),
                Some("c"),
                (Some("s"), false, SessionMode::Auto),
            ),
            (
                in_body,
                Some("s"),
                Some("c"),
                (Some("b"), false, SessionMode::Auto),
            ),
        ] {
            let options = parse_for(json, &head(session, chat)).unwrap();
            let session_id = options.session_id.as_ref().map(SessionId::as_str);
            let found = (session_id, options.chat.is_some(), options.session_mode);
            assert_eq!(found, expected, "{json} {session:?} {chat:?}");
        }
    }

    #[test]
    fn a_request_without_parallel_calls_runs_them_one_after_another() {
        use ToolExecution::{Parallel, Sequential};
        for (json, expected) in [
            ("{}", Parallel),
            (r#"{"parallel_tool_calls":null}"#, Parallel),
            (r#"{"parallel_tool_calls":true}"#, Parallel),
            (r#"{"parallel_tool_calls":false}"#, Sequential),
            (
                r#"{"parallel_tool_calls":false,"agent":{"tool_execution":"parallel"}}"#,
                Sequential,
            ),
            (
                r#"{"parallel_tool_calls":true,"agent":{"tool_execution":"sequential"}}"#,
                Sequential,
            ),
        ] {
            assert_eq!(parse(json).unwrap().tool_execution, expected, "{json}");
        }
    }

    #[test]
    fn errors_name_the_invalid_extension() {
        for (json, param) in [
            (r#"{"session_id":"a b"}"#, "session_id"),
            (r#"{"session_id":7}"#, "session_id"),
            (r#"{"max_tool_rounds":-1}"#, "max_tool_rounds"),
            (r#"{"max_tool_rounds":"3"}"#, "max_tool_rounds"),
            (r#"{"agent":[]}"#, "agent"),
            (r#"{"agent":{"on_limits":"stop"}}"#, "agent.on_limits"),
            (r#"{"agent":{"on_limit":"halt"}}"#, "agent.on_limit"),
            (
                r#"{"agent":{"repeat_threshold":1}}"#,
                "agent.repeat_threshold",
            ),
            (
                r#"{"agent":{"repeat_threshold":9}}"#,
                "agent.repeat_threshold",
            ),
            (
                r#"{"agent":{"repeat_threshold":"3"}}"#,
                "agent.repeat_threshold",
            ),
            (r#"{"parallel_tool_calls":"no"}"#, "parallel_tool_calls"),
            (
                r#"{"agent":{"limits":{"max_rounds":1}}}"#,
                "agent.limits.max_rounds",
            ),
            (
                r#"{"agent":{"limits":{"max_seconds":0}}}"#,
                "agent.limits.max_seconds",
            ),
            (
                r#"{"agent":{"limits":{"max_cost_usd":1}}}"#,
                "agent.limits.max_cost_usd",
            ),
            (
                r#"{"agent":{"tools":{"allowed":[]}}}"#,
                "agent.tools.allowed",
            ),
            (
                r#"{"agent":{"on_disconnect":"later"}}"#,
                "agent.on_disconnect",
            ),
            (r#"{"agent_permission":"maybe"}"#, "agent_permission"),
            (r#"{"store":"no"}"#, "store"),
        ] {
            assert_eq!(
                parse(json).unwrap_err().param.as_deref(),
                Some(param),
                "{json}"
            );
        }
    }

    #[test]
    fn only_extensions_prevent_pass_through() {
        let used = |json: &str| ExtensionFields::of(&RawObject::parse(json).unwrap()).used;
        assert!(!used(
            r#"{"model":"m","store":true,"max_tool_calls":3,"web_search_options":{}}"#
        ));
        assert!(!used(r#"{"max_tool_rounds":0}"#));
        assert!(used(r#"{"max_tool_rounds":1}"#));
        assert!(used(r#"{"session_id":"a"}"#));
        assert!(used(r#"{"agent":{}}"#));
    }
}
