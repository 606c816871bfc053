//! Requests of the Responses API with one field each that is wrong, or only odd: what becomes of them, and whether
//! `/v1/responses/input_tokens` says the same.

use super::builder;
use super::record::{Golden, refusal, response};
use crate::support::client::Client;
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;

/// What every request has. Of a repeated member the last one counts.
const BASE: &str = r#"{"model":"m","input":"x","tools":[{"type":"function","name":"t","parameters":{"type":"object"}}]"#;

const FIELDS: &[&str] = &[
    r#""model":null"#,
    r#""model":1"#,
    r#""model":[]"#,
    r#""instructions":1"#,
    r#""max_output_tokens":0"#,
    r#""max_output_tokens":-1"#,
    r#""max_output_tokens":"1""#,
    r#""stream":"yes""#,
    r#""store":"no""#,
    r#""background":"yes""#,
    r#""background":true,"store":false"#,
    r#""stream_options":1"#,
    r#""top_logprobs":-1"#,
    r#""top_logprobs":"1""#,
    r#""include":"x""#,
    r#""include":["x"]"#,
    r#""include":[1]"#,
    r#""text":1"#,
    r#""text":{"format":1}"#,
    r#""text":{"format":{}}"#,
    r#""text":{"format":{"type":"yaml"}}"#,
    r#""text":{"format":{"type":"json_schema","schema":{}}}"#,
    r#""text":{"format":{"type":"json_schema","name":"n"}}"#,
    r#""text":{"format":{"type":"json_schema","name":1,"schema":{}}}"#,
    r#""text":{"verbosity":"loud"}"#,
    r#""text":{"verbosity":1}"#,
    r#""reasoning":1"#,
    r#""reasoning":{"effort":1}"#,
    r#""reasoning":{"summary":"long"}"#,
    r#""reasoning":{"generate_summary":1}"#,
    r#""truncation":"some""#,
    r#""truncation":1"#,
    r#""metadata":1"#,
    r#""metadata":{"k":1}"#,
    r#""metadata":{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":"","9":"","10":"","11":"","12":"","13":"","14":"","15":"","16":"","17":""}"#,
    r#""prompt":{"id":"x"}"#,
    r#""moderation":{}"#,
    r#""context_management":[]"#,
    r#""temperature":"hot""#,
    r#""top_p":"x""#,
    r#""presence_penalty":"x""#,
    r#""frequency_penalty":"x""#,
    r#""service_tier":1"#,
    r#""user":1"#,
    r#""safety_identifier":1"#,
    r#""prompt_cache_key":1"#,
    r#""parallel_tool_calls":1"#,
    r#""max_tool_calls":-1"#,
    r#""max_tool_calls":"x""#,
    r#""max_tool_rounds":-1"#,
    r#""max_tool_rounds":"3""#,
    r#""n":2"#,
    r#""n":"x""#,
    r#""enable_code_execution":true"#,
    r#""enable_code_execution":"yes""#,
    r#""files":[{"name":"a"}]"#,
    r#""agent_permission":"perhaps""#,
    r#""code_execution_permission":1"#,
    r#""unknown":1.0e0"#,
    r#""messages":"x""#,
    r#""response_format":{"type":"json_object"}"#,
];

const REFERENCES: &[&str] = &[
    r#""previous_response_id":1"#,
    r#""previous_response_id":"""#,
    r#""previous_response_id":"x""#,
    r#""previous_response_id":"resp_1","model":null"#,
    r#""previous_response_id":"x","conversation":"c""#,
    r#""conversation":1"#,
    r#""conversation":{}"#,
    r#""conversation":{"id":1}"#,
    r#""conversation":"""#,
    r#""conversation":"conv_unknown""#,
    r#""conversation":{"id":"conv_unknown"}"#,
    r#""conversation":"conv_unknown","store":false"#,
    r#""session_id":1"#,
    r#""session_id":"""#,
    r#""session_id":"a/b""#,
    r#""session_id":"s","input":[]"#,
];

const AGENT: &[&str] = &[
    r#""agent":1"#,
    r#""agent":[]"#,
    r#""agent":{"unknown":1}"#,
    r#""agent":{"background":true}"#,
    r#""agent":{"progress":"chunk"}"#,
    r#""agent":{"progress":1}"#,
    r#""agent":{"on_limit":"explode"}"#,
    r#""agent":{"on_disconnect":1}"#,
    r#""agent":{"text":"none"}"#,
    r#""agent":{"tools":{"only":[]}}"#,
    r#""agent":{"tools":{"deny":["[a"]}}"#,
    r#""agent":{"limits":{"max_seconds":0}}"#,
    r#""agent":{"session_mode":"new"}"#,
    r#""agent":{"permissions":[{"effect":"maybe"}]}"#,
];

