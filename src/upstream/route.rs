//! The upstreams of one request, and the quirks that suit all of them.

use std::sync::Arc;

use super::Upstream;
use super::settings::{EmptyContent, FinalCall, Quirks, ReasoningField};
use protocol::ids::CallIdStyle;

/// The upstreams for one request.
#[derive(Debug, Clone)]
pub struct Route {
    first: Arc<dyn Upstream>,
    upstreams: Vec<Arc<dyn Upstream>>,
    /// Quirks with which the messages and calls of a turn suit every candidate. The quirks that only concern the
    /// encoding for one upstream (`streams`, `stream_options`, `think_tags`, `split_names`, `max_tokens_field`) come
    /// from the first candidate.
    pub quirks: Quirks,
}

impl Route {
    /// Makes a route over candidates; `None` if there are none.
    pub fn new(upstreams: Vec<Arc<dyn Upstream>>) -> Option<Self> {
        let first = upstreams.first()?.clone();
        Some(Self::over(first, upstreams))
    }

    /// A route over candidates whose first one is `first`.
    pub(super) fn over(first: Arc<dyn Upstream>, upstreams: Vec<Arc<dyn Upstream>>) -> Self {
        let mut quirks = first.quirks().clone();
        for other in upstreams.iter().skip(1).map(|upstream| upstream.quirks()) {
            quirks.send_reasoning &= other.send_reasoning;
            quirks.missing_reasoning = quirks.missing_reasoning.max(other.missing_reasoning);
            if quirks.reasoning_field == ReasoningField::AsItCame {
                quirks.reasoning_field = other.reasoning_field;
            }
            quirks.blank_text &= other.blank_text;
            quirks.tool_result_name |= other.tool_result_name;
            quirks.images &= other.images;
            quirks.tokenize |= other.tokenize;
            quirks.developer_role &= other.developer_role;
            quirks.roles = quirks.roles.max(other.roles);
            quirks.mid_system &= other.mid_system;
            quirks.native.retain(|api| other.native.contains(api));
            if quirks.empty_content != other.empty_content {
                // Servers that refuse one of the other forms take this one.
                quirks.empty_content = EmptyContent::Empty;
            }
            if other.call_ids == CallIdStyle::Short {
                quirks.call_ids = CallIdStyle::Short;
            }
            if other.final_call == FinalCall::RemoveTools {
                quirks.final_call = FinalCall::RemoveTools;
            }
            quirks
                .hosted_tools
                .retain(|tool| other.hosted_tools.contains(tool));
        }
        Self {
            first,
            upstreams,
            quirks,
        }
    }

    /// The candidates in fail-over order; never empty.
    pub fn upstreams(&self) -> &[Arc<dyn Upstream>] {
        &self.upstreams
    }

    /// A candidate by its index; the first one if the index is out of range.
    pub fn candidate(&self, index: usize) -> &Arc<dyn Upstream> {
        self.upstreams.get(index).unwrap_or(&self.first)
    }
}
