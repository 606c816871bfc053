//! The settings of the storage of files.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use net::CaCertificates;

/// The location of the contents of files.
#[derive(Debug, Clone)]
pub enum BlobLocation {
    /// A directory.
    Directory(PathBuf),
    /// Object storage.
    Bucket(BucketSettings),
}

/// The address of files in object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    pub(super) bucket: String,
    /// The beginning of every key, without slashes around it; may be empty.
    pub(super) prefix: String,
}

/// Object storage and how to get at it.
#[derive(Debug, Clone)]
pub struct BucketSettings {
    /// The address.
    pub url: BucketUrl,
    /// The variables that are set, by name.
    pub variables: Vec<(&'static str, SecretString)>,
    /// Whether the endpoint is reached without TLS.
    pub plain_http: bool,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

/// The environment variables that are read, with the meaning that they have for Amazon's own tools.
pub(crate) const AWS_VARIABLES: [&str; 19] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_SSE_BUCKET_KEY_ENABLED",
];

impl BucketUrl {
    /// Reads the part of an address after `s3://`.
    ///
    /// # Errors
    /// What is wrong with it and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let prefix = prefix.trim_end_matches('/');
        let in_bucket = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
        };
        if bucket.len() < 3 || bucket.len() > 63 || !bucket.bytes().all(in_bucket) {
            return Err(
                "has no valid name of a bucket (3 to 63 of a-z, 0-9, - and .); write s3://bucket/prefix"
                    .to_owned(),
            );
        }
        let in_segment =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'=');
        let is_segment = |segment: &str| {
            !segment.is_empty()
                && segment.bytes().all(in_segment)
                && segment.bytes().any(|byte| byte != b'.')
        };
        if !prefix.is_empty() && !prefix.split('/').all(is_segment) {
            return Err(
                "has a prefix with other characters than A-Z, a-z, 0-9, -, ., _, = and single slashes; \
                 write s3://bucket/prefix"
                    .to_owned(),
            );
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }
}

impl BucketSettings {
    /// The settings for a bucket, with the variables of the environment.
    ///
    /// # Errors
    /// Which variable is wrong, and the remedy. No value is repeated.
    pub fn new(url: BucketUrl, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let given = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let (id, secret) = (given("AWS_ACCESS_KEY_ID"), given("AWS_SECRET_ACCESS_KEY"));
        if id.is_some() != secret.is_some() {
            return Err(
                "object storage needs both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and one of them is not set; \
                 set both, or none to use the role of the machine"
                    .to_owned(),
            );
        }
        let mut plain_http = false;
        for name in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
            if let Some(text) = given(name) {
                plain_http = is_plain_http(&text).map_err(|problem| format!("{name} {problem}"))?;
            }
        }
        let set = |name: &&'static str| Some((*name, given(name)?.trim().to_owned().into()));
        let variables = AWS_VARIABLES.iter().filter_map(set).collect();
        Ok(Self {
            url,
            variables,
            plain_http,
            certificates: CaCertificates::default(),
        })
    }

    /// Also trusts these authorities.
    pub fn trusting(self, certificates: CaCertificates) -> Self {
        Self {
            certificates,
            ..self
        }
    }
}

/// Whether an endpoint is reached without TLS.
fn is_plain_http(endpoint: &str) -> Result<bool, &'static str> {
    let url = Url::parse(endpoint.trim())
        .map_err(|_| "is not a URL; write one such as https://storage.corp:9000")?;
    let is_origin = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    match url.scheme() {
        _ if !is_origin => Err("holds a user, a password or a query; write a URL without them"),
        "https" => Ok(false),
        "http" => Ok(true),
        _ => Err("is not an http or https URL; write one such as https://storage.corp:9000"),
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, prefix } = self;
        match prefix.as_str() {
            "" => write!(formatter, "s3://{bucket}"),
            prefix => write!(formatter, "s3://{bucket}/{prefix}"),
        }
    }
}

impl fmt::Display for BlobLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(formatter, "the directory {}", path.display()),
            Self::Bucket(settings) => settings.url.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_buckets_are_read_and_shown() {
        for (text, shown) in [
            ("files", "s3://files"),
            ("files/", "s3://files"),
            ("my.files-1/a/b_c=1/", "s3://my.files-1/a/b_c=1"),
        ] {
            assert_eq!(BucketUrl::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "ab",
            "Files",
            "a_b_c",
            "files//a",
            "files/../a",
            "files/a?b",
            "files/a b",
        ] {
            let problem = BucketUrl::parse(wrong).unwrap_err();
            assert!(
                problem.contains("write s3://bucket/prefix"),
                "{wrong}: {problem}"
            );
        }
    }

    #[test]
    fn credentials_come_in_pairs_and_endpoints_are_urls() {
        let new = |variables: &[(&str, &str)]| {
            let url = BucketUrl::parse("files/a").unwrap();
            let find = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            BucketSettings::new(url, &find)
        };
        let settings = new(&[
            ("AWS_ACCESS_KEY_ID", "id-1"),
            ("AWS_SECRET_ACCESS_KEY", "very-secret"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
            ("HOME", "/root"),
        ])
        .unwrap();
        assert!(settings.plain_http);
        assert_eq!(settings.variables.len(), 3);
        let shown = format!("{settings:?}");
        assert!(
            !shown.contains("very-secret") && !shown.contains("id-1"),
            "{shown}"
        );
        for (variables, word) in [
            (
                &[("AWS_ACCESS_KEY_ID", "id-1")][..],
                "AWS_SECRET_ACCESS_KEY",
            ),
            (
                &[("AWS_ENDPOINT_URL", "storage:9000")],
                "AWS_ENDPOINT_URL is not",
            ),
            (
                &[("AWS_ENDPOINT_URL_S3", "http://a:pass@h")],
                "AWS_ENDPOINT_URL_S3 holds",
            ),
        ] {
            let problem = new(variables).unwrap_err();
            assert!(problem.contains(word), "{problem}");
            assert!(
                !problem.contains("pass@") && !problem.contains("id-1"),
                "{problem}"
            );
        }
    }
}
