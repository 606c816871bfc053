//! The defaults of the server and of the caller's key for a draft. A draft can only tighten them.

use super::super::draft::{DraftFilter, DraftPermissions, TurnDraft};
use super::super::options::TurnLimits;
use super::super::settings::Settings;
use super::super::turn::{
    Caller, Globs, KeyDefaults, Level, LevelName, Permissions, RuleError, ToolFilter, compiled,
};
use protocol::openai::request::RequestError;

/// The defaults and caps of the server and of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults<'a> {
    server: &'a Settings,
    key: &'a KeyDefaults,
}

impl<'a> Defaults<'a> {
    pub(crate) fn of(server: &'a Settings, caller: &'a Caller) -> Self {
        let key = &caller.key;
        Self { server, key }
    }

    /// Merges the defaults into a draft. A second merge never loosens it.
    pub(crate) fn merge(&self, draft: &mut TurnDraft) {
        let (server, options) = (self.server, &mut draft.options);
        let TurnLimits {
            max_tool_calls,
            max_duration,
            max_total_tokens,
            ..
        } = &mut options.limits;
        lower(max_tool_calls, server.max_tool_calls);
        lower(max_duration, server.max_duration);
        lower(max_total_tokens, server.max_total_tokens);
        options.max_tool_rounds = options.max_tool_rounds.min(server.max_tool_rounds);
        options.repeat_threshold = Some(self.repeat_threshold(options.repeat_threshold));
        options.citations.get_or_insert(server.citations);
        options.images.get_or_insert(server.images);
    }

    /// The threshold of the repeat guard. A looser one than the server's counts only if the server allows that.
    fn repeat_threshold(&self, asked: Option<u32>) -> u32 {
        let server = self.server.repeat_threshold;
        match asked {
            Some(asked) if self.server.repeat_override || server == 0 => asked,
            Some(asked) if asked != 0 && asked <= server => asked,
            Some(_) | None => server,
        }
    }

    /// What server-side calls are permitted.
    ///
    /// # Errors
    /// When a rule of the draft cannot be used.
    pub(crate) fn permissions(
        &self,
        draft: &DraftPermissions,
    ) -> Result<Permissions, RequestError> {
        let rules = compiled(draft.rules.clone()).map_err(|error| {
            let RuleError {
                index,
                field,
                problem,
            } = error;
            RequestError::invalid(&format!("agent.permissions[{index}].{field}"), &problem)
        })?;
        let of_request = Level {
            name: LevelName::Request,
            rules,
            word: draft.word,
        };
        let mut permissions = self.of_server_and_key();
        permissions.push(of_request);
        Ok(permissions)
    }

    /// What the server and the key permit.
    pub(crate) fn of_server_and_key(&self) -> Permissions {
        Permissions::new(vec![
            self.server.permissions.clone(),
            self.key.permissions.clone(),
        ])
    }
}

/// The server-side tools that a request may use by their names; none of them unless they are `enabled`.
///
/// # Errors
/// When a pattern is not valid.
pub(super) fn filter(draft: &DraftFilter, enabled: bool) -> Result<ToolFilter, RequestError> {
    let globs = |param: &str, patterns: &[String]| {
        Globs::new(patterns).map_err(|error| RequestError::field(param, error.to_string()))
    };
    let client_tools = globs("agent.client_tools", &draft.client_tools)?;
    let allow = draft.allow.as_deref();
    let allow = allow.map(|list| globs("agent.tools", list)).transpose()?;
    let deny = globs("agent.tools", &draft.deny)?;
    Ok(ToolFilter::new(allow, deny, client_tools, enabled))
}

/// Lowers a limit to a cap.
fn lower<T: PartialOrd>(limit: &mut Option<T>, cap: Option<T>) {
    let is_lower = |cap: &T| limit.as_ref().is_none_or(|limit| cap < limit);
    if let Some(cap) = cap.filter(is_lower) {
        *limit = Some(cap);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;

    use super::*;
    use policy::rules::{Effect, ToolClasses};
    use protocol::ids::{Owner, RequestId};

    fn caller() -> Caller {
        Caller {
            request_id: RequestId::fresh(),
            owner: Owner::everybody(),
            headers: Arc::default(),
            trace: HeaderMap::new(),
            is_resumed: false,
            key: KeyDefaults::default(),
            record: super::super::super::turn::TurnRecord::default(),
        }
    }

    #[test]
    fn a_draft_can_only_lower_the_limits_of_the_server() {
        let server = Settings {
            max_tool_rounds: 8,
            max_tool_calls: Some(20),
            ..Settings::default()
        };
        let caller = caller();
        let merged = |rounds: u32, calls: Option<u64>| {
            let mut draft = TurnDraft::default();
            draft.options.max_tool_rounds = rounds;
            draft.options.limits.max_tool_calls = calls;
            Defaults::of(&server, &caller).merge(&mut draft);
            let once = draft.options.clone();
            Defaults::of(&server, &caller).merge(&mut draft);
            assert_eq!(draft.options, once);
            (once.max_tool_rounds, once.limits.max_tool_calls)
        };
        assert_eq!(merged(u32::MAX, None), (8, Some(20)));
        assert_eq!(merged(3, Some(5)), (3, Some(5)));
        assert_eq!(merged(99, Some(50)), (8, Some(20)));
    }

    #[tokio::test]
    async fn the_word_of_a_draft_is_one_of_the_levels() {
        let (server, caller) = (Settings::default(), caller());
        let draft = DraftPermissions {
            word: Some(Effect::Deny),
            ..DraftPermissions::default()
        };
        let permissions = Defaults::of(&server, &caller).permissions(&draft).unwrap();
        let classes = ToolClasses {
            read_only: true,
            destructive: false,
            open_world: false,
        };
        assert_eq!(permissions.of_tool("t", classes), Effect::Deny);
    }

    #[test]
    fn a_looser_repeat_threshold_than_the_servers_needs_its_permission() {
        let caller = caller();
        for (server, asked, without, with) in [
            (3, None, 3, 3),
            (3, Some(2), 2, 2),
            (3, Some(8), 3, 8),
            (3, Some(0), 3, 0),
            (0, Some(0), 0, 0),
            (0, Some(5), 5, 5),
        ] {
            for (repeat_override, expected) in [(false, without), (true, with)] {
                let settings = Settings {
                    repeat_threshold: server,
                    repeat_override,
                    ..Settings::default()
                };
                let found = Defaults::of(&settings, &caller).repeat_threshold(asked);
                assert_eq!(found, expected, "{server} {asked:?} {repeat_override}");
            }
        }
    }
}
