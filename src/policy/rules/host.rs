//! Hosts of URLs, and patterns over them.

use std::net::Ipv4Addr;

use globset::escape;
use url::{Host, Url};

use super::patterns::excerpt;

/// The host of a URL as the URL standard reads it: in lower case, without the dot at the end. `None`: the value is no URL
/// or has no host.
pub(super) fn of_url(value: &str) -> Option<String> {
    let url = Url::parse(value).ok()?;
    if let Some(Host::Ipv6(address)) = url.host()
        && let Some(mapped) = address.to_ipv4_mapped()
    {
        return Some(mapped.to_string());
    }
    let host = url.host_str()?.trim_end_matches('.').to_lowercase();
    // With schemes that the standard does not list, hosts stay as they are written.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_numeric = last.starts_with(|first: char| first.is_ascii_digit());
    let is_address = host.parse::<Ipv4Addr>().is_ok();
    let is_readable = !host.is_empty() && !host.contains('%') && (is_address || !is_numeric);
    is_readable.then_some(host)
}

/// The glob of a pattern, in the form in which hosts are compared.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    let quoted = excerpt(text);
    if text.contains(['/', '@', '\\']) || text.chars().any(char::is_whitespace) {
        return Err(format!(
            "{quoted} is no host; write the host alone, such as \"*.example.com\""
        ));
    }
    let lower = text.trim_end_matches('.').to_lowercase();
    if lower.is_empty() {
        return Err(format!(
            "{quoted} is no host; write one such as \"example.com\""
        ));
    }
    // An address in brackets would be a class of characters.
    if lower.starts_with('[')
        && let Ok(address @ Host::Ipv6(_)) = Host::parse(&lower)
    {
        return Ok(escape(&address.to_string()));
    }
    if lower.contains(':') {
        return Err(format!(
            "{quoted} holds a `:`; leave the scheme and the port out, and write IPv6 addresses in brackets"
        ));
    }
    if lower.is_ascii() {
        return Ok(lower);
    }
    let labels: Result<Vec<String>, String> = lower.split('.').map(ascii_label).collect();
    labels.map(|labels| labels.join("."))
}

/// A label with characters outside of ASCII in the form in which URLs hold it.
fn ascii_label(label: &str) -> Result<String, String> {
    if label.is_ascii() {
        return Ok(label.to_owned());
    }
    let wild = label.contains(['*', '?', '[', ']', '{', '}']);
    match Host::parse(label) {
        Ok(Host::Domain(label)) if !wild => Ok(label),
        _ => Err(format!(
            "{} cannot be converted to ASCII; write the label in its `xn--` form",
            excerpt(label)
        )),
    }
}
