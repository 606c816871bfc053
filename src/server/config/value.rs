//! Types of the values in the file that are not plain texts. Each has its default and its bounds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::parse;
use super::text::{NamePattern, VariableName};
use sandbox::settings::Tier;

/// Unit of sizes: a kibibyte.
pub(super) const KIB: u64 = 1024;
/// Unit of sizes: a mebibyte.
pub(super) const MIB: u64 = 1024 * KIB;
/// Unit of sizes: a gibibyte.
pub(super) const GIB: u64 = 1024 * MIB;
/// Unit of times: a minute, in milliseconds.
pub(super) const MINUTE_MS: u64 = 60_000;
/// Unit of times: a day, in milliseconds.
pub(super) const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

const WHOLE_NUMBER: &str = "a whole number, 0 or more";
const SIZE: &str = "a number of bytes, or a text such as \"64KiB\" or \"32MiB\"";
const TIME: &str =
    "a number of seconds, or a text such as \"500ms\", \"30s\", \"5m\", \"12h\" or \"30d\"";

/// A whole number from `MIN` to `MAX`.
pub(super) type Count<
    const MIN: u64,
    const DEFAULT: u64 = 0,
    const MAX: u64 = { u32::MAX as u64 },
> = Number<MIN, DEFAULT, MAX, false>;

/// A number of bytes from `MIN` to `MAX`, which may be written as a text with a unit.
pub(super) type ByteSize<
    const MIN: u64,
    const DEFAULT: u64 = 0,
    const MAX: u64 = { i64::MAX as u64 },
> = Number<MIN, DEFAULT, MAX, true>;

/// See [`Count`] and [`ByteSize`].
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(transparent)]
pub(super) struct Number<const MIN: u64, const DEFAULT: u64, const MAX: u64, const BYTES: bool>(
    u64,
);

/// A time: a number of seconds, or a text with a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seconds<const DEFAULT_MS: u64 = 0, const MAY_BE_ZERO: bool = false>(Duration);

/// `true` or `false`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Switch<const DEFAULT: bool>(bool);

/// Headers by name.
pub(super) type Headers = BTreeMap<String, HeaderText>;

/// The value of a header: a text, or where its secret is.
#[derive(Debug, Clone)]
pub(super) enum HeaderText {
    Literal(SecretString),
    Secret(SecretRef),
}

/// Where a secret is: in a variable or in a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretRef {
    pub(super) env: Option<VariableName>,
    pub(super) file: Option<PathBuf>,
}

/// A program and its arguments, which may hold a secret and are not shown.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct CommandLine(pub(super) Vec<String>);

/// The weakest isolation that is accepted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Tier", into = "Tier")]
pub(super) struct RequiredTier(Tier);

/// First and last user id.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct UserIds((UserId, UserId));

/// Ids below 1000 belong to the system, and the last one of the type stands for no user.
type UserId = Count<1000, 0, { u32::MAX as u64 - 1 }>;

/// Ports of web servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Ports(Vec<Count<1, 0, 65_535>>);

/// Name patterns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct NamePatterns(pub(super) Vec<NamePattern>);

impl<const MIN: u64, const DEFAULT: u64, const MAX: u64, const BYTES: bool>
    Number<MIN, DEFAULT, MAX, BYTES>
{
    const FORM: &str = if BYTES { SIZE } else { WHOLE_NUMBER };

    /// A default that the program works out.
    pub(super) fn computed(number: impl TryInto<u64>) -> Self {
        Self(number.try_into().unwrap_or(MAX).clamp(MIN, MAX))
    }

    fn read(scalar: Scalar) -> Result<Self, String> {
        let unit = if BYTES { " bytes" } else { "" };
        let number = match scalar {
            Scalar::Integer(number) => u64::try_from(number).map_err(|_| {
                format!("{number} is negative; write a whole number, {MIN} or more")
            })?,
            Scalar::Text(text) if BYTES => parse::size(&text)?,
            Scalar::Text(text) => return Err(wrong_type(Unexpected::Str(&text), Self::FORM)),
            Scalar::Float(number) => {
                return Err(wrong_type(Unexpected::Float(number), Self::FORM));
            }
        };
        if number < MIN {
            return Err(format!("{number}{unit} is too small; write {MIN} or more"));
        }
        if number > MAX {
            return Err(format!("{number}{unit} is too large; write {MAX} or less"));
        }
        Ok(Self(number))
    }
}

impl<const MIN: u64, const DEFAULT: u64, const MAX: u64, const BYTES: bool> Default
    for Number<MIN, DEFAULT, MAX, BYTES>
{
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<'de, const MIN: u64, const DEFAULT: u64, const MAX: u64, const BYTES: bool> Deserialize<'de>
    for Number<MIN, DEFAULT, MAX, BYTES>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor {
            form: Self::FORM,
            read: Self::read,
        })
    }
}

/// Conversions of numbers; `MAX` guarantees that they lose nothing.
macro_rules! number_into {
    ($($integer:ty),*) => {$(
        impl<const MIN: u64, const DEFAULT: u64, const MAX: u64, const BYTES: bool>
            From<Number<MIN, DEFAULT, MAX, BYTES>> for $integer
        {
            fn from(number: Number<MIN, DEFAULT, MAX, BYTES>) -> Self {
                Self::try_from(number.0).unwrap_or(Self::MAX)
            }
        }
    )*};
}

