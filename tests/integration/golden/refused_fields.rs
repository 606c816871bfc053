//! Fields that only some servers read: extensions of a chat request, web search, code, MCP servers, in both dialects.

use super::builder;
use super::record::{Golden, chat};
use super::refused_responses::both;
use crate::support::app::TestApp;
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;

/// What every chat request has. Of a repeated member the last one counts.
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"t"}}]"#;
/// What every response request has.
const RESPONSE: &str = r#"{"model":"m","input":"x""#;

/// Members of chat requests that `refused.rs` has not.
const MEMBERS: &[&str] = &[
    r#""model":null"#,
    r#""messages":null"#,
    r#""messages":{}"#,
    r#""messages":[{"role":1}]"#,
    r#""messages":[{"role":"user","content":[1]}]"#,
    r#""messages":[{"role":"tool","tool_call_id":1,"content":"r"}]"#,
    r#""messages":[],"session_id":"s""#,
    r#""stream":1"#,
    r#""stream_options":{"include_usage":1}"#,
    r#""n":1.5"#,
    r#""n":0"#,
    r#""n":2,"session_id":"s""#,
    r#""user":1"#,
    r#""store":1"#,
    r#""parallel_tool_calls":"no""#,
    r#""max_tool_calls":-1"#,
    r#""max_tool_rounds":1.5"#,
    r#""code_execution_permission":"perhaps""#,
    r#""agent_permission":1"#,
    r#""files":1"#,
    r#""files":[1]"#,
    r#""enable_code_execution":1"#,
    r#""session_id":"s s""#,
    r#""tools":{}"#,
    r#""tools":[{}]"#,
    r#""tools":[{"type":"function","function":{"name":1}}]"#,
    r#""tools":[{"type":"function","function":{"name":"t","parameters":1}}]"#,
    r#""tools":[{"type":"custom"}]"#,
    r#""tools":[{"type":"mcp","server_label":"x","server_url":"https://x.test/"}]"#,
    r#""tool_choice":1"#,
    r#""tool_choice":{"type":"function"}"#,
    r#""tool_choice":{"name":"other"}"#,
    r#""tool_choice":{"type":"custom","custom":{"name":"other"}}"#,
    r#""tool_choice":{"type":"mcp"}"#,
    r#""tool_choice":{"type":"mcp","server_label":"x"}"#,
    r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"mcp","server_label":"x"}]}}"#,
    r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"other"}}]}}"#,
    r#""web_search_options":1"#,
];

/// Members of `agent`.
const AGENT: &[&str] = &[
    r#""tools":[]"#,
    r#""tools":{"allow":"t"}"#,
    r#""tools":{"deny":[1]}"#,
    r#""tools":{"allow":["[a"]}"#,
    r#""client_tools":[1]"#,
    r#""on_limit":1"#,
    r#""on_disconnect":"wait""#,
    r#""background":"yes""#,
    r#""tool_execution":1"#,
    r#""repeat_threshold":1"#,
    r#""repeat_threshold":9"#,
    r#""repeat_threshold":"3""#,
    r#""text":1"#,
    r#""citations":"none""#,
    r#""images":"all""#,
    r#""session_mode":"new""#,
    r#""limits":1"#,
    r#""limits":{"max_seconds":-1}"#,
    r#""limits":{"max_seconds":1e300}"#,
    r#""limits":{"max_total_tokens":"x"}"#,
    r#""permissions":1"#,
    r#""permissions":[1]"#,
    r#""permissions":[{}]"#,
    r#""permissions":[{"effect":"maybe"}]"#,
    r#""permissions":[{"effect":"deny","tools":"t"}]"#,
    r#""permissions":[{"effect":"deny","tool":1}]"#,
    r#""permissions":[{"effect":"deny","tool":"[a"}]"#,
    r#""permissions":[{"effect":"deny","risk":"high"}]"#,
    r#""permissions":[{"effect":"deny","argument":"/a"}]"#,
    r#""permissions":[{"effect":"deny","argument":"a","match":"glob","patterns":["*"]}]"#,
    r#""permissions":[{"effect":"deny","match":"regex","argument":"/a","patterns":["("]}]"#,
    r#""permissions":[{"effect":"deny","from_call":0}]"#,
    r#""permissions":[{"effect":"deny"},{"effect":"ask","argument":"/a","match":"glob","patterns":["x"],"must_match":[{"a":"y"}]}]"#,
];

