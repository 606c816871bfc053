//! Which tools a request may use.

use std::sync::Arc;

use super::Tool;
use super::globs::Globs;
use super::refusal::CallRefusal;
use policy::rules::Permissions;

/// Which tools a request may use.
#[derive(Debug, Clone)]
pub struct ToolFilter {
    /// `None` allows every tool.
    allow: Option<Globs>,
    deny: Globs,
    client_tools: Globs,
    enabled: bool,
    permissions: Permissions,
}

impl ToolFilter {
    /// Server-side tools that match `allow`, if it is given, and do not match `deny`. The client runs the declared tools
    /// that match `client_tools`. If `enabled` is false, no server-side tool is used.
    pub fn new(allow: Option<Globs>, deny: Globs, client_tools: Globs, enabled: bool) -> Self {
        Self {
            allow,
            deny,
            client_tools,
            enabled,
            permissions: Permissions::default(),
        }
    }

    /// The same filter under rules: tools whose every call they deny are not offered.
    #[must_use]
    pub fn under(self, permissions: Permissions) -> Self {
        Self {
            permissions,
            ..self
        }
    }

    /// The refusal for the model if the rules deny every call of a tool.
    pub(crate) fn denial(&self, tool: &dyn Tool) -> Option<Arc<str>> {
        let (name, policy) = (&tool.definition().name, tool.policy());
        let denied = self.permissions.denies_whatever(name, policy.classes())?;
        let refusal = CallRefusal::never_permitted(name, denied.reason.as_deref());
        Some(refusal.text.into())
    }

    /// Whether a server-side tool of this name may be used.
    pub(crate) fn offers(&self, name: &str) -> bool {
        self.enabled
            && self.allow.as_ref().is_none_or(|globs| globs.matches(name))
            && !self.deny.matches(name)
    }

    /// Whether the client runs a declared tool even if the dispatch URL could run it.
    pub(crate) fn is_for_client(&self, name: &str) -> bool {
        !self.enabled || self.client_tools.matches(name)
    }
}
