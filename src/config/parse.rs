//! Texts to values: pure functions, each error a problem and its remedy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Method};
use globset::Glob;
use url::Url;

use super::cli::Globs;
use crate::agent::settings::Permission;
use crate::session::settings::StoreUrl;
use crate::telemetry::{self, Format};

/// The longest time that can be set; what lies beyond is a slip of the unit.
const MAX_TIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Longest name of a tool, as model servers take it.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Longest name of a key or upstream.
const MAX_NAME_CHARS: usize = 64;
/// Headers that describe one connection or one body, which the HTTP client writes itself.
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

/// An address to listen on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!("`{text}` is no address; write ADDRESS:PORT, such as 127.0.0.1:8080 or [::]:8080")
    })
}

/// The base URL of a model server, without trailing slash as far as a URL can be.
pub(super) fn base_url(text: &str) -> Result<Url, String> {
    let mut url = http_url(text)?;
    if url.query().is_some() {
        return Err("a base URL has no query; take `?` and what follows it away".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if path.ends_with("/chat/completions") {
        return Err(
            "this is the URL of an endpoint; write the base URL, without /chat/completions"
                .to_owned(),
        );
    }
    url.set_path(&path);
    Ok(url)
}

/// The URL of a tool.
pub(super) fn tool_url(text: &str) -> Result<Url, String> {
    http_url(text)
}

/// An `http` or `https` URL that holds no credentials. Errors never repeat the text, which might hold some.
fn http_url(text: &str) -> Result<Url, String> {
    const FORM: &str = "write http://HOST:PORT/PATH or https://HOST/PATH";
    let url = Url::parse(text.trim()).map_err(|error| format!("no URL ({error}); {FORM}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme `{}` is not possible; {FORM}",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "a URL must not hold credentials; give them as a key or header from the environment"
                .to_owned(),
        );
    }
    if url.fragment().is_some() {
        return Err("a URL has no fragment here; take `#` and what follows it away".to_owned());
    }
    Ok(url)
}

/// A comma-separated list of name patterns; commas between braces belong to the pattern.
pub(super) fn globs(text: &str) -> Result<Globs, String> {
    let mut depth = 0_usize;
    let patterns = text.split(|char| {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        char == ',' && depth == 0
    });
    glob_list(
        patterns
            .map(str::trim)
            .filter(|pattern| !pattern.is_empty()),
    )
}

/// A list of name patterns.
pub(super) fn glob_list<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Globs, String> {
    let patterns = patterns.map(glob).collect::<Result<Vec<_>, _>>()?;
    if patterns.is_empty() {
        return Err("names nothing; write at least one pattern, or `*` for all".to_owned());
    }
    Ok(Globs(patterns))
}

/// One name pattern.
pub(super) fn glob(pattern: &str) -> Result<String, String> {
    match Glob::new(pattern) {
        Ok(_) if !pattern.is_empty() => Ok(pattern.to_owned()),
        Ok(_) => Err("an empty pattern matches nothing; take it away".to_owned()),
        Err(error) => Err(format!(
            "`{pattern}` is no pattern ({}); use `*`, `?`, `[ab]` and `{{a,b}}`",
            error.kind()
        )),
    }
}

/// Whether server-side tools may run.
pub(super) fn permission(text: &str) -> Result<Permission, String> {
    Permission::parse(text).ok_or_else(|| match text {
        "ask" => "approvals are not available in this version; write auto or deny".to_owned(),
        _ => format!("`{text}` is no permission; write auto or deny"),
    })
}

/// A number of rounds.
pub(super) fn rounds(text: &str) -> Result<u32, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is no number of rounds; write a whole number, 0 or more"))
}

/// Where sessions are kept. Errors never repeat the text, which might hold a password.
pub(super) fn store(text: &str) -> Result<StoreUrl, String> {
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    match scheme {
        "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
            "" => Err("names no file; write sqlite:PATH, such as sqlite:loopwright.db".to_owned()),
            ":memory:" => Ok(StoreUrl::Memory),
            path => Ok(StoreUrl::Sqlite(path.into())),
        },
        "memory" if rest.is_empty() || rest == "//" => Ok(StoreUrl::Memory),
        "postgres" | "postgresql" => {
            Err("this version has no PostgreSQL yet; write sqlite:PATH or memory:".to_owned())
        }
        _ => Err("no known session store; write sqlite:PATH or memory:".to_owned()),
    }
}