/// Options of web search.
const WEB: &[&str] = &[
    r#""search_context_size":"huge""#,
    r#""search_context_size":1"#,
    r#""external_web_access":false"#,
    r#""user_location":1"#,
    r#""user_location":{"type":"exact"}"#,
    r#""user_location":{"type":"approximate","country":"Norway"}"#,
    r#""user_location":{"type":"approximate","city":1}"#,
    r#""user_location":{"type":"approximate","approximate":{"city":"a\nb"}}"#,
    r#""filters":1"#,
    r#""filters":{"allowed_domains":"x"}"#,
    r#""filters":{"allowed_domains":["https://a.test/"]}"#,
    r#""filters":{"blocked_domains":["*"]}"#,
    r#""search_description":1"#,
    r#""extract_description":[]"#,
];

/// Members of an MCP server, behind those of a valid one.
const MCP: &[&str] = &[
    r#""server_label":null"#,
    r#""server_label":"""#,
    r#""server_label":"a b""#,
    r#""server_label":1"#,
    r#""server_url":null"#,
    r#""server_url":3"#,
    r#""server_url":"mcp.example.org""#,
    r#""server_url":"https://elsewhere.org/mcp""#,
    r#""server_url":"ftp://127.0.0.1/""#,
    r#""server_url":"https://u:p@127.0.0.1/mcp""#,
    r#""require_approval":"sometimes""#,
    r#""require_approval":["echo"]"#,
    r#""require_approval":{"never":["echo"]}"#,
    r#""require_approval":{"always":{"tool_names":[1]}}"#,
    r#""require_approval":{"perhaps":{"tool_names":[]}}"#,
    r#""authorization":1"#,
    r#""authorization":" ""#,
    r#""authorization":"a\nb""#,
    r#""authorization":"a","headers":{"Authorization":"b"}"#,
    r#""headers":["x"]"#,
    r#""headers":{"x":1}"#,
    r#""headers":{"a b":"x"}"#,
    r#""headers":{"x":"a\nb"}"#,
    r#""headers":{"Host":"x"}"#,
    r#""headers":{"mcp-session-id":"x"}"#,
    r#""headers":{"x":"1","X":"2"}"#,
    r#""allowed_tools":"echo""#,
    r#""allowed_tools":[1]"#,
    r#""allowed_tools":{"read_only":"yes"}"#,
    r#""allowed_tools":{"tool_names":[],"approval":true}"#,
    r#""server_description":1"#,
    r#""connector_id":"x""#,
];

/// `container` of a `code_interpreter`.
const CONTAINERS: &[&str] = &[
    r#"1"#,
    r#"[]"#,
    r#""cntr_1""#,
    r#"{"type":1}"#,
    r#"{"type":"own"}"#,
    r#"{"type":"auto","file_ids":"x"}"#,
    r#"{"type":"auto","file_ids":[1]}"#,
    r#"{"type":"auto","file_ids":["x"]}"#,
    r#"{"type":"auto","file_ids":["file-00000000000000000000000000000000"]}"#,
];

/// `files` of a request that has code run.
const FILES: &[&str] = &[
    r#"1"#,
    r#"[1]"#,
    r#"[{}]"#,
    r#"[{"name":1}]"#,
    r#"[{"name":""}]"#,
    r#"[{"name":"../a"}]"#,
    r#"[{"name":"a\\b"}]"#,
    r#"[{"name":"a","kind":"x"}]"#,
    r#"[{"name":"a","format":1}]"#,
    r#"[{"name":"a"},{"name":"a"}]"#,
];

async fn upstream() -> ScriptedUpstream {
    let upstream = ScriptedUpstream::answering(|_| text("Taken.")).await;
    upstream.lenient()
}

/// Records what becomes of a case in both dialects, with these members behind what every request has.
async fn in_both(
    golden: &mut Golden,
    app: &TestApp,
    upstream: &ScriptedUpstream,
    cases: [String; 2],
) {
    let [of_chat, of_response] = cases;
    let request = chat(app.client(), &format!("{CHAT},{of_chat}}}"));
    golden.verdict(&of_chat, request, upstream).await;
    let body = format!("{RESPONSE},{of_response}}}");
    both(golden, app.client(), upstream, "as a response", &body).await;
}