const TOOLS: &[&str] = &[
    r#""tools":"x""#,
    r#""tools":{}"#,
    r#""tools":[1]"#,
    r#""tools":[{}]"#,
    r#""tools":[{"type":1}]"#,
    r#""tools":[{"type":"function"}]"#,
    r#""tools":[{"type":"function","name":""}]"#,
    r#""tools":[{"type":"function","name":"no spaces"}]"#,
    r#""tools":[{"type":"function","function":{"name":"t"}}]"#,
    r#""tools":[{"type":"function","name":"t","description":1}]"#,
    r#""tools":[{"type":"function","name":"t","parameters":[]}]"#,
    r#""tools":[{"type":"function","name":"t","strict":1}]"#,
    r#""tools":[{"type":"function","name":"t"},{"type":"function","name":"t"}]"#,
    r#""tools":[{"type":"custom"}]"#,
    r#""tools":[{"type":"custom","name":"c","description":1}]"#,
    r#""tools":[{"type":"custom","name":"c","format":"text"}]"#,
    r#""tools":[{"type":"namespace","tools":[]}]"#,
    r#""tools":[{"type":"namespace","name":"n"}]"#,
    r#""tools":[{"type":"namespace","name":"n","tools":{}}]"#,
    r#""tools":[{"type":"namespace","name":"n","tools":[1]}]"#,
    r#""tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]"#,
    r#""tools":[{"type":"namespace","name":"n","tools":[{"name":"a","strict":"x"}]}]"#,
    r#""tools":[{"type":"web_search"}]"#,
    r#""tools":[{"type":"web_search","external_web_access":false}]"#,
    r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#,
    r#""tools":[{"type":"code_interpreter","container":"cntr_1"}]"#,
    r#""tools":[{"type":"file_search","vector_store_ids":[]}]"#,
    r#""tools":[{"type":"mcp","server_label":"x","server_url":"https://x.test/"}]"#,
    r#""tools":[{"type":"image_generation"}]"#,
    r#""tool_choice":1"#,
    r#""tool_choice":"sometimes""#,
    r#""tool_choice":{}"#,
    r#""tool_choice":{"type":"telepathy"}"#,
    r#""tool_choice":{"type":"function"}"#,
    r#""tool_choice":{"type":"function","name":"other"}"#,
    r#""tool_choice":{"type":"function","name":"t"},"tools":[]"#,
    r#""tool_choice":{"type":"allowed_tools"}"#,
    r#""tool_choice":{"type":"allowed_tools","mode":"auto"}"#,
    r#""tool_choice":{"type":"allowed_tools","mode":"none","tools":[]}"#,
    r#""tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function"}]}"#,
    r#""tool_choice":{"type":"allowed_tools","mode":"auto","tools":["t"]}"#,
    r#""tool_choice":{"type":"mcp"}"#,
    r#""tool_choice":{"type":"mcp","server_label":"x"}"#,
    r#""tool_choice":{"type":"web_search"}"#,
];

const INPUTS: &[&str] = &[
    r#""input":null"#,
    r#""input":"""#,
    r#""input":[]"#,
    r#""input":1"#,
    r#""input":{}"#,
];

