//! Kinds of model servers: the hosts of the providers, and the known facts about each.

use std::fmt;

use serde::Serialize;
use url::Url;

use super::{
    EmptyContent, FinalCall, MaxTokensField, MissingReasoning, Quirks, ReasoningField, RoleOrder,
};
use protocol::ids::CallIdStyle;

/// A server whose quirks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// `llama-server`, and the server of llama-cpp-python.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    SgLang,
    /// Ollama.
    Ollama,
    /// OpenAI's API.
    OpenAi,
    /// Mistral's API.
    Mistral,
    /// The OpenAI-compatible endpoints of Gemini and Vertex AI.
    Gemini,
    /// Anthropic's OpenAI-compatible endpoint.
    Anthropic,
    /// DeepSeek's API.
    DeepSeek,
    /// Moonshot's API, with the Kimi models.
    Moonshot,
    /// xAI's API.
    XAi,
    /// Groq.
    Groq,
    /// Cerebras.
    Cerebras,
    /// OpenRouter.
    OpenRouter,
    /// The proxy LiteLLM.
    LiteLlm,
    /// `transformers serve` of Hugging Face.
    Transformers,
}

/// Ends of the host names of providers, after a dot.
const HOSTS: [(&str, ServerKind); 13] = [
    (".api.openai.com", ServerKind::OpenAi),
    (".api.mistral.ai", ServerKind::Mistral),
    (".generativelanguage.googleapis.com", ServerKind::Gemini),
    (".aiplatform.googleapis.com", ServerKind::Gemini),
    ("-aiplatform.googleapis.com", ServerKind::Gemini),
    (".api.anthropic.com", ServerKind::Anthropic),
    (".api.deepseek.com", ServerKind::DeepSeek),
    (".api.moonshot.ai", ServerKind::Moonshot),
    (".api.moonshot.cn", ServerKind::Moonshot),
    (".api.x.ai", ServerKind::XAi),
    (".api.groq.com", ServerKind::Groq),
    (".api.cerebras.ai", ServerKind::Cerebras),
    (".openrouter.ai", ServerKind::OpenRouter),
];

impl fmt::Display for ServerKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

impl ServerKind {
    /// The kind of server at a URL. It is known only of the hosts of providers: a port proves nothing.
    pub fn at(url: &Url) -> Option<Self> {
        let host = format!(".{}", url.host_str()?);
        let known = HOSTS.iter().find(|(end, _)| host.ends_with(end));
        known.map(|(_, kind)| *kind)
    }
}

impl ServerKind {
    /// The provider as the conventions for traces name it. Software that any operator can run has the name that it has
    /// here.
    pub fn provider(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Vllm => "vllm",
            Self::SgLang => "sglang",
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Mistral => "mistral_ai",
            Self::Gemini => "gcp.gemini",
            Self::Anthropic => "anthropic",
            Self::DeepSeek => "deepseek",
            Self::Moonshot => "moonshot_ai",
            Self::XAi => "x_ai",
            Self::Groq => "groq",
            Self::Cerebras => "cerebras",
            Self::OpenRouter => "openrouter",
            Self::LiteLlm => "litellm",
            Self::Transformers => "transformers",
        }
    }
}

