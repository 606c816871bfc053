//! Types of the texts in the file. Each is read once, and shown in the form in which it is written.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ::http::{HeaderName, HeaderValue, Method};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use super::parse::FilesPlace;
use super::{names, parse};
use crate::telemetry::Format;
use agent::session::settings::StoreUrl;
use policy::rules::Effect;
use upstream::settings::ServerKind;
use web::settings::ProviderKind;

const DEFAULT_USER_AGENT: &str = concat!(
    "loopwright/",
    env!("CARGO_PKG_VERSION"),
    " (page reader; reads one page at a user's request)"
);

/// Reads a text. The errors of the function arise inside the visitor: only then do they have a position.
struct TextVisitor<T>(fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// Types of texts: the inner type, how it is read, how it is shown, and the default if there is one.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident($inner:ty) = $parse:path, $show:expr $(, $default:expr)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(super) struct $name(pub(super) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor($parse)).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let show: fn(&$inner) -> String = $show;
                serializer.serialize_str(&show(&self.0))
            }
        }

        impl From<$name> for $inner {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        })?
    )*};
}

texts! {
    /// An address to listen on.
    ListenAddress(SocketAddr) = parse::listen, ToString::to_string, (Ipv4Addr::LOCALHOST, 8080).into();
    /// The base URL of a model server.
    BaseUrl(Url) = parse::base_url, ToString::to_string;
    /// The URL of a tool or a search provider. Its query may hold a token and is not shown.
    ServiceUrl(Url) = parse::http_url, without_query;
    /// The kind of a model server; none if it is to be found out.
    UpstreamKind(Option<ServerKind>) = parse::upstream_kind, |it| parse::upstream_kind_text(*it), None;
    /// One pattern of names.
    NamePattern(String) = names::glob, String::clone;
    /// A host name, or a pattern of them.
    HostName(String) = names::host, String::clone;
    /// An origin that a browser sends.
    BrowserOrigin(HeaderValue) = names::origin, |it| String::from_utf8_lossy(it.as_bytes()).into_owned();
    /// The name of a header that carries a session id.
    SessionHeader(HeaderName) = names::session_header, ToString::to_string;
    /// The name of a header that carries the key of a session.
    AffinityHeader(HeaderName) = names::affinity_header, ToString::to_string;
    /// The name of a replica.
    ReplicaName(HeaderValue) = names::replica, |it| String::from_utf8_lossy(it.as_bytes()).into_owned();
    /// The name of an environment variable.
    VariableName(String) = names::variable_name, String::clone;
    /// The name of an API key or an upstream.
    EntryName(String) = names::name, String::clone;
    /// The name of a tool.
    ToolName(String) = names::tool_name, String::clone;
    /// What a tool does.
    ToolDescription(String) = parse::description, String::clone;
    /// The method of a tool's endpoint.
    ToolMethod(Method) = names::method, ToString::to_string, Method::POST;
    /// Whether server-side tools may run.
    ToolPermission(Effect) = parse::permission, |it| it.word().to_owned(), Effect::Allow;
    /// The Python interpreter.
    PythonProgram(PathBuf) = parse::interpreter, |it| it.display().to_string(), "python3".into();
    /// A module that Python can import.
    ModuleName(String) = names::module, String::clone;
    /// The location of the contents of files.
    FilesDir(FilesPlace) = parse::files_place, parse::files_place_text;
    /// A directory that is used for one thing only.
    WorkDir(PathBuf) = parse::work_directory, |it| it.display().to_string();
    /// The session store.
    StoreLocation(StoreUrl) = parse::store, parse::store_text, StoreUrl::Sqlite("loopwright.db".into());
    /// A search provider.
    ProviderName(ProviderKind) = names::provider, |it| it.as_str().to_owned();
    /// The `User-Agent` with which pages are fetched.
    UserAgent(String) = names::user_agent, String::clone, DEFAULT_USER_AGENT.to_owned();
    /// The SHA-256 of an API key.
    KeyDigest([u8; 32]) = parse::sha256, |_| "(not shown)".to_owned();
    /// The format of the log.
    LogFormat(Format) = parse::log_format, |it| it.as_str().to_owned(), Format::Text;
    /// The level of the log.
    LogLevel(String) = parse::log_level, String::clone, "info".to_owned();
}

fn without_query(url: &Url) -> String {
    let mut shown = url.clone();
    if shown.query().is_some() {
        shown.set_query(Some("…"));
    }
    shown.into()
}