/// Items of an input that has nothing else.
const ITEMS: &[&str] = &[
    r#"1"#,
    r#"{}"#,
    r#"{"type":1}"#,
    r#"{"type":"dream"}"#,
    r#"{"role":"user"}"#,
    r#"{"type":"message","content":"x"}"#,
    r#"{"role":"robot","content":"x"}"#,
    r#"{"role":"user","content":1}"#,
    r#"{"role":"user","content":[]}"#,
    r#"{"role":"user","content":[1]}"#,
    r#"{"role":"user","content":[{}]}"#,
    r#"{"role":"user","content":[{"type":"input_text"}]}"#,
    r#"{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"smell"}]}"#,
    r#"{"role":"user","content":[{"type":"input_image"}]}"#,
    r#"{"role":"user","content":[{"type":"input_image","file_id":1}]}"#,
    r#"{"role":"user","content":[{"type":"input_image","file_id":"x"}]}"#,
    r#"{"role":"user","content":[{"type":"input_image","file_id":"file-00000000000000000000000000000000"}]}"#,
    r#"{"role":"user","content":[{"type":"input_file"}]}"#,
    r#"{"role":"user","content":[{"type":"input_file","file_id":1}]}"#,
    r#"{"role":"user","content":[{"type":"input_file","file_id":"x"}]}"#,
    r#"{"role":"user","content":[{"type":"input_file","filename":"a.txt","file_data":"%"}]}"#,
    r#"{"role":"user","content":[{"type":"input_file","file_url":"no url"}]}"#,
    r#"{"role":"assistant","content":[{"type":"input_image","image_url":"https://a.test/"}]}"#,
    r#"{"role":"developer","content":[{"type":"input_image","image_url":"https://a.test/"}]}"#,
    r#"{"type":"function_call","name":"t","arguments":"{}"}"#,
    r#"{"type":"function_call","call_id":"c","arguments":"{}"}"#,
    r#"{"type":"function_call","call_id":"c","name":"t"}"#,
    r#"{"type":"function_call","call_id":"c","name":"t","arguments":{}}"#,
    r#"{"type":"custom_tool_call","call_id":"c","name":"t"}"#,
    r#"{"type":"function_call_output","output":"r"}"#,
    r#"{"type":"function_call_output","call_id":"c","output":"r"}"#,
    r#"{"type":"function_call_output","call_id":"c","output":[1]}"#,
    r#"{"type":"function_call_output","call_id":"c","output":[{"type":"smell"}]}"#,
    r#"{"type":"custom_tool_call_output","call_id":1,"output":"r"}"#,
    r#"{"type":"reasoning","summary":[]}"#,
    r#"{"type":"mcp_call","arguments":"{}"}"#,
    r#"{"type":"mcp_call","name":"t"}"#,
    r#"{"type":"mcp_list_tools","server_label":"x","tools":[]}"#,
    r#"{"type":"item_reference"}"#,
    r#"{"type":"item_reference","id":1}"#,
    r#"{"type":"item_reference","id":"msg_unknown_0"}"#,
    r#"{"type":"mcp_approval_response","approve":true}"#,
    r#"{"type":"mcp_approval_response","approval_request_id":"x"}"#,
    r#"{"type":"mcp_approval_response","approval_request_id":"x","approve":"yes"}"#,
    r#"{"type":"mcp_approval_response","approval_request_id":"x","approve":true,"reason":1}"#,
    r#"{"type":"mcp_approval_response","approval_request_id":"x","approve":true}"#,
    r#"{"type":"additional_tools","tools":1}"#,
    r#"{"type":"additional_tools","tools":[1]}"#,
    r#"{"type":"additional_tools","tools":[{"type":"function"}]}"#,
    r#"{"type":"additional_tools","tools":[]}"#,
];

/// Records what becomes of a body on both paths; of the second one only what differs. It makes no model call.
pub(super) async fn both(
    golden: &mut Golden,
    client: &Client,
    upstream: &ScriptedUpstream,
    shown: &str,
    body: &str,
) {
    let answer = response(client, "", body);
    let first = golden.verdict(shown, answer, upstream).await;
    let calls = upstream.requests().len();
    let counted = refusal(response(client, "/input_tokens", body)).await;
    assert_eq!(upstream.requests().len(), calls, "{body}");
    if counted != first {
        let (status, words) = counted;
        golden.line(format!("input_tokens: {} {words}", status.as_u16()).trim_end());
    }
}

#[tokio::test]
async fn refused_responses() {
    let upstream = ScriptedUpstream::answering(|_| text("Taken."))
        .await
        .lenient();
    let hook = Webhook::start().await;
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let tables = [FIELDS, REFERENCES, AGENT, TOOLS, INPUTS].concat();
    for case in tables {
        let body = format!("{BASE},{case}}}");
        both(&mut golden, app.client(), &upstream, case, &body).await;
    }
    for item in ITEMS {
        let body = format!("{BASE},\"input\":[{item}]}}");
        both(&mut golden, app.client(), &upstream, item, &body).await;
    }
    for body in [
        "",
        "{",
        "[]",
        "\"x\"",
        "null",
        "{}",
        r#"{"input":"x"}"#,
        r#"{"model":"m"}"#,
    ] {
        let shown = if body.is_empty() { "no body" } else { body };
        both(&mut golden, app.client(), &upstream, shown, body).await;
    }
    for (name, word) in [("x-loopwright-progress", "chunk"), ("x-session-id", "a/b")] {
        let client = app.client().header(name, word);
        let body = format!("{BASE}}}");
        both(&mut golden, &client, &upstream, name, &body).await;
    }
    golden.check("refused_responses");
}
