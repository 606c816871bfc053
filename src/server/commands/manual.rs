//! The manual: one page per subject, part of this documentation and printed by `loopwright manual SUBJECT`.

/// A page of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManualPage {
    /// The word that the command line takes.
    pub(crate) subject: &'static str,
    /// What the page describes, in one line.
    pub(crate) summary: &'static str,
    /// The page, as Markdown.
    pub text: &'static str,
}

macro_rules! page {
    ($name:ident, $subject:literal, $summary:literal) => {
        #[doc = include_str!(concat!("manual/", $subject, ".md"))]
        pub const $name: ManualPage = ManualPage {
            subject: $subject,
            summary: $summary,
            text: include_str!(concat!("manual/", $subject, ".md")),
        };
    };
}

page!(
    API,
    "api",
    "requests, answers, streams, limits, endpoints, errors"
);
page!(
    RESPONSES,
    "responses",
    "the Responses API: fields, items, events"
);
page!(
    TOOLS,
    "tools",
    "webhooks, tools of the settings, client tools, retries"
);
page!(
    PERMISSIONS,
    "permissions",
    "rules: which calls run, wait for a person, or are refused"
);
page!(
    APPROVALS,
    "approvals",
    "calls that wait for a person, and how they are decided"
);
page!(
    MCP,
    "mcp",
    "MCP servers: settings, scopes, names, results, failures"
);
page!(
    HOOKS,
    "hooks",
    "policy servers that are asked about calls, results and answers"
);
page!(
    SANDBOX,
    "sandbox",
    "Python: interpreters, files, isolation, limits"
);
page!(
    SEARCH,
    "search",
    "the web: providers, options, reading, citations"
);
page!(
    SESSIONS,
    "sessions",
    "conversations and files, and how they are stored"
);
page!(
    FRONTENDS,
    "frontends",
    "chat front ends, coding agents, SDKs: lines to copy"
);
page!(
    SETTINGS,
    "settings",
    "flags, variables and the file, exit statuses"
);
page!(
    OPERATIONS,
    "operations",
    "commands, access, model servers, limits, metrics, deploying"
);
page!(
    SERVERS,
    "servers",
    "model servers and providers: settings for each"
);

page!(
    REPLICAS,
    "replicas",
    "several processes with one store: what they share, balancers, upgrades"
);
page!(
    LIMITS,
    "limits",
    "every fixed limit: its value, what happens at it, its test"
);
page!(
    SPEED,
    "speed",
    "what loopwright costs, and how to measure it"
);

/// All pages, in reading order.
pub(crate) const PAGES: [ManualPage; 17] = [
    API,
    RESPONSES,
    TOOLS,
    PERMISSIONS,
    APPROVALS,
    MCP,
    HOOKS,
    SANDBOX,
    SEARCH,
    SESSIONS,
    FRONTENDS,
    SETTINGS,
    OPERATIONS,
    SERVERS,
    REPLICAS,
    LIMITS,
    SPEED,
];

/// The page of a subject.
pub fn page(subject: &str) -> Option<ManualPage> {
    PAGES.into_iter().find(|page| page.subject == subject)
}

/// The subjects, one a line.
pub fn subjects() -> String {
    let lines = PAGES
        .iter()
        .map(|page| format!("  {:<11} {}\n", page.subject, page.summary));
    format!(
        "loopwright manual SUBJECT prints one of these pages:\n\n{}",
        lines.collect::<String>()
    )
}
