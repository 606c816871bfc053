//! Loopwright's extensions of the request. Unknown keys inside `agent` are refused.

pub(super) mod agent;

use self::agent::{AgentFields, PROGRESS};
use super::body::Field;
use ::agent::options::{Options, TextMode, ToolExecution, TurnLimits};
use ::agent::settings::{ImageStyle, Settings};
use ::agent::turn::{
    Caller, Effect, Globs, Level, LevelName, Permissions, SessionMode, ToolFilter,
};
use protocol::ids::SessionId;
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, listed, one_of};

/// The same as `agent.progress`, for clients that can set headers only.
pub const PROGRESS_HEADER: &str = "x-loopwright-progress";

/// How progress is sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressMode {
    /// `Chunk` for the official SDKs, else `Named`.
    #[default]
    Auto,
    /// As chunks with an `event:` line.
    Named,
    /// As chunks without an `event:` line.
    Chunk,
    /// Progress is not sent.
    None,
}

/// The extensions of a request, with the limits of the server applied.
#[derive(Debug)]
pub(super) struct Extensions {
    pub(super) options: Options,
    pub(super) progress: ProgressMode,
    pub(super) images: ImageStyle,
    pub(super) filter: ToolFilter,
    pub(super) permissions: Permissions,
}

/// The members of the extensions, and members of OpenAI's API that limit a turn or its storage.
#[derive(Debug)]
pub(super) struct ExtensionFields<'a> {
    session_id: Field<'a>,
    pub(super) max_tool_rounds: Field<'a>,
    agent: Field<'a>,
    agent_permission: Field<'a>,
    code_execution_permission: Field<'a>,
    max_tool_calls: Field<'a>,
    parallel_tool_calls: Field<'a>,
    store: Field<'a>,
    response_format: Field<'a>,
    /// How progress is sent if `agent` does not say it.
    progress: ProgressMode,
    /// Whether the request uses an extension, so that it does not pass through.
    used: bool,
}

impl<'a> ExtensionFields<'a> {
    /// The members that are never sent to an upstream.
    pub(super) const NAMES: [&'static str; 7] = [
        "session_id",
        "max_tool_rounds",
        "enable_code_execution",
        "files",
        "agent_permission",
        "code_execution_permission",
        "agent",
    ];