impl Quirks {
    /// The quirks of a kind of server.
    pub(crate) fn of(kind: ServerKind) -> Self {
        let mut quirks = Self::default();
        match kind {
            // The templates of most models do not support `developer`: they drop the message, or refuse it.
            ServerKind::Vllm => {
                quirks.developer_role = false;
                quirks.tokenize = true;
            }
            // As above. OpenRouter and LiteLLM pass the role on to servers that refuse it.
            ServerKind::SgLang | ServerKind::OpenRouter | ServerKind::LiteLlm => {
                quirks.developer_role = false;
            }
            ServerKind::LlamaCpp => {
                quirks.developer_role = false;
                // llama-cpp-python ignores the other one.
                quirks.max_tokens_field = MaxTokensField::MaxTokens;
            }
            // `tool_choice` has no effect there. Older versions of `transformers serve` refuse it, `stream_options` and
            // `max_completion_tokens`; newer ones ignore them.
            ServerKind::Ollama | ServerKind::Transformers => {
                quirks.developer_role = false;
                quirks.stream_options = kind == ServerKind::Ollama;
                quirks.final_call = FinalCall::RemoveTools;
                quirks.max_tokens_field = MaxTokensField::MaxTokens;
            }
            // Reasoning is no part of its messages.
            ServerKind::OpenAi => {
                quirks.send_reasoning = false;
                quirks.mid_system = true;
            }
            ServerKind::Mistral => {
                quirks.developer_role = false;
                quirks.send_reasoning = false;
                // Usage comes without being asked for.
                quirks.stream_options = false;
                quirks.call_ids = CallIdStyle::Short;
                quirks.roles = RoleOrder::Alternate;
                // The server refuses unknown fields.
                quirks.max_tokens_field = MaxTokensField::MaxTokens;
            }
            // The server refuses unknown fields; reasoning comes as signatures of calls.
            ServerKind::Gemini => {
                quirks.developer_role = false;
                quirks.send_reasoning = false;
                quirks.tool_result_name = true;
                quirks.blank_text = false;
            }
            // A text block that is blank is refused.
            ServerKind::Anthropic => {
                quirks.empty_content = EmptyContent::Null;
                quirks.blank_text = false;
            }
            // Thinking models insist on the field in every message of theirs.
            ServerKind::DeepSeek => {
                quirks.developer_role = false;
                quirks.reasoning_field = ReasoningField::ReasoningContent;
                quirks.missing_reasoning = MissingReasoning::Empty;
            }
            // As above, but some models treat an empty text as no reasoning.
            ServerKind::Moonshot => {
                quirks.developer_role = false;
                quirks.reasoning_field = ReasoningField::ReasoningContent;
                quirks.missing_reasoning = MissingReasoning::Space;
                quirks.blank_text = false;
            }
            ServerKind::XAi => {
                quirks.blank_text = false;
            }
            // Reasoning in a message is refused, in any field.
            ServerKind::Groq => {
                quirks.send_reasoning = false;
            }
            // Reasoning in another field is refused.
            ServerKind::Cerebras => {
                quirks.reasoning_field = ReasoningField::Reasoning;
            }
        }
        quirks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hosts_of_providers_tell_their_kind() {
        for (url, kind) in [
            ("https://api.openai.com/v1", Some(ServerKind::OpenAi)),
            ("https://eu.api.openai.com/v1", Some(ServerKind::OpenAi)),
            ("https://API.Mistral.ai/v1", Some(ServerKind::Mistral)),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai",
                Some(ServerKind::Gemini),
            ),
            (
                "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi",
                Some(ServerKind::Gemini),
            ),
            ("https://api.moonshot.cn/v1", Some(ServerKind::Moonshot)),
            ("https://openrouter.ai/api/v1", Some(ServerKind::OpenRouter)),
            ("https://my-openrouter.ai/v1", None),
            ("https://api.openai.com.proxy.corp/v1", None),
            ("https://openai.com/v1", None),
            ("http://localhost:11434/v1", None),
            ("http://127.0.0.1:8080/v1", None),
        ] {
            assert_eq!(ServerKind::at(&Url::parse(url).unwrap()), kind, "{url}");
        }
    }

    #[test]
    fn kinds_are_named_in_lower_case() {
        for (name, kind) in [
            ("llama.cpp", ServerKind::LlamaCpp),
            ("sglang", ServerKind::SgLang),
            ("xai", ServerKind::XAi),
            ("openrouter", ServerKind::OpenRouter),
            ("litellm", ServerKind::LiteLlm),
            ("transformers", ServerKind::Transformers),
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
            assert_eq!(kind.to_string(), name);
        }
    }
}
