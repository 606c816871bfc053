//! Checks of a URL before its name is resolved.
//!
//! URLs are checked in the form that the WHATWG parser returns, which is also used for the connection. It has replaced
//! decimal, octal, hexadecimal and short forms of addresses, other digits, dots and letter cases by the usual form.

use std::net::IpAddr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use url::{Host, Url};

use super::FetchError;
use super::address::is_public;
use crate::settings::FetchSettings;
use crate::{DomainFilter, MAX_URL_BYTES, SetupError};
use protocol::ids::shown;

/// Top-level names outside the public internet: IANA's special-use names, names that ICANN reserves because private
/// networks use them, and usual names of local networks.
const LOCAL_NAMES: &[&str] = &[
    "alt",
    "arpa",
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "onion",
    "private",
    "test",
];

/// The URLs that the operator permits.
#[derive(Debug)]
pub(super) struct UrlPolicy {
    ports: Vec<u16>,
    allow: Option<GlobSet>,
    block: GlobSet,
    private: PrivateHosts,
}

/// Hosts that may have private addresses. A glob for addresses must not match names that look like one (`10.0.*` and
/// `10.0.evil.example`). A glob for names must not match longer names that anybody can register.
#[derive(Debug)]
struct PrivateHosts {
    addresses: GlobSet,
    names: GlobSet,
}

/// A URL that may be fetched if its addresses are permitted.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Without a fragment.
    pub(super) url: Url,
    /// The host, an IPv6 address without brackets.
    pub(super) host: String,
    /// Whether the operator permits a private address for it.
    pub(super) is_private: bool,
}

impl UrlPolicy {
    /// Compiles the operator's lists.
    ///
    /// # Errors
    /// When a glob is invalid.
    pub(super) fn new(settings: &FetchSettings) -> Result<Self, SetupError> {
        let allow = match settings.allow.as_slice() {
            [] => None,
            globs => Some(host_globs("allow", globs)?),
        };
        Ok(Self {
            ports: settings.ports.clone(),
            allow,
            block: host_globs("block", &settings.block)?,
            private: PrivateHosts::new(&settings.private)?,
        })
    }

    /// The hosts that match `allow` or `private`, and no others.
    ///
    /// # Errors
    /// When a glob is invalid.
    pub(super) fn only(
        allow: &[String],
        private: &[String],
        ports: &[u16],
    ) -> Result<Self, SetupError> {
        Ok(Self {
            ports: ports.to_vec(),
            allow: Some(host_globs("allow", &[allow, private].concat())?),
            block: GlobSet::empty(),
            private: PrivateHosts::new(private)?,
        })
    }

    /// Checks a URL in the form in which a model or a page wrote it.
    ///
    /// # Errors
    /// When it may not be fetched.
    pub(super) fn target(
        &self,
        written: &str,
        domains: &DomainFilter,
    ) -> Result<Target, FetchError> {
        let written = written.trim_matches(' ');
        check_text(written)?;
        self.check(Url::parse(written).map_err(unreadable)?, domains)
    }

    /// Checks the `location` in the response of a target.
    ///
    /// # Errors
    /// When it may not be fetched.
    pub(super) fn redirected(
        &self,
        from: &Target,
        location: &str,
        domains: &DomainFilter,
    ) -> Result<Target, FetchError> {
        let location = location.trim_matches(' ');
        check_text(location)?;
        let to = from.url.join(location).map_err(unreadable)?;
        let shown = to.clone();
        self.check(to, domains)
            .and_then(|to| match is_downgrade(from, &to) {
                true => Err(FetchError::Downgrade),
                false => Ok(to),
            })
            .map_err(|reason| redirected(&shown, reason))
    }

    /// Whether the operator permits a private address for this host.
    pub(super) fn is_private(&self, host: &str) -> bool {
        self.private.contains(host)
    }

