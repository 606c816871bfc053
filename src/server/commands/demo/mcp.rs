//! The sample MCP server: tides, over standard input and output. This binary is started again under a hidden name.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::tool::{self, SampleTool};
use super::{TOOL_ANSWER_BYTES, TOOL_TIMEOUT};
use tools::settings::mcp::{McpCommand, McpScope, McpServerSettings, McpTransport};

/// The first argument that makes the binary the sample MCP server.
pub const MCP_SERVER: &str = "demo-mcp-server";

/// The name of the server.
const NAME: &str = "harbour";
/// Number of the error for a method that the server does not have.
const UNKNOWN_METHOD: i32 = -32601;

/// Serves until standard input ends.
pub fn mcp_server_main() -> ExitCode {
    match serve(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The settings that start the server.
pub(super) fn settings() -> McpServerSettings {
    let command = McpCommand {
        program: "/proc/self/exe".to_owned(),
        args: vec![MCP_SERVER.into()],
        env: Vec::new(),
        cwd: None,
    };
    McpServerSettings {
        name: NAME.to_owned(),
        transport: McpTransport::Stdio(command),
        tool_prefix: None,
        timeout: TOOL_TIMEOUT,
        allowed_tools: None,
        allowed_read_only: None,
        sequential: false,
        read_only: None,
        idempotent: None,
        repeatable: tools::set::Globs::default(),
        scope: McpScope::Shared,
        max_instances: 1,
        idle_ttl: TOOL_TIMEOUT,
        keys: None,
        max_answer_bytes: TOOL_ANSWER_BYTES,
        trim_schemas: false,
        instructions: false,
    }
}

/// Answers each line.
fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let tools: Vec<SampleTool> = serde_json::from_str(include_str!("mcp.json"))?;
    for line in input.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if let Some(answer) = answer(&tools, &message) {
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
    Ok(())
}

/// The answer to a request; none to a notification.
fn answer(tools: &[SampleTool], message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": NAME, "version": env!("CARGO_PKG_VERSION")},
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": tools.iter().map(listed).collect::<Vec<_>>()}),
        "tools/call" => {
            let (text, is_error) = match tool::answer(tools, params) {
                Ok(found) => (found.to_string(), false),
                Err(problem) => (problem, true),
            };
            json!({"content": [{"type": "text", "text": text}], "isError": is_error})
        }
        _ => {
            let error = json!({"code": UNKNOWN_METHOD, "message": "there is no such method"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

fn listed(tool: &SampleTool) -> Value {
    let schema: Value = serde_json::from_str(tool.parameters.get()).unwrap_or_default();
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": true},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_answered_on_a_line() {
        let requests = [
            json!({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}),
            json!({"method": "notifications/initialized"}),
            json!({"id": 2, "method": "tools/list"}),
            json!({"id": 3, "method": "tools/call", "params": {"name": "get_tides", "arguments": {"harbour": "velmouth"}}}),
            json!({"id": 4, "method": "tools/call", "params": {"name": "get_tides", "arguments": {"harbour": "Oz"}}}),
            json!({"id": 5, "method": "prompts/list"}),
        ];
        let input = requests.map(|request| request.to_string()).join("\n");
        let mut output = Vec::new();
        serve(input.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let answers = output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let answers: Vec<Value> = answers.collect();
        let ids: Vec<_> = answers.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5]);
        assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(answers[1]["result"]["tools"][0]["name"], "get_tides");
        let said = |answer: &Value| {
            let result = &answer["result"];
            let text = result["content"][0]["text"].as_str().unwrap().to_owned();
            (text, result["isError"] == true)
        };
        let (tides, failed) = said(&answers[2]);
        assert!(tides.contains("06:12 and 18:37") && !failed, "{tides}");
        let (problem, failed) = said(&answers[3]);
        assert!(
            problem.contains("Port Ellis, Velmouth") && failed,
            "{problem}"
        );
        assert_eq!(answers[4]["error"]["code"], -32601);
    }
}
