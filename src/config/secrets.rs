//! Secrets: read from variables and files, never repeated in an error.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ::http::{HeaderMap, HeaderValue};
use secrecy::SecretString;

use super::file::Headers;
use super::input::{Input, Place};
use super::value::{HeaderText, Keeper};
use super::{ConfigError, Lookup, Origin, parse};

/// Largest file that is taken for a secret or a schema, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Headers whose literal values are kept out of debug output, too.
const SECRET_HEADERS: [&str; 5] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
];

/// The secret under `<name>_env` or `<name>_file`, if one of the keys is given.
pub(super) fn secret(
    input: &Input<'_>,
    place: &Place,
    name: &str,
    keeper: &Keeper,
) -> Result<Option<SecretString>, ConfigError> {
    let file_place = place.key(&format!("{name}_file"));
    let env_place = place.key(&format!("{name}_env"));
    match (&keeper.env, &keeper.file) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(file_place.error("a secret comes from a variable or a file; take one key away"))
        }
        (Some(variable), None) => {
            env_place.check(parse::variable_name(variable))?;
            from_variable(input.env, variable, env_place.origin()).map(|text| Some(text.into()))
        }
        (None, Some(path)) => from_file(path, &file_place).map(|text| Some(text.into())),
    }
}

/// The value of a variable without the white space around it.
pub(super) fn from_variable(
    env: Lookup<'_>,
    variable: &str,
    origin: Origin,
) -> Result<String, ConfigError> {
    match env(variable).as_deref().map(str::trim) {
        None | Some("") => Err(ConfigError::invalid(
            origin,
            format!("the environment variable {variable} is not set; set it to the secret"),
        )),
        Some(text) => Ok(text.to_owned()),
    }
}

/// The headers of a table.
pub(super) fn headers(
    input: &Input<'_>,
    place: &Place,
    given: &Headers,
) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, text) in given {
        let place = place.key(name);
        let name = place.check(parse::header_name(name))?;
        let mut value = header_value(input, &place, text)?;
        if SECRET_HEADERS.contains(&name.as_str()) {
            value.set_sensitive(true);
        }
        if headers.insert(name, value).is_some() {
            return Err(place.error("is given twice; header names know no upper and lower case"));
        }
    }
    Ok(headers)
}

fn header_value(
    input: &Input<'_>,
    place: &Place,
    text: &HeaderText,
) -> Result<HeaderValue, ConfigError> {
    let kept = match text {
        HeaderText::Literal(text) => return place.check(parse::header_value(text)),
        HeaderText::Kept(Keeper {
            env: Some(variable),
            file: None,
        }) => {
            place.check(parse::variable_name(variable))?;
            from_variable(input.env, variable, place.origin())?
        }
        HeaderText::Kept(Keeper {
            env: None,
            file: Some(path),
        }) => from_file(path, place)?,
        HeaderText::Kept(_) => {
            return Err(place.error("write a text, { env = \"NAME\" } or { file = \"PATH\" }"));
        }
    };
    let mut value = place.check(parse::header_value(&kept))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The text of a small file without the white space around it; refuses an empty one.
pub(super) fn from_file(path: &Path, place: &Place) -> Result<String, ConfigError> {
    let text = read(path).map_err(|cause| ConfigError::Unreadable {
        origin: place.origin(),
        path: path.to_owned(),
        cause,
    })?;
    match text.trim() {
        "" => Err(place.error(format!("{} is empty", path.display()))),
        text => Ok(text.to_owned()),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read <= MAX_FILE_BYTES) {
        Ok(text)
    } else {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is larger than 1 MiB",
        ))
    }
}