/// A directory.
pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("names no directory; write a path, such as /var/lib/loopwright/files".to_owned()),
        path => Ok(path.into()),
    }
}

/// The form of the log.
pub(super) fn log_format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(format!("`{text}` is no log format; write text or json")),
    }
}

/// The level of the log.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    match telemetry::filter(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A switch.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is no switch; write true or false")),
    }
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
            "no name of an environment variable; write the variable's name, never the secret itself"
                .to_owned(),
        )
    }
}

/// A time as text: `500ms`, `30s`, `5m`, `12h`, `30d`, or a bare number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || {
        format!(
            "`{text}` is no time; write seconds (30) or \"500ms\", \"30s\", \"5m\", \"12h\", \"30d\""
        )
    };
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(refused()),
    };
    let number: f64 = number.parse().map_err(|_| refused())?;
    seconds(number * factor)
}

/// A time as a number of seconds.
pub(super) fn seconds(seconds: f64) -> Result<Duration, String> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time <= MAX_TIME => Ok(time),
        Ok(_) => Err(format!(
            "{seconds} s is more than ten years; check the unit"
        )),
        Err(_) => Err(format!("{seconds} s is no time; write 0 or more")),
    }
}

/// A size as text: `64KiB`, `32MiB`, `1GiB`, the decimal kB, MB and GB, or a bare number of bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let refused =
        || format!("`{text}` is no size; write bytes (1048576) or \"64KiB\", \"32MiB\", \"1GiB\"");
    let (number, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(refused()),
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    number.checked_mul(factor).ok_or_else(refused)
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|char: char| char.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim_end(), unit)
}

/// The name of a key or an upstream: it stands in logs, metrics and the session store.
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
    if (1..=MAX_TOOL_NAME_CHARS).contains(&text.len()) && text.bytes().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "must be 1 to {MAX_TOOL_NAME_CHARS} letters, digits and _ -, as models take it"
        ))
    }
}

/// A method of a tool's endpoint.
pub(super) fn method(text: &str) -> Result<Method, String> {
    match text.to_ascii_uppercase().as_str() {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        _ => Err(format!(
            "`{text}` is no method for a tool; write GET, POST, PUT, PATCH or DELETE"
        )),
    }
}

/// The name of a header that is added to requests.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = any_header_name(text)?;
    if RESERVED_HEADERS.contains(&name.as_str()) {
        return Err(format!(
            "`{name}` is written by loopwright itself; take it away"
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

fn any_header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(text)
        .map_err(|_| format!("`{text}` is no header name; write letters, digits and -"))
}

/// The value of a header; never repeated in errors.
pub(super) fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .map_err(|_| "no header value; it must be visible ASCII on one line".to_owned())
}

/// A host name, without scheme and port; may be a pattern.
pub(super) fn host(text: &str) -> Result<String, String> {
    let well_formed = !text.is_empty() && !text.contains(['/', ':', ' ', '@']);
    if well_formed && glob(text).is_ok() {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "`{text}` is no host name; write it without scheme, port and path, such as loopwright.corp or *.corp"
        ))
    }
}

/// An origin that a browser sends: scheme, host and port.
pub(super) fn origin(text: &str) -> Result<HeaderValue, String> {
    if text == "*" {
        return Err("`*` would let every web page in; list the origins themselves".to_owned());
    }
    let same = Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text);
    if same {
        header_value(text)
    } else {
        Err(format!(
            "`{text}` is no origin; write scheme, host and, if it is not the usual one, port, such as https://chat.corp"
        ))
    }
}

/// A SHA-256 as 64 hexadecimal digits.
pub(super) fn sha256(text: &str) -> Result<[u8; 32], String> {
    let refused = || "no SHA-256; write its 64 hexadecimal digits".to_owned();
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refused());
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| refused())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| refused())?;
    }
    Ok(digest)
}