    pub(super) fn of(object: &RawObject<'a>) -> Self {
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
            response_format: field("response_format"),
            progress: ProgressMode::default(),
            used: Self::NAMES.iter().any(used),
        }
    }

    /// Takes what the head of the request says.
    ///
    /// # Errors
    /// When a header has no valid value.
    pub(super) fn take_head(&mut self, caller: &Caller) -> Result<(), RequestError> {
        if let Some(word) = &caller.progress_header {
            self.progress = one_of(PROGRESS_HEADER, word, &PROGRESS)?;
        }
        Ok(())
    }

    pub(super) fn used(&self) -> bool {
        self.used
    }

    /// Reads the members. What the caller's headers name applies if the body names no session.
    ///
    /// # Errors
    /// When a field has the wrong type, is unknown, or is not available in this version.
    pub(super) fn read(
        self,
        caller: &Caller,
        settings: &Settings,
    ) -> Result<Extensions, RequestError> {
        let session_id = match self.session_id.read::<String>("a string")? {
            Some(text) => Some(
                SessionId::parse(&text)
                    .map_err(|problem| RequestError::invalid("session_id", &problem.to_string()))?,
            ),
            None => caller.session_header.clone(),
        };
        let chat = caller.chat_header.clone();
        let chat = chat.filter(|_| session_id.is_none());
        let whole_number = "a whole number of 0 or more";
        let rounds = self.max_tool_rounds.read::<u64>(whole_number)?;
        let agent = AgentFields::read(self.agent)?;
        let top_level = self.max_tool_calls.read::<u64>(whole_number)?;
        let parallel = self.parallel_tool_calls.read::<bool>("true or false")?;
        let max_tool_calls = lowest(agent.limits.max_tool_calls, top_level);
        // The session of a chat is found by the first message, so that the request always has the whole conversation.
        let session_mode = match chat {
            Some(_) => SessionMode::Replay,
            None => agent.session_mode,
        };
        let max_tool_rounds = rounds
            .and_then(|asked| u32::try_from(asked).ok())
            .unwrap_or(u32::MAX)
            .min(settings.max_tool_rounds);
        let options = Options {
            session_id,
            chat,
            max_tool_rounds,
            limits: TurnLimits {
                max_tool_calls: lowest(max_tool_calls, settings.max_tool_calls),
                max_duration: lowest(agent.limits.max_duration, settings.max_duration),
                max_total_tokens: lowest(agent.limits.max_total_tokens, settings.max_total_tokens),
                max_output_tokens: None,
            },
            on_disconnect: agent.on_disconnect,
            background: agent.background,
            on_limit: agent.on_limit,
            session_mode,
            tool_execution: match parallel {
                Some(false) => ToolExecution::Sequential,
                Some(true) | None => agent.tool_execution,
            },
            repeat_threshold: agent.repeat_threshold(settings)?,
            text: agent
                .text
                .unwrap_or_else(|| match wants_json(self.response_format) {
                    true => TextMode::Final,
                    false => TextMode::All,
                }),
            citations: agent.citations.unwrap_or(settings.citations),
            ephemeral: self.store.read::<bool>("true or false")? == Some(false),
            keep: false,
            previous: None,
            truncates: false,
            container: None,
        };
        if options.background && options.ephemeral {
            let problem = "needs a stored answer; leave out 'store' or send \"store\": true";
            return Err(RequestError::invalid("agent.background", problem));
        }
        let of_request = Level {
            name: LevelName::Request,
            rules: agent.permissions.clone(),
            word: word(self.agent_permission)?.max(word(self.code_execution_permission)?),
        };
        let permissions = Permissions::new(vec![
            settings.permissions.clone(),
            caller.permissions.clone(),
            of_request,
        ]);
        let filter = filter(&agent, options.max_tool_rounds > 0)?;
        Ok(Extensions {
            options,
            progress: agent.progress.unwrap_or(self.progress),
            images: agent.images.unwrap_or(settings.images),
            filter: filter.under(permissions.clone()),
            permissions,
        })
    }
}

/// The server-side tools that a request may use by their names; none of them unless they are `enabled`.
fn filter(agent: &AgentFields, enabled: bool) -> Result<ToolFilter, RequestError> {
    // Read before the lists of `agent.tools`, so that the error of this list is reported first.
    let client_tools = globs("agent.client_tools", agent.client_tools.as_deref())?;
    let allow = agent.allow.as_deref();
    let allow = allow.map(|list| globs("agent.tools", Some(list)));
    let deny = globs("agent.tools", agent.deny.as_deref());
    Ok(ToolFilter::new(
        allow.transpose()?,
        deny?,
        client_tools,
        enabled,
    ))
}

/// Whether the answer is to be a JSON document. Texts of several rounds would be none.
fn wants_json(response_format: Field<'_>) -> bool {
    let format = response_format.raw();
    let format = format.and_then(|format| RawObject::parse(format.get()).ok());
    let kind = format.and_then(|format| format.get_some("type"));
    let kind = kind.and_then(|kind| serde_json::from_str::<String>(kind.get()).ok());
    kind.is_some_and(|kind| matches!(&*kind, "json_object" | "json_schema"))
}

fn globs(param: &str, patterns: Option<&[String]>) -> Result<Globs, RequestError> {
    Globs::new(patterns.unwrap_or_default())
        .map_err(|error| RequestError::field(param, error.to_string()))
}

/// What the request says of calls that none of its rules matches.
fn word(field: Field<'_>) -> Result<Option<Effect>, RequestError> {
    let name = field.name;
    let word = field.read::<String>(&listed(&Effect::WORDS))?;
    word.map(|word| one_of(name, &word, &Effect::WORDS))
        .transpose()
}

