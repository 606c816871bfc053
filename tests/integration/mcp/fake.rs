//! An MCP server over standard input and output that does whatever a test wants: this test binary, run again.

#![expect(
    clippy::exit,
    clippy::zombie_processes,
    reason = "a server that crashes and leaves processes behind"
)]

use std::io::{BufRead, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The variable that says how the server misbehaves.
const MODE: &str = "FAKE_MODE";
/// How long a flood lasts.
pub(super) const FLOOD: Duration = Duration::from_secs(30);

static FLOOD_IS_OVER: AtomicBool = AtomicBool::new(false);

/// A table of the configuration that starts the fake server under this name. `lines` are further keys.
pub(crate) fn server(name: &str, mode: &str, lines: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    format!(
        "[mcp_servers.{name}]\ncommand = {exe:?}\n\
         args = [\"--exact\", \"mcp::fake::serve\", \"--include-ignored\", \"--nocapture\"]\n{lines}\n\
         [mcp_servers.{name}.env]\n{MODE} = \"{mode}\"\nGIVEN = \"${{FROM_OUTSIDE:-default}}\"\n"
    )
}

/// A server that lists and answers what a table says: `tools`, the entries of its list; `calls`, for each tool the JSON text of
/// the answer, in which `ID` stands for the id of the request and `BYTE` for a byte that is no UTF-8; `versions`, which it
/// names if it does not know the one that was offered; `wait`, a file for which it waits before it reads anything.
pub(crate) fn table(name: &str, table: &Value) -> String {
    let table = toml::Value::String(table.to_string());
    format!("{}TABLE = {table}\n", server(name, "table", ""))
}

#[derive(Default)]
struct Fake {
    mode: String,
    table: Value,
    calls: u64,
    lists: u64,
    notes: Vec<String>,
    extra: bool,
    memory: Vec<String>,
}

#[test]
#[ignore = "the fake MCP server itself, which the other tests start"]
fn serve() {
    let mode = std::env::var(MODE).unwrap_or_default();
    if mode == "exit" {
        std::io::stderr().write_all(b"no licence found\n").unwrap();
        std::process::exit(7);
    }
    let table = std::env::var("TABLE").unwrap_or_default();
    let table: Value = serde_json::from_str(&table).unwrap_or_default();
    if let Some(file) = table["wait"].as_str() {
        while !std::fs::exists(file).unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let mut fake = Fake {
        mode,
        table,
        ..Fake::default()
    };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            fake.take(&message);
        }
    }
    if fake.mode == "stays" {
        loop {
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
}

fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _reader_may_be_gone = out.write_all(format!("{line}\n").as_bytes());
    let _reader_may_be_gone = out.flush();
}

/// Prints for a long time.
fn flood(mut print: impl FnMut() + Send + 'static) {
    std::thread::spawn(move || {
        let began = Instant::now();
        while began.elapsed() < FLOOD {
            print();
            // Others may print as well.
            std::thread::yield_now();
        }
        FLOOD_IS_OVER.store(true, Ordering::SeqCst);
    });
}

fn send(message: &Value) {
    print(&message.to_string());
}

fn tool(name: &str, schema: Value) -> Value {
    json!({"name": name, "description": format!("The tool {name}."), "inputSchema": schema})
}

fn any() -> Value {
    json!({"type": "object"})
}

impl Fake {
    fn take(&mut self, message: &Value) {
        let id = &message["id"];
        let answer = |result: Value| send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        match message["method"].as_str().unwrap_or_default() {
            "initialize" if self.mode == "silent" => {}
            "initialize" if self.refuses(&message["params"]["protocolVersion"]) => send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "Unsupported protocol version",
                    "data": {"supported": self.table["versions"], "requested": message["params"]["protocolVersion"]}}}),
            ),
            "notifications/initialized" => match self.mode.as_str() {
                "noise_flood" => flood(|| print("More noise than anybody can read.")),
                "log_flood" => flood(|| {
                    let _reader_may_be_gone =
                        std::io::stderr().write_all(b"More than anybody can read.\n");
                }),
                "notice_flood" => flood(|| {
                    send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                    let params = json!({"level": "info", "data": "x".repeat(1000)});
                    send(
                        &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
                    );
                    let params = json!({"progressToken": 7, "progress": 1});
                    send(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                    );
                }),
                _ => {}
            },
            "initialize" => {
                if self.mode == "noise" {
                    print("Starting up...");
                    print("[1, 2");
                    print("{\"not\": \"a message\"}");
                }
                answer(json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "fake", "version": "1"},
                    "instructions": "Call me.",
                }));
            }
            "notifications/cancelled" => {
                let request = message["params"]["requestId"].to_string();
                self.notes.push(format!("cancelled {request}"));
            }
            "tools/list" => {
                self.lists += 1;
                answer(self.list(&message["params"]["cursor"]));
            }
            "tools/call" if self.mode == "table" => {
                let name = message["params"]["name"].as_str().unwrap();
                let text = self.table["calls"][name].as_str().unwrap();
                let line = text.replace("ID", &id.to_string());
                let mut bytes = Vec::new();
                for (index, part) in line.split("BYTE").enumerate() {
                    if index > 0 {
                        bytes.push(0xfc);
                    }
                    bytes.extend_from_slice(part.as_bytes());
                }
                bytes.push(b'\n');
                let mut out = std::io::stdout().lock();
                out.write_all(&bytes).unwrap();
                out.flush().unwrap();
            }
            "tools/call" => self.call(message),
            "ping" => answer(json!({})),
            _ if id.is_null() => {}
            _ if message.get("result").is_some() => {
                let result = &message["result"];
                self.notes.push(format!("{id} answered {result}"));
            }
            _ if message.get("error").is_some() => {
                let error = &message["error"];
                self.notes.push(format!("{id} declined {error}"));
            }
            _ => send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown method"}}),
            ),
        }
    }

    /// Whether it does not know a version of the protocol.
    fn refuses(&self, version: &Value) -> bool {
        let known = self.table["versions"].as_array();
        known.is_some_and(|known| !known.contains(version))
    }

    fn list(&self, cursor: &Value) -> Value {
        match self.mode.as_str() {
            "table" => json!({"tools": self.table["tools"]}),
            "pages" => {
                let page = cursor
                    .as_str()
                    .map_or(0, |cursor| cursor.parse::<u64>().unwrap());
                json!({"tools": [tool(&format!("page_{page}"), any())], "nextCursor": (page + 1).to_string()})
            }
            "many" => {
                let page = cursor
                    .as_str()
                    .map_or(0, |cursor| cursor.parse::<u64>().unwrap());
                let tools: Vec<Value> = (page * 50..page * 50 + 50)
                    .map(|number| tool(&format!("tool_{number}"), any()))
                    .collect();
                match page {
                    0..3 => json!({"tools": tools, "nextCursor": (page + 1).to_string()}),
                    _ => json!({"tools": tools}),
                }
            }
            "huge" => {
                let long = "x".repeat(1024 * 1024);
                json!({"tools": [
                    tool("huge", json!({"type": "object", "description": long})),
                    tool("echo", any()),
                    {"name": "malformed"},
                    tool("echo", any()),
                    tool("a name/with signs", any()),
                ]})
            }
            "flood" => {
                let tools: Vec<Value> = (0..5000)
                    .map(|number| tool(&format!("t{number}"), any()))
                    .collect();
                json!({"tools": tools})
            }
            _ => self.usual(),
        }
    }

    fn usual(&self) -> Value {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let nested = json!({
            "type": "object",
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "properties": {"at": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}},
        });
        let mut tools: Vec<Value> = [
            "env",
            "crash",
            "hang",
            "progress",
            "endless",
            "chatty",
            "flood",
            "big",
            "parts",
            "fail",
            "error",
            "notes",
            "spawn",
            "remember",
            "twice",
            "change",
            "ask",
            "crash_once",
            "lists",
            "meta",
        ]
        .iter()
        .map(|name| tool(name, any()))
        .collect();
        tools.push(tool("echo", text));
        tools.push(tool("nested", nested));
        let titled = json!({"type": "object", "title": "T", "properties": {"title": {"type": "string", "examples": ["x"]}}});
        tools.push(tool("titled", titled));
        let mut reader = tool("read", any());
        reader["annotations"] = json!({"readOnlyHint": true});
        tools.push(reader);
        for (name, hints) in [
            ("crash_once_reads", json!({"readOnlyHint": true})),
            ("crash_once_idempotent", json!({"idempotentHint": true})),
            (
                "crash_once_destroys",
                json!({"readOnlyHint": true, "destructiveHint": true}),
            ),
        ] {
            let mut hinted = tool(name, any());
            hinted["annotations"] = hints;
            tools.push(hinted);
        }
        if self.extra {
            tools.push(tool("extra", any()));
        }
        json!({"tools": tools})
    }

    fn call(&mut self, message: &Value) {
        self.calls += 1;
        let id = &message["id"];
        let params = &message["params"];
        let arguments = &params["arguments"];
        let answer = |result: Value| send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        let say = |text: &str| answer(json!({"content": [{"type": "text", "text": text}]}));
        let token = &params["_meta"]["progressToken"];
        let progress = |done: u64| {
            send(
                &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                {"progressToken": token, "progress": done, "total": 3, "message": format!("step {done}")}}),
            );
        };
        match params["name"].as_str().unwrap() {
            "echo" => say(arguments["text"].as_str().unwrap()),
            "env" => {
                let mut names: Vec<String> = std::env::vars()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                names.sort();
                say(&names.join("\n"));
            }
            "crash" => std::process::exit(3),
            name if name.starts_with("crash_once") => {
                let marker = arguments["marker"].as_str().unwrap();
                if std::fs::exists(marker).unwrap() {
                    say("survived");
                } else {
                    std::fs::write(marker, "").unwrap();
                    std::process::exit(4);
                }
            }
            "hang" => self.notes.push("hanging".to_owned()),
            "lists" => say(&self.lists.to_string()),
            "read" => say("read"),
            "progress" => {
                (1..=3).for_each(progress);
                say("walked");
            }
            "endless" => {
                (1..=20_000).for_each(progress);
                say("walked far");
            }
            "chatty" => {
                for number in 0..1000 {
                    let params = json!({"level": "info", "data": format!("line {number}")});
                    send(
                        &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
                    );
                    progress(number);
                }
                say("talked");
            }
            "flood" => say(match FLOOD_IS_OVER.load(Ordering::SeqCst) {
                true => "over",
                false => "on",
            }),
            "big" => {
                let bytes = usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap();
                say(&"x".repeat(bytes));
            }
            "parts" => answer(json!({"content": [
                {"type": "text", "text": "one"},
                {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "https://h/r", "name": "r"},
            ], "structuredContent": {"sum": 3}})),
            "fail" => answer(
                json!({"content": [{"type": "text", "text": "out of paper"}], "isError": true}),
            ),
            "error" => send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32050, "message": "the press is stuck"}}),
            ),
            "notes" => say(&self.notes.join("\n")),
            "meta" => say(&params["_meta"].to_string()),
            "remember" => {
                let fact = arguments["fact"].as_str().map(ToOwned::to_owned);
                self.memory.extend(fact);
                say(&format!(
                    "{}: {}",
                    std::process::id(),
                    self.memory.join(",")
                ));
            }
            "spawn" => {
                // In a session of its own, so that no signal to the group reaches it.
                let child = std::process::Command::new("setsid")
                    .args(["sleep", "1000"])
                    .stdin(Stdio::null())
                    .spawn()
                    .unwrap();
                say(&format!("{} {}", std::process::id(), child.id()));
            }
            "twice" => {
                say("first");
                say("second");
            }
            "change" => {
                self.extra = true;
                send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                say("changed");
            }
            "ask" => {
                for (number, method) in [
                    "sampling/createMessage",
                    "roots/list",
                    "elicitation/create",
                    "nonsense",
                    "ping",
                ]
                .iter()
                .enumerate()
                {
                    let params = match *method {
                        "sampling/createMessage" => json!({"messages": [], "maxTokens": 1}),
                        "elicitation/create" => {
                            json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}})
                        }
                        _ => json!({}),
                    };
                    send(
                        &json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}),
                    );
                }
                say("asked");
            }
            other => say(&format!("called {other}")),
        }
    }
}
