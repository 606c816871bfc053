//! The settings of an MCP server with a URL.

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, HeaderValue};
use url::Url;

use super::Place;
use crate::config::file::mcp::{McpKind, McpOAuthSection, McpServerSection};
use crate::config::{ConfigError, names, parse};
use tools::settings::mcp::{HttpKind, McpEndpoint, McpOAuth};

impl Place<'_, '_> {
    pub(super) fn endpoint(
        &self,
        url: &str,
        section: &McpServerSection,
    ) -> Result<McpEndpoint, ConfigError> {
        if !section.args.0.is_empty() || !section.env.is_empty() || section.cwd.is_some() {
            let problem =
                "a server with a `url` is not started here; remove `args`, `env` and `cwd`";
            return Err(self.error("url", problem));
        }
        let text = self.expanded("url", url)?;
        let url: Url = parse::http_url(&text).map_err(|problem| self.error("url", problem))?;
        let mut headers = HeaderMap::new();
        for (name, text) in &section.headers {
            let member = format!("headers.{name}");
            let refused = |problem| self.error(&member, problem);
            let name = names::header_name(name).map_err(refused)?;
            let value = self.header(&member, &self.text(&member, text)?)?;
            headers.insert(name, value);
        }
        if let Some(token) = &section.bearer_token {
            let member = "bearer_token";
            let token = self.text(member, token)?;
            let value = self.header(member, &format!("Bearer {}", token.trim()))?;
            if headers.insert(AUTHORIZATION, value).is_some() {
                let problem = "`authorization` is given as a header as well; remove one of the two";
                return Err(self.error(member, problem));
            }
        }
        let oauth = section.oauth.as_ref();
        let oauth = oauth.map(|oauth| self.oauth(oauth)).transpose()?;
        if oauth.is_some() && headers.contains_key(AUTHORIZATION) {
            let problem = "an authorization is given as well; remove one of the two";
            return Err(self.error("oauth", problem));
        }
        Ok(McpEndpoint {
            url,
            headers,
            kind: match section.kind {
                Some(McpKind::Sse) => HttpKind::Sse,
                Some(McpKind::Stdio | McpKind::Http) | None => HttpKind::Any,
            },
            oauth,
        })
    }

    fn oauth(&self, section: &McpOAuthSection) -> Result<McpOAuth, ConfigError> {
        let text = |member: &str, text: &Option<String>| {
            let member = format!("oauth.{member}");
            let text = text.as_deref().filter(|text| !text.trim().is_empty());
            text.map(|text| self.expanded(&member, text)).transpose()
        };
        let missing = |member: &str| self.error(&format!("oauth.{member}"), "is missing; write it");
        let client_id =
            text("client_id", &section.client_id)?.ok_or_else(|| missing("client_id"))?;
        let secret = section.client_secret.as_ref();
        let secret = secret.ok_or_else(|| missing("client_secret"))?;
        let client_secret = self.text("oauth.client_secret", secret)?;
        if client_secret.trim().is_empty() {
            return Err(missing("client_secret"));
        }
        let token_url = text("token_url", &section.token_url)?;
        let token_url = token_url.map(|url| {
            let url = parse::http_url(&url);
            url.map_err(|problem| self.error("oauth.token_url", problem))
        });
        let mut scopes = section.scopes.iter();
        let is_scope = |scope: &String| {
            !scope.is_empty()
                && scope
                    .bytes()
                    .all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
        };
        match scopes.all(is_scope) {
            false => Err(self.error(
                "oauth.scopes",
                "holds what is no scope; write one name an entry",
            )),
            true => Ok(McpOAuth {
                client_id,
                client_secret: client_secret.trim().to_owned().into(),
                scopes: section.scopes.clone(),
                token_url: token_url.transpose()?,
            }),
        }
    }

    /// The value of a header, which may be a secret.
    fn header(&self, member: &str, text: &str) -> Result<HeaderValue, ConfigError> {
        let value = names::header_value(text);
        let mut value = value.map_err(|problem| self.error(member, problem))?;
        value.set_sensitive(true);
        Ok(value)
    }
}
