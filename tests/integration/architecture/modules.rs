//! Which module a source file is of: a member of the workspace, or a part of one.

use super::{is_of_word, names_after, names_where};

/// The members, each after those that it uses.
const MEMBERS: &[&str] = &[
    "protocol", "net", "quota", "blobs", "policy", "sandbox", "web", "store", "upstream", "tools",
    "agent", "server",
];

/// The folders below `src` that hold several modules, besides that of their own `lib.rs`.
const FOLDERS: &[(&str, &[&str])] = &[
    ("agent", &["metrics", "runs", "session", "traces"]),
    ("blobs", &["segments"]),
    ("net", &["cluster", "polling"]),
    ("policy", &["hooks", "redact", "rules"]),
    ("protocol", &["ids", "media", "openai", "sse"]),
    (
        "server",
        &["app", "config", "http", "shutdown", "telemetry"],
    ),
    (
        "server/commands",
        &[
            "approvals",
            "client",
            "copies",
            "demo",
            "health",
            "launch",
            "manual",
        ],
    ),
    (
        "server/dialects",
        &["answer", "chat", "end", "fields", "responses"],
    ),
    ("web", &["ranking"]),
];

/// The module of a file, by its path within `src`, and its path within the module.
pub(crate) fn place(file: &str) -> (&str, &str) {
    let whole = file.strip_suffix(".rs").unwrap_or(file);
    let whole = whole.strip_suffix("/lib").unwrap_or(whole);
    let within = |folder: &str| whole.strip_prefix(folder)?.strip_prefix('/');
    let part = FOLDERS.iter().find_map(|(folder, modules)| {
        let rest = within(folder)?;
        let (module, rest) = rest.split_once('/').unwrap_or((rest, ""));
        modules.contains(&module).then_some((module, rest))
    });
    part.unwrap_or_else(|| whole.split_once('/').unwrap_or((whole, "")))
}

/// Whether a member holds several modules.
pub(crate) fn is_shared(member: &str) -> bool {
    FOLDERS.iter().any(|(folder, _)| *folder == member)
}

/// The modules that the code of a member names, each of its own members and of others.
pub(crate) fn named_modules(member: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, modules) in FOLDERS {
        let Some(inner) = folder.strip_prefix(member) else {
            continue;
        };
        let prefix = format!("crate{}::", inner.replace('/', "::"));
        for name in names_after(code, &prefix) {
            if modules.contains(&&*name) {
                found.push(name);
            } else if inner.is_empty() && !is_shared(&format!("{member}/{name}")) {
                found.push(member.to_owned());
            }
        }
    }
    for other in MEMBERS.iter().filter(|other| **other != member) {
        let modules = FOLDERS.iter().find(|(folder, _)| folder == other);
        for name in names_of_member(code, other) {
            let is_part = modules.is_some_and(|(_, modules)| modules.contains(&&*name));
            found.push(if is_part { name } else { (*other).to_owned() });
        }
    }
    found
}

/// The names that follow the name of a member in the code.
pub(crate) fn names_of_member(code: &str, member: &str) -> Vec<String> {
    // A module of the same name hides the member.
    let hidden = code.contains(&format!("mod {member};"))
        || names_after(code, "super::").contains(&member.to_owned());
    names_where(code, &format!("{member}::"), |before| {
        match before.strip_suffix("::") {
            Some(before) => !before.ends_with(|c: char| is_of_word(c) || c == '>'),
            None => !hidden && !before.ends_with(is_of_word),
        }
    })
}
