//! Authentication: API keys, or a check of the host name where no keys are configured.

use std::net::{IpAddr, Ipv6Addr};

use globset::{Glob, GlobSet, GlobSetBuilder};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, Uri};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::error::{ApiError, codes};
use super::settings::ApiKey;
use protocol::ids::Owner;

/// Finds the owner of a request, or refuses it.
#[derive(Debug)]
pub(super) struct Authenticator {
    keys: Vec<(Owner, [u8; 32])>,
    /// The owners that may read the figures of all owners; empty if all may.
    operators: Vec<Owner>,
    allowed_hosts: GlobSet,
}

impl Authenticator {
    pub(super) fn new(keys: &[ApiKey], allowed_hosts: &[String]) -> Self {
        Self {
            keys: keys
                .iter()
                .map(|key| (Owner::key(&key.name), key.sha256))
                .collect(),
            operators: keys
                .iter()
                .filter(|key| key.operator)
                .map(|key| Owner::key(&key.name))
                .collect(),
            allowed_hosts: host_patterns(allowed_hosts),
        }
    }

    /// Whether keys are configured. The `authorization` of a request is then a key of this server and is not forwarded.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The owner of the key that the request carries. Without configured keys it is [`Owner::everybody`], if the host name
    /// of the request is allowed.
    ///
    /// # Errors
    /// 401 for a missing or wrong key, 403 for a host name that is not allowed.
    pub(super) fn authenticate(&self, headers: &HeaderMap, uri: &Uri) -> Result<Owner, ApiError> {
        if self.keys.is_empty() {
            return match self.host_allowed(headers, uri) {
                true => Ok(Owner::everybody()),
                false => Err(codes::HOST_NOT_ALLOWED.into()),
            };
        }
        let key = bearer(headers).ok_or_else(|| codes::INVALID_API_KEY.error())?;
        self.owner_of(key)
            .ok_or_else(|| codes::INVALID_API_KEY.error())
    }

    /// Whether the owner may read the figures of all owners.
    pub(super) fn is_operator(&self, owner: &Owner) -> bool {
        self.operators.is_empty() || self.operators.contains(owner)
    }

    /// Whether the owner's key is one that the settings name as an operator's.
    pub(super) fn is_named_operator(&self, owner: &Owner) -> bool {
        self.operators.contains(owner)
    }

    /// Compares with every key in constant time.
    fn owner_of(&self, key: &str) -> Option<Owner> {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let (mut found, mut index) = (Choice::from(0), 0_u64);
        for (position, (_, known)) in (0_u64..).zip(&self.keys) {
            let equal = known.ct_eq(&digest);
            index.conditional_assign(&position, equal);
            found |= equal;
        }
        let owner = usize::try_from(index)
            .ok()
            .and_then(|index| self.keys.get(index));
        owner
            .filter(|_| bool::from(found))
            .map(|(owner, _)| owner.clone())
    }

    fn host_allowed(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let host = match uri.authority() {
            Some(authority) => authority.as_str(),
            None => match headers.get(HOST).map(HeaderValue::to_str) {
                Some(Ok(host)) => host,
                Some(Err(_)) => return false,
                None => "",
            },
        };
        let Some(name) = host_name(host).map(str::to_ascii_lowercase) else {
            return false;
        };
        is_loopback(&name) || self.allowed_hosts.is_match(name.as_str())
    }
}

/// The patterns of allowed host names. The configuration has refused invalid patterns; they match nothing here.
fn host_patterns(hosts: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    let patterns = hosts
        .iter()
        .filter_map(|host| Glob::new(&host.to_ascii_lowercase()).ok());
    patterns.for_each(|glob| {
        set.add(glob);
    });
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

/// The key of a `Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// The host name without its port; `None` if the text is not a host. Names may have letters, digits, `-`, `.` and `_`,
/// which is less than the grammar of URLs allows.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (
                address,
                rest.strip_prefix(':')
                    .or_else(|| rest.is_empty().then_some(""))?,
            )
        }
        None => {
            let (name, port) = host.split_once(':').unwrap_or((host, ""));
            let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (name.bytes().all(named).then_some(name)?, port)
        }
    };
    port.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(name)
}

fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost"
        || name.ends_with(".localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a web page of another origin sends the request.
pub(super) fn is_cross_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers
        .get(http::header::ORIGIN)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let host = headers
        .get(HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    origin
        .split_once("://")
        .is_none_or(|(_, origin_host)| origin_host != host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator(keys: &[(&str, &str)]) -> Authenticator {
        let keys: Vec<ApiKey> = keys
            .iter()
            .map(|(name, key)| ApiKey {
                name: (*name).into(),
                sha256: Sha256::digest(key.as_bytes()).into(),
                forward: None,
                operator: false,
                defaults: agent::turn::KeyDefaults::default(),
            })
            .collect();
        Authenticator::new(&keys, &["Proxy.Corp".into(), "*.lab".into()])
    }

    fn authenticate(
        authenticator: &Authenticator,
        header: http::HeaderName,
        value: &str,
    ) -> Result<Owner, u16> {
        let headers = HeaderMap::from_iter([(header, value.parse().unwrap())]);
        authenticator
            .authenticate(&headers, &Uri::from_static("/x"))
            .map_err(|error| error.status().as_u16())
    }

    #[test]
    fn each_key_has_its_own_owner() {
        let authenticator = authenticator(&[("a", "key-a"), ("b", "key-b")]);
        assert_eq!(
            authenticate(&authenticator, AUTHORIZATION, "Bearer key-a"),
            Ok(Owner::key("a"))
        );
        assert_eq!(
            authenticate(&authenticator, AUTHORIZATION, "bearer key-b"),
            Ok(Owner::key("b"))
        );
        for wrong in [
            "Bearer key-c",
            "Bearer ",
            "key-a",
            "Basic key-a",
            "Bearer key-a key-b",
        ] {
            assert_eq!(
                authenticate(&authenticator, AUTHORIZATION, wrong),
                Err(401),
                "{wrong}"
            );
        }
        assert_eq!(authenticate(&authenticator, HOST, "localhost"), Err(401));
    }

    #[test]
    fn without_keys_only_allowed_hosts_are_accepted() {
        let authenticator = authenticator(&[]);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
            "localhost:",
            "a.localhost",
            "proxy.corp:443",
            "a.b.lab",
        ] {
            assert_eq!(
                authenticate(&authenticator, HOST, host),
                Ok(Owner::everybody()),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "lab",
            "a.lab.evil.example",
            "[::2]",
            "[::1]evil.com",
            "[::1]evil.com:80",
            "[::1]:80evil.com",
            "[::1]:80:80",
            "[::1",
            "::1",
            "[localhost]",
            "[127.0.0.1]",
            "localhost:80evil.com",
            "localhost:80:80",
            "user@localhost",
            "evil.com@localhost",
            "evil.com/.localhost",
            "evil.com,a.lab",
            "evil.com a.lab",
            "*.lab",
            "évil.lab",
            "",
        ] {
            assert_eq!(authenticate(&authenticator, HOST, host), Err(403), "{host}");
        }
        // The host of an absolute URL takes precedence over the header.
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        for (uri, allowed) in [
            ("http://localhost:80/x", true),
            ("http://[::1]/x", true),
            ("http://evil.com/x", false),
            ("http://evil.com@localhost/x", false),
        ] {
            let authenticated = authenticator.authenticate(&headers, &uri.parse().unwrap());
            assert_eq!(authenticated.is_ok(), allowed, "{uri}");
        }
    }
}
