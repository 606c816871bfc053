//! Types of values in the file that TOML itself does not have.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::parse;

/// A time: a number of seconds, or a text with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seconds(pub(super) Duration);

/// A size: a number of bytes, or a text with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(u64);

/// A whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Whole(u64);

/// The value of a header: a text, or where the value is kept.
#[derive(Debug, Clone)]
pub(super) enum HeaderText {
    Literal(String),
    Kept(Keeper),
}

/// Where a secret is kept; exactly one of the two.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Keeper {
    pub(super) env: Option<String>,
    pub(super) file: Option<PathBuf>,
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl From<Whole> for u64 {
    fn from(number: Whole) -> Self {
        number.0
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SecondsVisitor;
        impl Visitor<'_> for SecondsVisitor {
            type Value = Seconds;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of seconds, or a text such as \"500ms\", \"30s\", \"5m\", \"12h\" or \"30d\"")
            }

            fn visit_i64<E: Error>(self, seconds: i64) -> Result<Seconds, E> {
                self.visit_str(&seconds.to_string())
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<Seconds, E> {
                parse::seconds(seconds).map(Seconds).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Seconds, E> {
                parse::duration(text).map(Seconds).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SecondsVisitor)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number of bytes, or a text such as \"64KiB\" or \"32MiB\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                parse::size(text).map(Size).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;
        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a whole number, 0 or more")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
                u64::try_from(number).map(Whole).map_err(|_| {
                    E::custom(format!(
                        "{number} is negative; write a whole number, 0 or more"
                    ))
                })
            }
        }
        deserializer.deserialize_any(WholeVisitor)
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
                Ok(HeaderText::Literal(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderText, A::Error> {
                Keeper::deserialize(MapAccessDeserializer::new(map)).map(HeaderText::Kept)
            }
        }
        deserializer.deserialize_any(HeaderVisitor)
    }
}
