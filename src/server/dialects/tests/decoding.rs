//! The decoders take or refuse every body, and what they make of one is the same once it has been stored. `PROPTEST_CASES` says
//! how many bodies are tried.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::dialects::chat::decode::{self as chat, ChatRequest, DecodedChat};
use crate::dialects::fields::head::RequestHead;
use crate::dialects::responses::decode::{
    self as responses, DecodedResponse, KnownHistory, ResponseRequest,
};
use agent::draft::{DraftTool, TurnDraft};
use protocol::ids::{ChatId, SessionId};
use protocol::openai::request::RequestError;

/// Names that the schemas leave to the model server, or to the tools of a request.
const MORE_NAMES: [&str; 24] = [
    "type",
    "name",
    "function",
    "functions",
    "function_call",
    "parameters",
    "description",
    "strict",
    "custom",
    "format",
    "server_label",
    "server_url",
    "headers",
    "authorization",
    "require_approval",
    "allowed_tools",
    "container",
    "file_ids",
    "id",
    "call_id",
    "output",
    "arguments",
    "content",
    "web_search_options",
];
/// Words that members have.
const MORE_WORDS: [&str; 24] = [
    "function",
    "custom",
    "mcp",
    "code_interpreter",
    "web_search",
    "web_search_preview",
    "namespace",
    "local_shell",
    "auto",
    "required",
    "none",
    "any",
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "item_reference",
    "input_text",
    "input_image",
    "input_file",
    "user",
    "assistant",
    "m",
    "",
];

/// The names and words of the requests of a dialect.
struct Vocabulary {
    /// The members of a request.
    members: Vec<String>,
    names: Vec<String>,
    words: Vec<String>,
}

static CHAT: LazyLock<Vocabulary> = LazyLock::new(Vocabulary::of::<ChatRequest>);
static RESPONSES: LazyLock<Vocabulary> = LazyLock::new(Vocabulary::of::<ResponseRequest>);

impl Vocabulary {
    fn of<T: JsonSchema>() -> Self {
        let schema = schemars::schema_for!(T).to_value();
        let members = schema["properties"].as_object().unwrap();
        let mut found = Self {
            members: members.keys().cloned().collect(),
            names: MORE_NAMES.map(str::to_owned).to_vec(),
            words: MORE_WORDS.map(str::to_owned).to_vec(),
        };
        let more = [
            "functions",
            "conversation",
            "previous_response_id",
            "prompt",
        ];
        found.members.extend(more.map(str::to_owned));
        // The schema of one dialect leaves to the other what means the same in both.
        found.read(&schemars::schema_for!(ChatRequest).to_value());
        found.read(&schemars::schema_for!(ResponseRequest).to_value());
        found
    }

    fn read(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                for (name, value) in members {
                    match (&**name, value) {
                        ("properties", Value::Object(named)) => {
                            self.names.extend(named.keys().cloned());
                        }
                        ("enum" | "const", Value::String(word)) => self.words.push(word.clone()),
                        ("enum", Value::Array(words)) => {
                            let words = words.iter().filter_map(Value::as_str);
                            self.words.extend(words.map(str::to_owned));
                        }
                        _ => {}
                    }
                    self.read(value);
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| self.read(entry)),
            _ => {}
        }
    }

    /// A value of any shape, of these names and words.
    fn value(&'static self) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop_oneof![0_i64..20, any::<i64>()].prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            select(&self.words[..]).prop_map(Value::from),
            select(&self.words[..]).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            Just(Value::from("https://a.test/mcp")),
            Just(Value::from("file-0123456789abcdef0123456789abcdef")),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            let member = (select(&self.names[..]), inner.clone());
            prop_oneof![
                vec(inner, 0..4).prop_map(Value::from),
                vec(member, 0..5).prop_map(|members| Value::Object(Map::from_iter(members))),
            ]
        })
    }

    /// The text of a request with these members and a few others, some of them twice.
    fn request(&'static self, base: Value) -> impl Strategy<Value = String> {
        let known = select(&self.members[..]);
        let name = prop_oneof![8 => known, 1 => any::<String>()];
        let members = vec((name, prop_oneof![self.value(), usual()]), 0..6);
        (members, any::<bool>()).prop_map(move |(more, first)| {
            let base = base.as_object().unwrap().iter();
            let mut base: Vec<_> = base
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            match first {
                true => base.splice(0..0, more).for_each(drop),
                false => base.extend(more),
            }
            let members = base
                .iter()
                .map(|(name, value)| format!("{}:{value}", Value::from(&**name)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        })
    }
}

/// Values that one member or another takes.
fn usual() -> impl Strategy<Value = Value> {
    let function = json!({"type": "function", "name": "f", "function": {"name": "f", "parameters": {"type": "object"}}});
    let server = json!({"type": "mcp", "server_label": "far", "server_url": "https://a.test/mcp", "headers": {"X-A": "a"}});
    let code = json!({"type": "code_interpreter", "container": {"type": "auto", "file_ids": []}});
    let search = json!({"type": "web_search", "filters": {"allowed_domains": ["a.test"]}, "search_context_size": "low"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "o"});
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    select(vec![
        json!([function, server, code]),
        json!([search, function]),
        json!([{"role": "user", "content": "Hi"}, call, output]),
        json!([output]),
        json!({"tools": {"allow": ["f*"], "deny": ["g"]}, "permissions": [{"tool": "f", "effect": "ask"}]}),
        json!({"limits": {"max_tool_calls": 3, "max_seconds": 1.5}, "background": true, "text": "final"}),
        json!({"type": "function", "name": "f"}),
        json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}),
        json!([
            "web_search_call.action.sources",
            "reasoning.encrypted_content"
        ]),
        json!({"format": {"type": "json_object"}, "verbosity": "low"}),
        json!([{"name": "a.csv", "mime_type": "text/csv"}]),
        json!(true),
        json!(1),
        json!(0.5),
        json!("auto"),
    ])
}

