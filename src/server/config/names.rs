//! The rules for names, patterns and headers: pure functions. Each error names the problem and its remedy.

use ::http::{HeaderName, HeaderValue, Method};
use globset::Glob;
use url::Url;

use web::settings::ProviderKind;

/// Longest name of an API key, an upstream, an MCP server or a tool, in characters, which is what model servers accept.
/// With a longer one the start fails.
pub(super) const MAX_NAME_CHARS: usize = 64;
/// Headers about one connection or one body, which the HTTP client writes itself.
const RESERVED_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// The entries of a comma-separated list; commas between braces belong to a pattern.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let entries = text.split(move |char| {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    entries.map(str::trim).filter(|entry| !entry.is_empty())
}

/// One name pattern.
pub(super) fn glob(pattern: &str) -> Result<String, String> {
    match Glob::new(pattern) {
        Ok(_) if !pattern.is_empty() => Ok(pattern.to_owned()),
        Ok(_) => Err("an empty pattern matches nothing; remove it".to_owned()),
        Err(error) => Err(format!(
            "`{pattern}` is not a pattern ({}); use `*`, `?`, `[ab]` and `{{a,b}}`",
            error.kind()
        )),
    }
}

/// A module that Python can import.
pub(super) fn module(text: &str) -> Result<String, String> {
    let is_name = |part: &str| {
        let mut characters = part.chars();
        let first = characters.next();
        first.is_some_and(|first| first == '_' || first.is_alphabetic())
            && characters.all(|other| other == '_' || other.is_alphanumeric())
    };
    match text.split('.').all(is_name) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not a module; write a name that Python can import, such as numpy"
        )),
    }
}

/// A search provider by its name.
pub(super) fn provider(text: &str) -> Result<ProviderKind, String> {
    let known = ProviderKind::ALL;
    let found = known.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names = known.map(ProviderKind::as_str).join(", ");
        format!("`{text}` is not a search provider; write one of {names}")
    })
}

/// The `User-Agent` with which pages are fetched.
pub(super) fn user_agent(text: &str) -> Result<String, String> {
    header_value(text).map(|_| text.to_owned())
}

/// The name of an environment variable. A secret given by mistake is never repeated.
pub(super) fn variable_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins_well = text
        .bytes()
        .next()
        .is_some_and(|byte| !byte.is_ascii_digit());
    if begins_well && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(
            "not the name of an environment variable; write the variable's name, never the secret itself"
                .to_owned(),
        )
    }
}

/// The name of an API key or an upstream: logs, metrics and the session store show it.
pub(super) fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must be 1 to {MAX_NAME_CHARS} letters, digits and . _ -"
        ))
    }
}

/// The name of a tool.
pub(super) fn tool_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must be 1 to {MAX_NAME_CHARS} letters, digits and _ -, which is what model servers accept"
        ))
    }
}

/// The method of a tool's endpoint.
pub(super) fn method(text: &str) -> Result<Method, String> {
    match text.to_ascii_uppercase().as_str() {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(format!(
            "`{text}` is not a method for a tool; write GET, POST, PUT, PATCH or DELETE"
        )),
    }
}

/// The name of a header that is added to requests.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = any_header_name(text)?;
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err(format!(
            "`{name}` is written by loopwright itself; remove it"
        ));
    }
    Ok(name)
}

/// The name of a header that carries the key of a session to a model server.
pub(super) fn affinity_header(text: &str) -> Result<HeaderName, String> {
    let name = header_name(text)?;
    if matches!(
        name.as_str(),
        "accept" | "authorization" | "content-type" | "host"
    ) {
        return Err(format!(
            "`{name}` means something else; name another header"
        ));
    }
    Ok(name)
}

/// The name of a header that carries a session id.
pub(super) fn session_header(text: &str) -> Result<HeaderName, String> {
    let name = any_header_name(text)?;
    if matches!(name.as_str(), "authorization" | "cookie" | "x-api-key") {
        return Err(format!(
            "`{name}` carries secrets, and session ids are logged; name another header"
        ));
    }
    Ok(name)
}

/// The name of a replica.
pub(super) fn replica(text: &str) -> Result<HeaderValue, String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    match HeaderValue::from_str(text) {
        Ok(value) if (1..=128).contains(&text.len()) && text.bytes().all(is_valid) => Ok(value),
        _ => Err(format!(
            "`{text}` is not a name for a replica; write 1 to 128 letters, digits, -, . and _"
        )),
    }
}

fn any_header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text)
        .map_err(|_| format!("`{text}` is not a header name; write letters, digits and -"))
}

/// An API key, which is sent in a header; never repeated in errors.
pub(super) fn api_key(text: &str) -> Result<(), String> {
    header_value(text).map(drop)
}

/// The value of a header; never repeated in errors.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| "not a header value; it must be visible ASCII on one line".to_owned())
}

/// A host name, without scheme and port; may be a pattern.
pub(super) fn host(text: &str) -> Result<String, String> {
    let well_formed = !text.is_empty() && !text.contains(['/', ':', ' ', '@']);
    if well_formed && glob(text).is_ok() {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "`{text}` is not a host name; write it without scheme, port and path, such as loopwright.corp or *.corp"
        ))
    }
}

/// An origin that a browser sends: scheme, host and port.
pub(super) fn origin(text: &str) -> Result<HeaderValue, String> {
    if text == "*" {
        return Err(
            "`*` would let every web page call this server; list the origins themselves".to_owned(),
        );
    }
    let same = Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text);
    if same {
        header_value(text)
    } else {
        Err(format!(
            "`{text}` is not an origin; write scheme, host and, if it is not the usual one, port, such as https://chat.corp"
        ))
    }
}