    fn check(&self, mut url: Url, domains: &DomainFilter) -> Result<Target, FetchError> {
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = shown(url.scheme());
            return Err(FetchError::Scheme { scheme });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::Credentials);
        }
        if url.as_str().len() > MAX_URL_BYTES {
            return Err(FetchError::TooLong {
                limit: MAX_URL_BYTES,
            });
        }
        url.set_fragment(None);
        let (host, address) = match url.host() {
            Some(Host::Domain(name)) => (name.to_owned(), None),
            Some(Host::Ipv4(address)) => (address.to_string(), Some(IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => (address.to_string(), Some(IpAddr::V6(address))),
            None => return Err(unreadable(url::ParseError::EmptyHost)),
        };
        let is_private = self.is_private(&host);
        match address {
            None => {
                if let Some(problem) = problem_of_name(&host, is_private) {
                    return Err(FetchError::Host { host, problem });
                }
            }
            Some(address) if !is_private && !is_public(address) => {
                return Err(FetchError::Address { host });
            }
            Some(_) => {}
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !is_private && !self.ports.contains(&port) {
            return Err(FetchError::Port { port });
        }
        let is_allowed = self
            .allow
            .as_ref()
            .is_none_or(|allow| allow.is_match(&host));
        if !is_allowed || self.block.is_match(&host) {
            return Err(FetchError::NotAllowed { host });
        }
        if !domains.permits(url.host_str().unwrap_or_default()) {
            return Err(FetchError::Filtered { host });
        }
        Ok(Target {
            url,
            host,
            is_private,
        })
    }
}

impl Target {
    /// Scheme, host and port.
    pub(super) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// The error for the caller of the page that redirects to this target.
    pub(super) fn not_read(&self, reason: FetchError) -> FetchError {
        redirected(&self.url, reason)
    }
}

impl PrivateHosts {
    fn new(globs: &[String]) -> Result<Self, SetupError> {
        let mut names = GlobSetBuilder::new();
        for written in globs {
            let written = &encoded(written);
            if let Some((_, last)) = written.rsplit_once('.')
                && has_wildcard(last)
            {
                // A name under any top-level domain is meant for addresses.
                continue;
            }
            // A wildcard matches one label. A leading one matches any number of labels.
            let by_label = match written.strip_prefix("*.") {
                Some(rest) => format!("*/**/{}", rest.replace('.', "/")),
                None => written.replace('.', "/"),
            };
            let glob = GlobBuilder::new(&by_label)
                .literal_separator(true)
                .case_insensitive(true)
                .build();
            names.add(glob.map_err(|source| bad_glob("private", written, source))?);
        }
        let names = names
            .build()
            .map_err(|source| bad_glob("private", &globs.join(", "), source))?;
        Ok(Self {
            addresses: host_globs("private", globs)?,
            names,
        })
    }

    fn contains(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(_) => self.addresses.is_match(host),
            Err(_) => self.names.is_match(host.replace('.', "/")),
        }
    }
}

fn host_globs(setting: &'static str, globs: &[String]) -> Result<GlobSet, SetupError> {
    let mut set = GlobSetBuilder::new();
    for written in globs {
        let glob = GlobBuilder::new(&encoded(written))
            .case_insensitive(true)
            .build();
        set.add(glob.map_err(|source| bad_glob(setting, written, source))?);
    }
    set.build()
        .map_err(|source| bad_glob(setting, &globs.join(", "), source))
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// A glob with its names in the form of URLs, in which other scripts are encoded.
fn encoded(glob: &str) -> String {
    let encode = |label: &str| match Host::parse(label) {
        Ok(Host::Domain(encoded)) if !label.is_ascii() && !has_wildcard(label) => encoded,
        _ => label.to_owned(),
    };
    let labels: Vec<String> = glob.split('.').map(encode).collect();
    labels.join(".")
}

fn bad_glob(setting: &'static str, glob: &str, source: globset::Error) -> SetupError {
    SetupError::Glob {
        setting,
        glob: glob.to_owned(),
        source,
    }
}

/// Refuses characters that the parser would ignore or accept.
fn check_text(written: &str) -> Result<(), FetchError> {
    if written.len() > MAX_URL_BYTES {
        return Err(FetchError::TooLong {
            limit: MAX_URL_BYTES,
        });
    }
    match written.contains(char::is_control) {
        true => Err(FetchError::Characters),
        false => Ok(()),
    }
}

fn unreadable(error: url::ParseError) -> FetchError {
    FetchError::Unreadable {
        problem: error.to_string(),
    }
}

fn redirected(to: &Url, reason: FetchError) -> FetchError {
    // A parsed URL is ASCII. With an unknown scheme it may hold spaces, and then a part of it could pass for this
    // server's own words.
    let to = to.as_str().replace(' ', "%20");
    FetchError::Redirected {
        to: shown(&to),
        reason: Box::new(reason),
    }
}

/// Whether a redirect leads from an encrypted page to an unencrypted page of another host.
fn is_downgrade(from: &Target, to: &Target) -> bool {
    from.url.scheme() == "https" && to.url.scheme() == "http" && from.host != to.host
}

/// Why a name is not one of the public internet. Names that the operator permits may be local.
fn problem_of_name(name: &str, is_private: bool) -> Option<&'static str> {
    if name.ends_with('.') {
        return Some("ends in a dot; write it without");
    }
    let is_plain = |character: u8| matches!(character, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
    if !name.split('.').all(is_label) {
        return Some("is not a valid name");
    }
    if is_private {
        return None;
    }
    match name.rsplit('.').next() {
        Some(last) if last == name => Some("is a name without a domain"),
        Some(last) if LOCAL_NAMES.contains(&last) => Some("is a name of private networks"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
