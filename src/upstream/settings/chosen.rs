//! The quirks that the operator has set. The others follow from the kind of server, which may become known later.

use serde::{Deserialize, Serialize};

use super::{
    EmptyContent, FinalCall, MaxTokensField, MissingReasoning, NativeApi, Quirks, ReasoningField,
    RoleOrder, ServerKind, ThinkTags,
};
use protocol::ids::CallIdStyle;

/// A table whose keys are the fields of [`Quirks`].
macro_rules! quirks {
    ($($key:ident: $type:ty,)*) => {
        /// The quirks that are set, as the table `quirks` of an upstream writes them.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct ChosenQuirks {
            $(
                #[doc = concat!("As [`Quirks::", stringify!($key), "`].")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )*
        }

        impl ChosenQuirks {
            /// The quirks of a server of this kind. What is set wins.
            pub fn settle(&self, kind: Option<ServerKind>) -> Quirks {
                let implied = kind.map_or_else(Quirks::default, Quirks::of);
                Quirks {
                    $($key: self.$key.clone().unwrap_or(implied.$key),)*
                }
            }
        }

        impl From<Quirks> for ChosenQuirks {
            fn from(quirks: Quirks) -> Self {
                Self {
                    $($key: Some(quirks.$key),)*
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