fn heads() -> impl Strategy<Value = RequestHead> {
    let progress = proptest::option::of(select(vec!["named", "loud"]).prop_map(str::to_owned));
    (any::<[bool; 3]>(), progress, 0..4_usize).prop_map(|([session, chat, sdk], progress, most)| {
        RequestHead {
            session: session.then(|| SessionId::parse("s").unwrap()),
            chat: chat.then(|| ChatId::parse("chat-1")).and_then(Result::ok),
            progress,
            official_sdk: sdk,
            user_agent: "openai-python".to_owned(),
            origin: "http://localhost".to_owned(),
            max_messages: most,
        }
    })
}

/// A text that is cut off, or of which a byte is another one.
fn broken(text: &str, at: Index, byte: u8, cuts: bool) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at.index(bytes.len());
    match cuts {
        true => bytes.truncate(at),
        false => bytes[at] = byte,
    }
    bytes
}

fn of_chat(body: &[u8], head: &RequestHead) -> Result<DecodedChat, RequestError> {
    chat::decode(&Bytes::copy_from_slice(body), head)
}

fn of_responses(body: &[u8], head: &RequestHead) -> Result<DecodedResponse, RequestError> {
    responses::decode(body, head, &KnownHistory::default())
}

/// What is stored is what is read again.
fn assert_stored<T: Serialize + DeserializeOwned>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    let read: T = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

/// The same of a draft, without the servers, which are not stored.
fn assert_draft_is_stored(mut draft: TurnDraft) {
    let declared = &mut draft.tools.declared;
    declared.retain(|tool| !matches!(tool, DraftTool::Server(..)));
    assert_stored(&draft);
}

fn assert_chat(body: &[u8], head: &RequestHead) {
    if let Ok(decoded) = of_chat(body, head) {
        assert_stored(&decoded.reply);
        let draft = decoded.decoded.draft;
        let _read_or_refused = draft.input.messages.clone().read();
        assert_draft_is_stored(draft);
    }
}

fn assert_responses(body: &[u8], head: &RequestHead) {
    if let Ok(decoded) = of_responses(body, head) {
        assert_stored(&decoded.options);
        assert_draft_is_stored(decoded.decoded.draft);
    }
}

proptest! {
    #[test]
    fn chat_requests_are_taken_or_refused(
        text in CHAT.request(json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})), head in heads(),
    ) {
        assert_chat(text.as_bytes(), &head);
    }

    #[test]
    fn requests_of_responses_are_taken_or_refused(
        text in RESPONSES.request(json!({"model": "m", "input": "Hi"})), head in heads(),
    ) {
        assert_responses(text.as_bytes(), &head);
    }

    #[test]
    fn broken_requests_are_taken_or_refused(
        chat in CHAT.request(json!({})), response in RESPONSES.request(json!({})),
        at in any::<Index>(), byte in any::<u8>(), cuts in any::<bool>(), head in heads(),
    ) {
        assert_chat(&broken(&chat, at, byte, cuts), &head);
        assert_responses(&broken(&response, at, byte, cuts), &head);
    }

    #[test]
    fn bytes_are_taken_or_refused(bytes in vec(any::<u8>(), 0..200), head in heads()) {
        assert_chat(&bytes, &head);
        assert_responses(&bytes, &head);
    }
}

/// How many of 300 arbitrary requests are taken.
fn taken(texts: impl Strategy<Value = String>, takes: impl Fn(&[u8]) -> bool) -> usize {
    let mut runner = TestRunner::deterministic();
    let texts = (0..300).map(|_| texts.new_tree(&mut runner).unwrap().current());
    texts.filter(|text| takes(text.as_bytes())).count()
}

/// Else the other tests would try nothing.
#[test]
fn usual_requests_are_taken() {
    let head = RequestHead {
        max_messages: 9,
        ..RequestHead::default()
    };
    let body = |input: &str, value: Value| {
        let tools = json!([{"type": "function", "name": "f", "function": {"name": "f"}}]);
        json!({"model": "m", input: value, "tools": tools, "agent": {"tools": {"deny": ["g"]}}})
            .to_string()
    };
    let chat = of_chat(body("messages", json!([])).as_bytes(), &head).unwrap();
    assert!(chat.decoded.faults.first().is_none());
    assert_eq!(chat.decoded.draft.tools.declared.len(), 1);
    let response = of_responses(body("input", json!("Hi")).as_bytes(), &head).unwrap();
    assert_eq!(response.decoded.draft.tools.filter.deny, ["g"]);
    let chats = CHAT.request(json!({"model": "m", "messages": []}));
    let is_right = |body: &[u8]| {
        of_chat(body, &head)
            .unwrap()
            .decoded
            .faults
            .first()
            .is_none()
    };
    let chats = taken(chats, is_right);
    let responses = RESPONSES.request(json!({"model": "m", "input": "Hi"}));
    let responses = taken(responses, |body| of_responses(body, &head).is_ok());
    assert!(chats > 60 && responses > 60, "{chats} {responses}");
    for vocabulary in [&CHAT, &RESPONSES] {
        let sizes = [&vocabulary.members, &vocabulary.names, &vocabulary.words].map(Vec::len);
        assert!(sizes[0] > 15 && sizes[1] > 80 && sizes[2] > 40, "{sizes:?}");
    }
}
