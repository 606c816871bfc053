//! Chat requests with members that only a turn checks: they pass through byte for byte, unless a tool of the server makes
//! turns of them.

use super::builder;
use super::record::{Golden, chat};
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;

/// What every request has before its odd member.
const BASE: &str = r#"{"model":"m","messages":[{"role":"user","content":"x"}]"#;

/// A tool that every request is offered.
const OURS: &str = "[[tools]]\nname = \"ours\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\nparameters = { type = \"object\" }";

const MEMBERS: &[&str] = &[
    r#""stream":"yes""#,
    r#""stream":null"#,
    r#""stream":1"#,
    r#""stream_options":"x""#,
    r#""stream_options":{"include_usage":1}"#,
    r#""n":3"#,
    r#""n":"x""#,
    r#""user":1"#,
    r#""store":"x""#,
    r#""store":false"#,
    r#""parallel_tool_calls":"no""#,
    r#""max_tool_calls":-1"#,
    r#""max_tool_calls":5"#,
    r#""response_format":"json""#,
    r#""tool_choice":1"#,
    r#""tool_choice":"sometimes""#,
    r#""tool_choice":{"type":"function","function":{"name":"nobody"}}"#,
    r#""tool_choice":{"type":"mcp","server_label":"x"}"#,
    r#""messages":null"#,
    r#""messages":"x""#,
    r#""messages":[]"#,
    r#""messages":[1]"#,
    r#""messages":[{"content":"no role"}]"#,
    r#""messages":[{"role":"user","content":1}]"#,
    r#""messages":[{"role":"tool","tool_call_id":1}]"#,
    r#""messages":[{"role":"tool","tool_call_id":"unknown","content":"r"}]"#,
    r#""messages":[{"role":"assistant","tool_calls":"x"}]"#,
    r#""web_search_options":1"#,
    r#""web_search_options":{"search_context_size":"huge"}"#,
    r#""web_search_options":{"filters":{"allowed_domains":"x"}}"#,
    r#""enable_code_execution":null"#,
    r#""files":null"#,
    r#""session_id":null"#,
    r#""agent":null"#,
    r#""max_tool_rounds":null"#,
    r#""max_tool_rounds":0"#,
    r#""max_tool_rounds":0,"n":3,"stream":1,"tool_choice":7"#,
    r#""max_tool_rounds":0,"x":1,"max_tool_rounds":0"#,
    r#""max_tool_rounds":1,"max_tool_rounds":0"#,
    r#""max_tool_rounds": 0 "#,
    r#""max_tool_rounds":0.0"#,
    r#""max_tool_rounds":-0"#,
    r#""max_tool_rounds":"0""#,
    r#""unknown":{"a":[1.0e0,{}]},"":null"#,
    r#""seed":123456789012345678901234567890,"temperature":1.0e0"#,
    r#""n":3,"n":1,"n":2"#,
    r#""model":"other","model":"m""#,
    r#""functions":[{"name":"f"}],"function_call":"auto""#,
    r#""functions":"x""#,
    r#""tools":null"#,
    r#""tools":[]"#,
    r#""tools":[{"type":"function","function":{"name":"mine","parameters":1}}]"#,
    r#""tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]"#,
    r#""tools":[{"type":"function","function":{"name":"mine"},"x":1}],"stream":"yes","n":3"#,
    r#""tools":[{"type":"custom","custom":{"name":"c"}}]"#,
    r#""tools":[{"type":"custom"}]"#,
    r#""tools":[{"type":"code_interpreter","container":7},{"type":"web_search","filters":1}]"#,
    r#""tools":[{"type":"code_interpreter","container":"cntr_1"}],"n":2"#,
    r#""tools":[{"type":"mcp"}]"#,
    r#""tools":[{"type":"telepathy"}]"#,
];

/// Whole bodies whose bytes are odd.
const BODIES: &[&str] = &[
    "\t{ \"model\" :\"m\" ,\r\n\"messages\":[ {\"role\":\"user\",\"content\":\"\\u00e4\\/\"} ] , \"n\":3 }\n\n",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"\u{e4}\u{2028}\"}],\"model\":\"m\",\"stream\" : \"yes\"}",
    "{\"\\u006dodel\":\"m\",\"messages\":1}",
    "{\"model\":\"\\u006d\",\"messages\":1}",
    "{ \"max_tool_rounds\" : 0 , \"model\" : \"m\",\n \"messages\" : [ ] , \"x\" : [ 1 ,2 ] }",
    "{\"model\":\"m\",\"messages\":1,\"max_tool_rounds\":0}",
    "{\"model\":\"m\"}",
    "{\"model\":\"m\",\"max_tool_rounds\":0}",
];

#[tokio::test]
async fn passed_odd() {
    let upstream = ScriptedUpstream::answering(|_| text("Taken."))
        .await
        .lenient();
    let of_upstream = |more: &str| {
        let url = upstream.base_url();
        format!("[[upstreams]]\nname = \"only\"\nbase_url = \"{url}\"\n{more}")
    };
    let hosted =
        "[upstreams.quirks]\nhosted_tools = [\"code_interpreter\", \"web_search\", \"mcp\"]";
    let mut golden = Golden::default();
    for (heading, toml) in [
        ("nothing is offered", of_upstream("")),
        ("the model server has hosted tools", of_upstream(hosted)),
        (
            "the model has another name there",
            of_upstream("model_map = { m = \"its-name\" }"),
        ),
        (
            "a tool is offered to all requests",
            format!("{}\n{OURS}", of_upstream("")),
        ),
    ] {
        golden.heading(heading);
        let app = builder().toml(&toml).start().await;
        for member in MEMBERS {
            let request = chat(app.client(), &format!("{BASE},{member}}}"));
            golden.verdict(member, request, &upstream).await;
        }
        for body in BODIES {
            let request = chat(app.client(), body);
            golden.verdict(body, request, &upstream).await;
        }
    }
    golden.check("passed_odd");
}
