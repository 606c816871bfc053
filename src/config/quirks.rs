//! The quirks of an upstream: what the file says, and otherwise what the kind of server implies.

use serde::{Deserialize, Serialize};

use crate::ids::CallIdStyle;
use crate::upstream::settings::{
    EmptyContent, FinalCall, MaxTokensField, MissingReasoning, NativeApi, Quirks, ReasoningField,
    RoleOrder, ServerKind, ThinkTags,
};

/// A table whose keys are the fields of [`Quirks`].
macro_rules! quirks {
    ($($key:ident: $type:ty,)*) => {
        /// `quirks` of an upstream.
        #[derive(Debug, Clone, Default, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct QuirksSection {
            $(#[serde(skip_serializing_if = "Option::is_none")] $key: Option<$type>,)*
        }

        impl QuirksSection {
            /// The quirks of a server of this kind. Afterwards the section has a value for every key, so that it is shown.
            pub(super) fn settle(&mut self, kind: Option<ServerKind>) -> Quirks {
                let implied = kind.map_or_else(Quirks::default, Quirks::of);
                Quirks {
                    $($key: self.$key.get_or_insert(implied.$key).clone(),)*
                }
            }
        }
    };
}

quirks! {
    streams: bool,
    stream_options: bool,
    think_tags: ThinkTags,
    text_calls: bool,
    split_names: bool,
    send_reasoning: bool,
    reasoning_field: ReasoningField,
    missing_reasoning: MissingReasoning,
    final_call: FinalCall,
    call_ids: CallIdStyle,
    images: bool,
    hosted_tools: Vec<String>,
    empty_content: EmptyContent,
    blank_text: bool,
    tool_result_name: bool,
    developer_role: bool,
    roles: RoleOrder,
    mid_system: bool,
    max_tokens_field: MaxTokensField,
    tokenize: bool,
    native: Vec<NativeApi>,
}
