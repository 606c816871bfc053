//! Tests of providers over real sockets, against servers with the documented APIs.

mod answers;
mod compressed;
mod failures;
mod requests;

use super::fake::{self, Fake, FakeReply};
use super::{
    Hit, PageTexts, Provider, ProviderClient, ProviderError, ProviderProblem, ProviderQuery,
};
use crate::settings::{ProviderKind, Settings};
use crate::{DomainFilter, Freshness, Location};

/// A file of `tests/web/providers`.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/web/providers/",
            $name
        ))
    };
}
use fixture;

static ANYWHERE: DomainFilter = DomainFilter {
    allowed: Vec::new(),
    blocked: Vec::new(),
};

const LOOKUP: ProviderQuery<'static> = ProviderQuery {
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

/// Asks a fake with changed settings.
async fn ask_with(
    fake: &Fake,
    lookup: &ProviderQuery<'_>,
    texts: PageTexts,
    change: impl FnOnce(&mut Settings),
) -> Result<Vec<Hit>, ProviderError> {
    let mut settings = fake::settings(vec![fake.settings()]);
    change(&mut settings);
    let provider = Provider::new(&settings.providers[0], texts).unwrap();
    let exchange = ProviderClient::new(&settings).unwrap();
    provider.search(&exchange, lookup).await
}

async fn ask(fake: &Fake) -> Result<Vec<Hit>, ProviderError> {
    ask_with(fake, &LOOKUP, PageTexts::Unwanted, |_| {}).await
}

/// The outcome of a search for some replies, and the number of requests.
async fn outcome(
    kind: ProviderKind,
    replies: impl IntoIterator<Item = FakeReply>,
) -> (Result<Vec<Hit>, ProviderProblem>, usize) {
    let fake = Fake::start(kind, replies).await;
    let outcome = ask(&fake).await.map_err(|error| error.problem);
    (outcome, fake.requests().len())
}