number_into!(u16, u32, u64, usize);

impl<const DEFAULT_MS: u64, const MAY_BE_ZERO: bool> Default for Seconds<DEFAULT_MS, MAY_BE_ZERO> {
    fn default() -> Self {
        Self(Duration::from_millis(DEFAULT_MS))
    }
}

impl<'de, const DEFAULT_MS: u64, const MAY_BE_ZERO: bool> Deserialize<'de>
    for Seconds<DEFAULT_MS, MAY_BE_ZERO>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor {
            form: TIME,
            read: Self::read,
        })
    }
}

impl<const DEFAULT_MS: u64, const MAY_BE_ZERO: bool> Seconds<DEFAULT_MS, MAY_BE_ZERO> {
    fn read(scalar: Scalar) -> Result<Self, String> {
        let time = match scalar {
            Scalar::Integer(seconds) => parse::duration(&seconds.to_string()),
            Scalar::Float(seconds) => parse::seconds(seconds),
            Scalar::Text(text) => parse::duration(&text),
        }?;
        if time.is_zero() && !MAY_BE_ZERO {
            let remedy = "write a time such as 30, \"500ms\" or \"5m\"";
            return Err(format!("must be longer than 0; {remedy}"));
        }
        Ok(Self(time))
    }
}

impl<const DEFAULT_MS: u64, const MAY_BE_ZERO: bool> Serialize
    for Seconds<DEFAULT_MS, MAY_BE_ZERO>
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.subsec_nanos() {
            0 => serializer.serialize_u64(self.0.as_secs()),
            _ => serializer.serialize_f64(self.0.as_secs_f64()),
        }
    }
}

impl<const DEFAULT_MS: u64, const MAY_BE_ZERO: bool> From<Seconds<DEFAULT_MS, MAY_BE_ZERO>>
    for Duration
{
    fn from(time: Seconds<DEFAULT_MS, MAY_BE_ZERO>) -> Self {
        time.0
    }
}

impl<const DEFAULT: bool> Default for Switch<DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<const DEFAULT: bool> From<Switch<DEFAULT>> for bool {
    fn from(switch: Switch<DEFAULT>) -> Self {
        switch.0
    }
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = HeaderText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter
                    .write_str("a text, { env = \"NAME OF A VARIABLE\" } or { file = \"PATH\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HeaderText, E> {
                Ok(HeaderText::Literal(text.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderText, A::Error> {
                SecretRef::deserialize(MapAccessDeserializer::new(map)).map(HeaderText::Secret)
            }
        }
        deserializer.deserialize_any(HeaderVisitor)
    }
}

impl Serialize for HeaderText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Literal(_) => serializer.serialize_str("(not shown)"),
            Self::Secret(place) => place.serialize(serializer),
        }
    }
}

impl Serialize for CommandLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let arguments = |count| format!("({count} arguments, not shown)");
        match self.0.split_first() {
            None => serializer.collect_seq([""; 0]),
            Some((program, [])) => serializer.collect_seq([program]),
            Some((program, rest)) => serializer.collect_seq([program, &arguments(rest.len())]),
        }
    }
}

impl Default for RequiredTier {
    fn default() -> Self {
        Self(Tier::Basic)
    }
}

impl TryFrom<Tier> for RequiredTier {
    type Error = &'static str;

    fn try_from(tier: Tier) -> Result<Self, Self::Error> {
        match tier {
            Tier::External => Err(
                "`external` is the isolation by `command`, whose strength is not rated; write weak, basic, medium or strong",
            ),
            Tier::Weak | Tier::Basic | Tier::Medium | Tier::Strong => Ok(Self(tier)),
        }
    }
}

impl From<RequiredTier> for Tier {
    fn from(required: RequiredTier) -> Self {
        required.0
    }
}

impl Default for UserIds {
    /// Ids that distributions and container engines leave free.
    fn default() -> Self {
        Self((UserId::computed(60_100_u64), UserId::computed(60_999_u64)))
    }
}

impl From<UserIds> for (u32, u32) {
    fn from(UserIds((first, last)): UserIds) -> Self {
        (first.into(), last.into())
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self([80_u64, 443].map(Count::computed).into())
    }
}

impl From<Ports> for Vec<u16> {
    fn from(ports: Ports) -> Self {
        ports.0.into_iter().map(Into::into).collect()
    }
}

impl From<NamePatterns> for Vec<String> {
    fn from(patterns: NamePatterns) -> Self {
        patterns.0.into_iter().map(Into::into).collect()
    }
}

/// A number or a text.
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

/// Reads a value from a [`Scalar`]. The errors of `read` arise inside the visitor: only then do they have a position.
struct ScalarVisitor<T> {
    form: &'static str,
    read: fn(Scalar) -> Result<T, String>,
}

impl<T> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.form)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        (self.read)(Scalar::Integer(number)).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.read)(Scalar::Float(number)).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.read)(Scalar::Text(text.to_owned())).map_err(E::custom)
    }
}

fn wrong_type(found: Unexpected<'_>, form: &str) -> String {
    format!("invalid type: {found}, expected {form}")
}
