//! Providers over real sockets, against servers that speak their APIs as documented.

mod answers;
mod compressed;
mod failures;
mod requests;

use super::fake::{self, Fake, Reply};
use super::{Exchange, Hit, Lookup, Problem, Provider, ProviderError, Texts};
use crate::web::settings::{ProviderKind, Settings};
use crate::web::{DomainFilter, Freshness, Location};

/// A file of `tests/web/providers`.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/web/providers/",
            $name
        ))
    };
}
use fixture;

static ANYWHERE: DomainFilter = DomainFilter {
    allowed: Vec::new(),
    blocked: Vec::new(),
};

const LOOKUP: Lookup<'static> = Lookup {
    query: "harbour seals",
    max_results: 10,
    freshness: None,
    domains: &ANYWHERE,
    location: None,
};

/// An answer with hits.
fn good(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::SearXng => fixture!("searxng.json"),
        ProviderKind::Brave => fixture!("brave.json"),
        ProviderKind::Tavily => fixture!("tavily.json"),
        ProviderKind::Exa => fixture!("exa.json"),
        ProviderKind::Serper => fixture!("serper.json"),
        ProviderKind::DuckDuckGo => fixture!("duckduckgo.html"),
    }
}

/// An answer without any.
fn empty(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::SearXng => fixture!("searxng_empty.json"),
        ProviderKind::Brave => fixture!("brave_empty.json"),
        ProviderKind::Tavily => fixture!("tavily_empty.json"),
        ProviderKind::Exa => fixture!("exa_empty.json"),
        ProviderKind::Serper => fixture!("serper_empty.json"),
        ProviderKind::DuckDuckGo => fixture!("duckduckgo_empty.html"),
    }
}

/// Asks a fake with settings of the test's own.
async fn ask_with(
    fake: &Fake,
    lookup: &Lookup<'_>,
    texts: Texts,
    change: impl FnOnce(&mut Settings),
) -> Result<Vec<Hit>, ProviderError> {
    let mut settings = fake::settings(vec![fake.settings()]);
    change(&mut settings);
    let provider = Provider::new(&settings.providers[0], texts).unwrap();
    let exchange = Exchange::new(&settings).unwrap();
    provider.search(&exchange, lookup).await
}

async fn ask(fake: &Fake) -> Result<Vec<Hit>, ProviderError> {
    ask_with(fake, &LOOKUP, Texts::Unwanted, |_| {}).await
}

/// What one provider makes of some replies, and how many requests that took.
async fn outcome(
    kind: ProviderKind,
    replies: impl IntoIterator<Item = Reply>,
) -> (Result<Vec<Hit>, Problem>, usize) {
    let fake = Fake::start(kind, replies).await;
    let outcome = ask(&fake).await.map_err(|error| error.problem);
    (outcome, fake.requests().len())
}
