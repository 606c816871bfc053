//! Requests of the Responses API with one more field each: the answer, and what the model server gets.

use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::files::uploaded;
use crate::support::client::Client;
use crate::support::script::{Reply, calls, reasoning, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// A picture of one pixel.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A function tool as this API has them.
pub(super) fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "A test tool.", "parameters": {"type": "object"}})
}

/// A request with these members more.
pub(super) fn request(input: Value, more: Value) -> Value {
    let mut body = json!({"model": MODEL, "input": input, "tools": [function("t")]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// Records the cases one after another, each with the model calls that it makes.
async fn cases(
    golden: &mut Golden,
    client: &Client,
    upstream: &ScriptedUpstream,
    input: &Value,
    cases: &[Value],
) {
    for case in cases {
        golden.heading(&case.to_string());
        golden
            .response(client, &request(input.clone(), case.clone()))
            .await;
        golden.line("");
        golden.bodies(upstream);
    }
}

fn of_answers() -> Vec<Value> {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let named = json!({"type": "function", "name": "t"});
    let allowed = |mode: &str| json!({"type": "allowed_tools", "mode": mode, "tools": [named]});
    let format = |format: Value| json!({"text": {"format": format, "verbosity": "low"}});
    vec![
        json!({"instructions": "Be brief.", "max_output_tokens": 50}),
        json!({"truncation": "auto", "metadata": {"k": "v"}, "user": "u-1", "safety_identifier": "s"}),
        json!({"temperature": 0.5, "top_p": 1, "presence_penalty": 0.1, "frequency_penalty": 0.2, "service_tier": "flex"}),
        json!({"prompt_cache_key": "k", "prompt_cache_retention": "24h", "client_metadata": {"a": "b"}, "unknown": [1.0]}),
        format(
            json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true, "description": null}),
        ),
        format(json!({"type": "json_object"})),
        format(json!({"type": "text"})),
        json!({"reasoning": {"effort": "low", "summary": "auto"}}),
        json!({"reasoning": {"generate_summary": "concise"}, "reasoning_effort": "high"}),
        json!({"include": ["reasoning.encrypted_content", "message.output_text.logprobs", "file_search_call.results"]}),
        json!({"top_logprobs": 2, "parallel_tool_calls": false, "max_tool_calls": 3}),
        json!({"stream_options": {"include_obfuscation": false}, "stream": true}),
        json!({"store": false}),
        json!({"store": false, "include": ["reasoning.encrypted_content"], "stream": true}),
        json!({"session_id": "s"}),
        json!({"max_tool_rounds": 0}),
        json!({"tools": []}),
        json!({"tools": null, "tool_choice": "none"}),
        json!({"tool_choice": "required"}),
        json!({"tool_choice": {"type": "any"}}),
        json!({"tool_choice": named}),
        json!({"tool_choice": {"type": "tool", "function": {"name": "t"}}}),
        json!({"tool_choice": allowed("auto")}),
        json!({"tool_choice": allowed("required")}),
        json!({"tool_choice": {"type": "web_search_preview"}}),
        json!({"tools": [function("t"), {"type": "web_search"}, {"type": "computer_use"}, {"type": "code_interpreter", "container": {"type": "auto"}}]}),
        json!({"tools": [{"type": "function", "name": "t", "strict": true}], "agent": {"tools": {"deny": ["t"]}}}),
        json!({"agent": {"tools": {"allow": ["other"]}, "client_tools": ["x*"], "session_mode": "append"}}),
    ]
}

/// What the answers to these may hold besides the model's text.
#[tokio::test]
async fn response_options() {
    let upstream = ScriptedUpstream::answering(|_| reasoning("Hm.", "Done."))
        .await
        .lenient();
    let hook = Webhook::start().await;
    let ignored = "ignore_tools = [\"web_search*\", \"computer_*\", \"code_interpreter\"]";
    let app = builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(ignored)
        .start()
        .await;
    let mut golden = Golden::default();
    let (client, input) = (app.client(), json!("Go"));
    cases(&mut golden, client, &upstream, &input, &of_answers()).await;
    golden.check("response_options");
}

/// The model calls a tool of the server in each round until it is given no tools.
fn rounds(round: usize) -> Reply {
    match round {
        0 => text_and_calls("Let me look.", [("t", json!({"n": 1}))]).thinking("Hm."),
        1 => calls([("t", json!({"n": 2}))]),
        _ => text("Done [1]."),
    }
}

#[tokio::test]
async fn response_options_of_rounds() {
    let upstream = ScriptedUpstream::answering(|request| match request.tool_names().len() {
        0 => text("No tools."),
        _ => rounds(request.tool_results().len()),
    })
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let (client, input) = (app.client(), json!("Go"));
    let of_rounds = [
        json!({"store": false}),
        json!({"stream": true}),
        json!({"agent": {"text": "final", "citations": "links", "images": "inline"}}),
        json!({"agent": {"progress": "none"}}),
        json!({"agent": {"progress": "declared"}}),
        json!({"agent": {"progress": "named"}, "stream": true}),
        json!({"max_tool_rounds": 1}),
        json!({"max_tool_rounds": 1, "agent": {"on_limit": "stop"}}),
        json!({"max_tool_rounds": 1, "agent": {"on_limit": "error"}}),
        json!({"max_tool_rounds": 1, "agent": {"on_limit": "error"}, "stream": true}),
        json!({"agent": {"limits": {"max_tool_calls": 1}}}),
        json!({"max_tool_calls": 1, "agent": {"on_limit": "stop"}}),
        json!({"agent": {"limits": {"max_total_tokens": 1}, "on_limit": "stop"}}),
        json!({"tool_choice": "required"}),
        json!({"tool_choice": {"type": "function", "name": "t"}}),
        json!({"text": {"format": {"type": "json_object"}}}),
        json!({"agent_permission": "deny"}),
        json!({"agent": {"permissions": [{"tool": "t", "effect": "deny", "reason": "not now"}]}}),
    ];
    cases(&mut golden, client, &upstream, &input, &of_rounds).await;
    for word in ["none", "named"] {
        golden.heading(&format!("x-loopwright-progress: {word}"));
        let client = client.header("x-loopwright-progress", word);
        let body = request(input.clone(), json!({"stream": true}));
        golden.response(&client, &body).await;
    }
    golden.check("response_options_of_rounds");
}

/// Items of the input, none of which belongs to a stored response.
#[tokio::test]
async fn response_inputs() {
    let upstream = ScriptedUpstream::answering(|_| text("Seen."))
        .await
        .lenient();
    let toml = upstream.with_quirks("images = true");
    let app = builder().toml(&toml).start().await;
    let file = uploaded(app.client(), "own.txt", b"own").await["id"].clone();
    let mut golden = Golden::default();
    let user = |parts: Value| json!([{"role": "user", "content": parts}]);
    let data = "data:text/plain;base64,aGVsbG8=";
    for input in [
        user(json!([{"type": "input_text", "text": "a"}])),
        user(
            json!([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PIXEL, "detail": "low"}]),
        ),
        user(json!([{"type": "input_file", "filename": "a.txt", "file_data": data}])),
        user(json!([{"type": "input_file", "file_id": file}, {"type": "input_text", "text": "b"}])),
        user(json!([{"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}])),
        json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "system", "content": [{"type": "input_text", "text": "And"}, {"type": "input_text", "text": "kind."}]},
            {"role": "user", "content": "Q"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A", "annotations": []}]},
            {"role": "developer", "content": "Now in French."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"role": "user", "content": "Q2"},
        ]),
        json!([
            {"role": "user", "content": "Q"},
            {"type": "function_call_output", "call_id": "c2", "output": "early"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "x y"},
            {"type": "function_call", "call_id": "c3", "name": "h", "namespace": "n", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}, {"type": "input_image", "image_url": PIXEL}]},
            {"type": "function_call_output", "call_id": "c3", "output": {"a": 1}},
        ]),
        json!([
            {"role": "user", "content": "Q"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "https://a.test/"}]}},
            {"type": "web_search_call", "id": "ws_2", "action": {"type": "open_page", "url": "https://a.test/"}},
            {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]},
            {"type": "mcp_call", "id": "mcp_1", "name": "m", "arguments": "{}", "output": "o"},
            {"type": "mcp_call", "id": "mcp_2", "name": "m", "arguments": "{}", "error": {"code": 1}},
            {"type": "mcp_list_tools", "server_label": "l", "tools": []},
            {"role": "user", "content": "Q2"},
        ]),
        json!([
            {"role": "user", "content": "Q"},
            {"type": "local_shell_call", "action": {"command": ["ls", "-l"]}},
            {"type": "local_shell_call_output", "output": "a b"},
            {"type": "file_search_call", "queries": ["q"], "results": [{"filename": "f", "text": "t"}]},
            {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "p", "diff": "+x"}},
            {"type": "image_generation_call", "revised_prompt": "a cat"},
            {"type": "compaction", "encrypted_content": "x"},
        ]),
        json!([
            {"role": "user", "content": "Q"},
            {"type": "additional_tools", "tools": [function("late"), {"type": "custom", "name": "c", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"}}]},
        ]),
    ] {
        golden.heading("an input");
        let body = json!({"model": MODEL, "input": input, "store": false});
        golden.response(app.client(), &body).await;
        golden.line("");
        golden.bodies(&upstream);
    }
    golden.check("response_inputs");
}
