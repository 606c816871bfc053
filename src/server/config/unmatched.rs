//! Finds rules that can match no tool. If MCP servers or the dispatch URL may add tools of any name, no rule is
//! reported.

use super::validation::Validation;
use crate::http::settings::ApiKey;
use policy::rules::{Level, ToolClasses};
use tools::settings::mcp::McpSettings;
use tools::settings::{CODE_TOOLS, Settings, WEB_TOOLS};

/// The parts of the settings that add tools.
pub(super) struct KnownToolNames<'a> {
    pub(super) tools: &'a Settings,
    pub(super) mcp: &'a McpSettings,
    pub(super) has_code: bool,
    pub(super) has_web: bool,
}

/// Names the rules of the server and of the keys that can match no tool.
pub(super) fn note(
    names: &KnownToolNames<'_>,
    server: &Level,
    keys: &[ApiKey],
    checks: &mut Validation<'_>,
) {
    let Some(names) = names.all() else {
        return;
    };
    // A read-only and a destructive tool, because the classes of the real tools are not known here.
    let classes = [false, true].map(|read_only| ToolClasses {
        read_only,
        destructive: !read_only,
        open_world: true,
    });
    let tools = || {
        let names = names.iter().copied();
        names.flat_map(move |name| classes.map(|classes| (name, classes)))
    };
    let of_keys = keys.iter().enumerate();
    let of_keys = of_keys.map(|(index, key)| {
        (
            format!("api_keys[{index}].permissions"),
            &key.defaults.permissions,
        )
    });
    let levels = std::iter::once(("permissions".to_owned(), server)).chain(of_keys);
    for (key, level) in levels {
        for index in level.rules.without_tool(tools()) {
            let key = format!("{key}[{index}]");
            let place = checks.origins.of(&key);
            checks.notices.push(format!(
                "{place}: the rule can match no tool, because none has such a name; the tools are: {}",
                names.join(", ")
            ));
        }
    }
}

impl KnownToolNames<'_> {
    /// The names of all tools; `None` if there may be tools of other names.
    fn all(&self) -> Option<Vec<&str>> {
        let brings_others = self.tools.dispatch.is_some()
            || !self.mcp.servers.is_empty()
            || self.mcp.requests.is_used();
        if brings_others {
            return None;
        }
        let configured = self.tools.http_tools.iter();
        let configured = configured.map(|tool| tool.name.as_str());
        let built_in = CODE_TOOLS.into_iter().filter(|_| self.has_code);
        let built_in = built_in.chain(WEB_TOOLS.into_iter().filter(|_| self.has_web));
        Some(configured.chain(built_in).collect())
    }
}