fn lowest<T: PartialOrd + Copy>(first: Option<T>, second: Option<T>) -> Option<T> {
    match (first, second) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;
    use protocol::ids::{ChatId, Owner, RequestId};

    fn settings() -> Settings {
        Settings {
            max_tool_rounds: 8,
            max_tool_calls: Some(20),
            ..Settings::default()
        }
    }

    fn caller(session: Option<&str>, chat: Option<&str>) -> Caller {
        Caller {
            request_id: RequestId::fresh(),
            owner: Owner::everybody(),
            session_header: session.map(|id| SessionId::parse(id).unwrap()),
            chat_header: chat.map(|id| ChatId::parse(id).unwrap()),
            progress_header: None,
            headers: Arc::default(),
            permissions: Level::silent(LevelName::Key),
            trace: HeaderMap::new(),
            goes_on: false,
            record: ::agent::turn::TurnRecord::default(),
        }
    }

    fn parse_for(json: &str, caller: &Caller) -> Result<Options, RequestError> {
        let object = RawObject::parse(json).unwrap();
        let extensions = ExtensionFields::of(&object).read(caller, &settings())?;
        Ok(extensions.options)
    }

    fn parse(json: &str) -> Result<Options, RequestError> {
        parse_for(json, &caller(None, None))
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
            let options = parse_for(json, &caller(session, chat)).unwrap();
            let session_id = options.session_id.as_ref().map(SessionId::as_str);
            let found = (session_id, options.chat.is_some(), options.session_mode);
            assert_eq!(found, expected, "{json} {session:?} {chat:?}");
        }
    }

    #[test]
    fn a_request_can_only_lower_the_limits_of_the_server() {
        let rounds = |json: &str| parse(json).unwrap().max_tool_rounds;
        assert_eq!(
            (
                rounds("{}"),
                rounds(r#"{"max_tool_rounds":3}"#),
                rounds(r#"{"max_tool_rounds":99}"#)
            ),
            (8, 3, 8)
        );
        let calls = |json: &str| parse(json).unwrap().limits.max_tool_calls;
        assert_eq!(calls(r#"{"max_tool_calls":50}"#), Some(20));
        assert_eq!(
            calls(r#"{"max_tool_calls":5,"agent":{"limits":{"max_tool_calls":4}}}"#),
            Some(4)
        );
        for json in [
            r#"{"agent_permission":"deny"}"#,
            r#"{"code_execution_permission":"deny"}"#,
            r#"{"agent_permission":"auto","code_execution_permission":"deny"}"#,
        ] {
            let object = RawObject::parse(json).unwrap();
            let read = ExtensionFields::of(&object).read(&caller(None, None), &settings());
            let classes = policy::rules::ToolClasses {
                read_only: true,
                destructive: false,
                open_world: false,
            };
            let effect = read.unwrap().permissions.of_tool("t", classes);
            assert_eq!(effect, Effect::Deny, "{json}");
        }
    }

    #[test]
    fn a_looser_repeat_threshold_than_the_servers_needs_its_permission() {
        for (server, asked, without, with) in [
            (3, "null", 3, 3),
            (3, "2", 2, 2),
            (3, "8", 3, 8),
            (3, "0", 3, 0),
            (0, "0", 0, 0),
            (0, "5", 5, 5),
        ] {
            for (repeat_override, expected) in [(false, without), (true, with)] {
                let settings = Settings {
                    repeat_threshold: server,
                    repeat_override,
                    ..Settings::default()
                };
                let json = format!(r#"{{"agent":{{"repeat_threshold":{asked}}}}}"#);
                let object = RawObject::parse(&json).unwrap();
                let extensions = ExtensionFields::of(&object).read(&caller(None, None), &settings);
                let threshold = extensions.unwrap().options.repeat_threshold;
                assert_eq!(threshold, expected, "{server} {asked} {repeat_override}");
            }
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
        let used = |json: &str| ExtensionFields::of(&RawObject::parse(json).unwrap()).used();
        assert!(!used(
            r#"{"model":"m","store":true,"max_tool_calls":3,"web_search_options":{}}"#
        ));
        assert!(!used(r#"{"max_tool_rounds":0}"#));
        assert!(used(r#"{"max_tool_rounds":1}"#));
        assert!(used(r#"{"session_id":"a"}"#));
        assert!(used(r#"{"agent":{}}"#));
    }
}
