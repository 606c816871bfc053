//! The values of settings that are secret, so that they can be hidden elsewhere.
//!
//! The functions that read secrets also record them, so a new secret that is read with them is hidden too.

use std::cell::RefCell;

use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use policy::redact::Redactor;

/// The last words of names that hold a secret, or the ends of these words.
const SECRET_ENDS: [&str; 11] = [
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "key",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "token",
];
/// Last words of such names as a whole.
const SECRET_WORDS: [&str; 2] = ["auth", "pat"];

/// The secrets that were read so far. They do not print.
#[derive(Debug, Default)]
pub(super) struct SecretValues(RefCell<Vec<SecretString>>);

impl SecretValues {
    /// Records a secret. Of `Bearer TOKEN` and the like, the token counts as well.
    pub(super) fn add(&self, text: &str) {
        let text = text.trim();
        let token = text.split_once(' ').filter(|(scheme, token)| {
            scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) && !token.contains(' ')
        });
        let token = token.map(|(_, token)| token);
        let found = [Some(text), token].into_iter().flatten();
        self.0.borrow_mut().extend(found.map(Into::into));
    }

    /// Records the secret in the value of a variable, a header, a parameter or a key: the whole value if the name marks
    /// it as secret, or the secret parts of a URL.
    pub(super) fn add_named(&self, name: &str, text: &str) {
        if is_secret_name(name) {
            self.add(text);
        }
        if text.contains("://")
            && let Ok(url) = Url::parse(text)
        {
            self.add_parts(&url);
        }
    }

    /// Records the secrets in a URL: its password, and parameters whose names mark them as secret.
    pub(super) fn add_parts(&self, url: &Url) {
        if let Some(password) = url.password() {
            self.add(password);
            self.add(&percent_decode_str(password).decode_utf8_lossy());
        }
        for (_, value) in url.query_pairs().filter(|(name, _)| is_secret_name(name)) {
            self.add(&value);
        }
    }

    /// What hides them.
    pub(super) fn redactor(&self) -> Redactor {
        let secrets = self.0.borrow();
        Redactor::new(secrets.iter().map(ExposeSecret::expose_secret))
    }
}

/// Whether the last word of a name says that its value is a secret. Others are places, modes and names as a rule.
fn is_secret_name(name: &str) -> bool {
    let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric());
    let last = words.next().unwrap_or_default().to_ascii_lowercase();
    SECRET_WORDS.contains(&last.as_str()) || SECRET_ENDS.iter().any(|end| last.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_secret() {
        for name in [
            "GITHUB_TOKEN",
            "PGPASSWORD",
            "env.AWS_SECRET_ACCESS_KEY",
            "headers.X-Api-Key",
            "apiKey",
            "GITHUB_PAT",
            "oauth.client_secret",
            "proxy-authorization",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "HOME",
            "TOKEN_URL",
            "KEY_FILE",
            "AWS_ACCESS_KEY_ID",
            "args[0]",
            "oauth.client_id",
            "AUTHOR",
            "compat",
            "",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_hidden_and_not_printed() {
        let secrets = SecretValues::default();
        secrets.add(" Bearer token-of-mine\n");
        secrets.add_named("HOME", "/home/somebody");
        secrets.add_named(
            "URL",
            "https://u:pass%2Fword-1@h/?api_key=of-the-query&page=of-the-book",
        );
        secrets.add_named("x-api-key", "of-a-header");
        assert!(!format!("{secrets:?}").contains("of-mine"));
        let redactor = secrets.redactor();
        for text in [
            "token-of-mine",
            "Bearer token-of-mine",
            "pass/word-1",
            "pass%2Fword-1",
            "of-the-query",
            "of-a-header",
        ] {
            assert_eq!(redactor.redact(text), "[hidden]", "{text}");
        }
        for text in ["/home/somebody", "of-the-book", "Bearer"] {
            assert_eq!(redactor.redact(text), text);
        }
    }
}
