//! Parses texts into values; the functions are pure. Each error names the problem and its remedy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use url::Url;

use crate::telemetry::{self, Format};
use agent::session::settings::{BucketUrl, PostgresUrl, StoreUrl};
use policy::rules::Effect;
use upstream::settings::ServerKind;

/// The word for a kind of model server that is to be found out.
const AUTO: &str = "auto";
/// Longest time that can be set; a longer one most likely has the wrong unit, and the start fails.
const MAX_TIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// An address to listen on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!(
            "`{text}` is not an address; write ADDRESS:PORT, such as 127.0.0.1:8080 or [::]:8080"
        )
    })
}

/// The base URL of a model server, without trailing slashes.
pub(super) fn base_url(text: &str) -> Result<Url, String> {
    let mut url = http_url(text)?;
    if url.query().is_some() {
        return Err("a base URL has no query; remove `?` and what follows it".to_owned());
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

/// An `http` or `https` URL without credentials. Errors never repeat the text, which might hold some.
pub(super) fn http_url(text: &str) -> Result<Url, String> {
    const FORM: &str = "write http://HOST:PORT/PATH or https://HOST/PATH";
    let url = Url::parse(text.trim()).map_err(|error| format!("not a URL ({error}); {FORM}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme `{}` is not supported; {FORM}",
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
        return Err("the URL has a fragment; remove `#` and what follows it".to_owned());
    }
    Ok(url)
}

/// The kind of a model server; none for `auto`.
pub(super) fn upstream_kind(text: &str) -> Result<Option<ServerKind>, String> {
    if text == AUTO {
        return Ok(None);
    }
    let read: Result<_, serde::de::value::Error> =
        ServerKind::deserialize(text.into_deserializer());
    read.map(Some)
        .map_err(|error| format!("{error}, or `{AUTO}`"))
}

pub(super) fn upstream_kind_text(kind: Option<ServerKind>) -> String {
    kind.map_or_else(|| AUTO.to_owned(), |kind| kind.to_string())
}

/// Whether server-side tools may run.
pub(super) fn permission(text: &str) -> Result<Effect, String> {
    let found = Effect::WORDS.iter().find(|(word, _)| *word == text);
    let problem = || format!("`{text}` is not a permission; write auto, ask or deny");
    found.map(|(_, effect)| *effect).ok_or_else(problem)
}

/// The session store. Errors never repeat the text, which might hold a password.
pub(super) fn store(text: &str) -> Result<StoreUrl, String> {
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    match scheme {
        "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
            "" => Err("names no file; write sqlite:PATH, such as sqlite:loopwright.db".to_owned()),
            ":memory:" => Ok(StoreUrl::Memory),
            path => Ok(StoreUrl::Sqlite(path.into())),
        },
        "memory" if rest.is_empty() || rest == "//" => Ok(StoreUrl::Memory),
        "postgres" | "postgresql" => PostgresUrl::parse(text).map(StoreUrl::Postgres),
        _ => Err("not a session store; write sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or memory:".to_owned()),
    }
}

/// The text of a session store.
pub(super) fn store_text(store: &StoreUrl) -> String {
    match store {
        StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUrl::Memory => "memory:".to_owned(),
        StoreUrl::Postgres(url) => url.location().to_owned(),
    }
}

/// The location of the contents of files.
#[derive(Debug, Clone)]
pub(super) enum FilesPlace {
    Directory(PathBuf),
    Bucket(BucketUrl),
}

/// A directory, or an address in object storage.
pub(super) fn files_place(text: &str) -> Result<FilesPlace, String> {
    match text.split_once("://") {
        _ if text.is_empty() => Err(
            "names no directory; write a path, such as /var/lib/loopwright/files, or s3://bucket/prefix".to_owned(),
        ),
        Some(("s3", _)) if !cfg!(feature = "s3") => Err(needs_feature("s3")),
        Some(("s3", rest)) => BucketUrl::parse(rest).map(FilesPlace::Bucket),
        Some(_) => Err("is a URL of another kind than s3; write a path, or s3://bucket/prefix".to_owned()),
        None => Ok(FilesPlace::Directory(text.into())),
    }
}

/// What is wrong with a setting whose feature the program does not have.
pub(super) fn needs_feature(feature: &str) -> String {
    format!(
        "needs the feature `{feature}`, and this program was built without it; build it with `--features {feature}`, or remove \
         the setting"
    )
}

/// The text of a place for files.
pub(super) fn files_place_text(place: &FilesPlace) -> String {
    match place {
        FilesPlace::Directory(path) => path.display().to_string(),
        FilesPlace::Bucket(url) => url.to_string(),
    }
}

/// A directory that is used for one thing only.
pub(super) fn work_directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.file_name() {
        Some(_) => Ok(path),
        None => Err(format!(
            "`{text}` cannot be used for working files alone; write a path such as /var/lib/loopwright/work"
        )),
    }
}

/// The Python interpreter.
pub(super) fn interpreter(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err("names no interpreter; write a path, or a name such as python3".to_owned());
    }
    Ok(text.into())
}

/// The format of the log.
pub(super) fn log_format(text: &str) -> Result<Format, String> {
    match text {
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(format!("`{text}` is not a log format; write text or json")),
    }
}

/// The level of the log.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    let filter = telemetry::filter(text);
    filter.map_or_else(|error| Err(error.to_string()), |_| Ok(text.to_owned()))
}

/// A switch.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(format!("`{text}` is not a switch; write true or false")),
    }
}

/// A time as text: `500ms`, `30s`, `5m`, `12h`, `30d`, or a bare number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let refused = || {
        format!(
            "`{text}` is not a time; write seconds (30) or \"500ms\", \"30s\", \"5m\", \"12h\", \"30d\""
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
        Err(_) => Err(format!("{seconds} s is not a time; write 0 or more")),
    }
}

/// A size as text: `64KiB`, `32MiB`, `1GiB`, the decimal kB, MB and GB, or a bare number of bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let refused = || {
        format!("`{text}` is not a size; write bytes (1048576) or \"64KiB\", \"32MiB\", \"1GiB\"")
    };
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

/// What a tool does.
pub(super) fn description(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err(
            "is empty; say in a sentence what the tool does, because the model reads it".to_owned(),
        ),
        text => Ok(text.to_owned()),
    }
}

/// A SHA-256 as 64 hexadecimal digits.
pub(super) fn sha256(text: &str) -> Result<[u8; 32], String> {
    let refused = || "not a SHA-256; write its 64 hexadecimal digits".to_owned();
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