#[tokio::test]
async fn refused_members_of_chat() {
    let upstream = upstream().await;
    let hook = Webhook::start().await;
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    for member in MEMBERS {
        let request = chat(app.client(), &format!("{CHAT},{member}}}"));
        golden.verdict(member, request, &upstream).await;
    }
    let stored = r#""store":false,"agent":{"background":true}"#;
    let agent = AGENT.iter().map(|member| format!("\"agent\":{{{member}}}"));
    for member in agent.chain([stored.to_owned()]) {
        let request = chat(app.client(), &format!("{CHAT},{member}}}"));
        golden.verdict(&member, request, &upstream).await;
    }
    let client = app.client().header("x-loopwright-progress", "loud");
    let request = chat(&client, &format!("{CHAT}}}"));
    golden
        .verdict("x-loopwright-progress: loud", request, &upstream)
        .await;
    golden.check("refused_members_of_chat");
}

#[tokio::test]
async fn refused_web_search() {
    let upstream = upstream().await;
    let search = ["--enable-search", "--search-url", "http://127.0.0.1:1"];
    let app = builder().upstream(&upstream).args(search).start().await;
    let mut golden = Golden::default();
    for options in WEB {
        let field = format!("\"web_search_options\":{{{options}}}");
        let request = chat(app.client(), &format!("{CHAT},{field}}}"));
        golden.verdict(&field, request, &upstream).await;
        let tool = format!(r#""tools":[{{"type":"web_search",{options}}}]"#);
        in_both(&mut golden, &app, &upstream, [tool.clone(), tool]).await;
    }
    for field in ["\"web_search_options\":1", "\"web_search_options\":[]"] {
        let request = chat(app.client(), &format!("{CHAT},{field}}}"));
        golden.verdict(field, request, &upstream).await;
    }
    golden.check("refused_web_search");
}

#[tokio::test]
async fn refused_mcp_servers() {
    let upstream = upstream().await;
    let toml = "[mcp_requests]\nhosts = [\"mcp.example.org\"]\nprivate = [\"127.0.0.1\"]";
    let app = builder().upstream(&upstream).toml(toml).start().await;
    let mut golden = Golden::default();
    let entry = |label: &str, members: &str| {
        format!(
            r#"{{"type":"mcp","server_label":"{label}","server_url":"http://127.0.0.1:1/mcp"{members}}}"#
        )
    };
    let nine: Vec<String> = (0..9)
        .map(|number| entry(&format!("s{number}"), ""))
        .collect();
    let lists = MCP.iter().map(|member| entry("far", &format!(",{member}")));
    let twice = [entry("far", ""), entry("far", "")].join(",");
    for list in lists.chain([twice, nine.join(",")]) {
        let tools = format!("\"tools\":[{list}]");
        in_both(&mut golden, &app, &upstream, [tools.clone(), tools]).await;
    }
    for choice in [r#"{"type":"mcp","server_label":"x"}"#, r#"{"type":"mcp"}"#] {
        let choice = format!("\"tool_choice\":{choice}");
        in_both(&mut golden, &app, &upstream, [choice.clone(), choice]).await;
    }
    golden.check("refused_mcp_servers");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn refused_code() {
    let upstream = upstream().await;
    let app = builder()
        .upstream(&upstream)
        .args(["--enable-code-execution"])
        .start()
        .await;
    let mut golden = Golden::default();
    for container in CONTAINERS {
        let tools = format!(r#""tools":[{{"type":"code_interpreter","container":{container}}}]"#);
        in_both(&mut golden, &app, &upstream, [tools.clone(), tools]).await;
    }
    let nested = r#""tools":[{"type":"code_interpreter","code_interpreter":{"container":1}}]"#;
    in_both(&mut golden, &app, &upstream, [nested; 2].map(str::to_owned)).await;
    for files in FILES {
        let fields = format!(r#""enable_code_execution":true,"files":{files}"#);
        in_both(&mut golden, &app, &upstream, [fields.clone(), fields]).await;
    }
    for fields in [
        r#""files":[{"name":"a"}]"#,
        r#""enable_code_execution":false,"files":[{"name":"a"}]"#,
    ] {
        in_both(&mut golden, &app, &upstream, [fields; 2].map(str::to_owned)).await;
    }
    golden.check("refused_code");
}
