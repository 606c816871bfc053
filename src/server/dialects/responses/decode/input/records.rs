//! Items that only record calls of the client or of another service, as texts for the model.

use serde_json::Value;

use protocol::openai::raw::RawObject;

/// The text of such an item; `None` if it is of another type.
pub(super) fn text_of(kind: &str, item: &RawObject<'_>) -> Option<String> {
    let member = |key: &str| {
        let value = item.get_some(key);
        value.map_or(Value::Null, |value| {
            serde_json::from_str(value.get()).unwrap_or_default()
        })
    };
    let text = match kind {
        "local_shell_call" => {
            let command = texts(&member("action")["command"]).join(" ");
            format!("The client ran a command:\n{command}")
        }
        "shell_call" => {
            let commands = texts(&member("action")["commands"]).join("\n");
            format!("The client ran a command:\n{commands}")
        }
        "local_shell_call_output" | "shell_call_output" => {
            let output = command_output(&member("output")).join("\n");
            format!("The output of the client's command:\n{output}")
        }
        "apply_patch_call" => {
            let operation = member("operation");
            let parts = ["type", "path", "diff"].map(|key| texts(&operation[key]).concat());
            let [kind, path, diff] = parts;
            format!("The client changed a file with a patch ({kind} {path}):\n{diff}")
        }
        "apply_patch_call_output" => {
            let parts = ["status", "output"].map(|key| texts(&member(key)).concat());
            format!("The result of the client's patch: {}", parts.join("\n"))
        }
        "image_generation_call" => {
            let prompt = texts(&member("revised_prompt")).concat();
            format!("Another service generated an image: {prompt}")
        }
        "file_search_call" => {
            let queries = texts(&member("queries")).join(", ");
            let results = member("results");
            let results = results.as_array().into_iter().flatten();
            let results = results.map(|result| {
                let parts = ["filename", "text"].map(|key| texts(&result[key]).concat());
                parts.join(": ")
            });
            let results: Vec<String> = results.collect();
            let results = results.join("\n");
            format!("Another service searched files for: {queries}\n{results}")
        }
        "agent_message" => {
            let author = texts(&member("author")).concat();
            let said = [member("content"), member("message")];
            let said = said.iter().flat_map(texts).collect::<Vec<_>>().join("\n");
            format!("A message of another agent {author}:\n{said}")
        }
        "compaction" => {
            "Another service has shortened the conversation before this point. What it kept cannot be read here."
                .to_owned()
        }
        _ => return None,
    };
    Some(text.trim_end().to_owned())
}

/// What a command has written, and how it ended.
fn command_output(output: &Value) -> Vec<String> {
    let Some(parts) = output.as_array() else {
        return texts(output);
    };
    let parts = parts.iter().flat_map(|part| {
        let mut lines = texts(&part["stdout"]);
        lines.extend(texts(&part["stderr"]));
        match (
            &part["outcome"]["exit_code"],
            part["outcome"]["type"].as_str(),
        ) {
            (Value::Null, Some("timeout")) => lines.push("It did not end in time.".to_owned()),
            (Value::Null, _) => lines.extend(texts(&part["text"])),
            (status, _) => lines.push(format!("exit status {status}")),
        }
        lines
    });
    parts.filter(|line| !line.is_empty()).collect()
}

/// The texts in a value: the value itself, the entries of a list, or the `text` of its parts.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(entries) => entries.iter().flat_map(texts).collect(),
        Value::Object(part) => part.get("text").map_or_else(Vec::new, texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}
