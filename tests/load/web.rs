//! What a page of a web search costs: fetching it, reading it and ranking it, beside the parse alone and the fetch alone.
//!
//! Runs the library in this process, with its parsing processes beside it, against a search provider and pages on
//! addresses of the loopback network: one for each page, as results of a search are on different hosts.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};
use tokio_util::task::TaskTracker;
use web::{
    DomainFilter, RawPage, SearchQuery, Web, extract,
    fetch::Fetcher,
    settings::{
        ExtractorSettings, FetchSettings, ProviderKind, ProviderSettings, SearchSettings, Settings,
    },
};

use crate::{figures::ratio, report::Report, tables};

/// How many pages a search reads.
const COUNTS: [usize; 2] = [10, 100];
/// Most time for one of them all.
const LIMIT: Duration = Duration::from_secs(120);
/// Longest head of a request.
const MAX_HEAD: usize = 16 * 1024;
/// Room for the passages, as a search with a context of middle size has it.
const BUDGET: usize = 8000;
/// Pages that are served in turn, and the question that a search asks.
const PAGES: [&str; 6] = ["long", "news", "forum", "wiki", "docs", "qa"];
const QUESTION: &str = "why does the keeper of the lighthouse write a log in winter";

/// What all figures of the web share.
#[derive(Debug)]
pub(crate) struct WebBench<'a> {
    /// The loopwright binary, for the parsing processes.
    pub(crate) program: &'a Path,
    /// How often everything is repeated.
    pub(crate) repeats: usize,
    /// Where the processes run, as the table calls it.
    pub(crate) placement: &'static str,
}

/// Seconds that each run took.
#[derive(Debug, Default)]
struct Runs(Vec<f64>);

/// Pages and a search provider, in a thread of their own; dropping it ends the thread.
#[derive(Debug)]
struct Sites {
    provider: SocketAddr,
    urls: Vec<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl WebBench<'_> {
    /// Fills the table.
    pub(crate) async fn run(&self, report: &mut Report) {
        for count in COUNTS {
            if let Err(error) = self.pages(count, report).await {
                report.remark(format!("web, {count} pages: {error:#}"));
            }
        }
    }

    async fn pages(&self, count: usize, report: &mut Report) -> Result<()> {
        let bodies = bodies()?;
        let sites = Sites::start(count, &bodies)?;
        let settings = self.settings(sites.provider)?;
        let tasks = TaskTracker::new();
        let web = Web::new(&settings, &tasks)?;
        let fetcher = Fetcher::new(&settings.fetch)?;
        let domains = Arc::new(DomainFilter::default());
        let pages = sites.urls.iter().zip(bodies.iter().cycle());
        let raw: Vec<RawPage> = pages
            .map(|(url, body)| RawPage {
                url: url.clone(),
                content_type: Some("text/html; charset=utf-8".to_owned()),
                body: body.clone(),
                cut: false,
            })
            .collect();
        let [mut parse, mut fetch, mut whole] = <[Runs; 3]>::default();
        // The first run of each starts processes and fetches `robots.txt`.
        for run in 0..=self.repeats {
            let began = Instant::now();
            for page in &raw {
                extract(page).context("a page cannot be read")?;
            }
            parse.add(run, began);
            let began = Instant::now();
            let fetched = sites.urls.iter().map(|url| fetcher.get(url, &domains));
            for page in join_all(fetched).await {
                ensure!(!page?.body.is_empty(), "a page is empty");
            }
            fetch.add(run, began);
            let query = SearchQuery {
                queries: vec![QUESTION.to_owned()],
                max_results: count,
                freshness: None,
                domains: domains.clone(),
                location: None,
                budget: BUDGET,
                owner: protocol::ids::Owner::everybody(),
            };
            let began = Instant::now();
            let findings = web.search(&query).await?;
            whole.add(run, began);
            // A figure for pages that were not read would look splendid.
            ensure!(
                !findings.results.is_empty() && findings.notices.is_empty(),
                "the search went wrong: {:?}",
                findings.notices
            );
        }
        web.close();
        let per_page = |seconds: Option<f64>| Some(seconds? / count as f64 * 1e3);
        let pages = count.to_string();
        for (name, runs) in [
            ("parse alone, in this process", &parse),
            ("fetch alone", &fetch),
            ("search: fetch, extract, rank", &whole),
        ] {
            let figures = [
                per_page(runs.median()),
                per_page(runs.least()),
                runs.median().map(|seconds| seconds * 1e3),
                ratio(runs.median(), parse.median()),
                ratio(runs.median(), fetch.median()),
                ratio(runs.least(), parse.least()),
            ];
            report.row(&tables::PAGES, &[self.placement, &pages, name], &figures);
        }
        Ok(())
    }

    /// As in production, but for the pause between requests to one host: every run asks the same hosts.
    fn settings(&self, provider: SocketAddr) -> Result<Settings> {
        Ok(Settings {
            providers: vec![ProviderSettings {
                kind: ProviderKind::SearXng,
                url: Some(format!("http://{provider}").parse()?),
                api_key: None,
                requests_per_minute: 60_000,
            }],
            search: SearchSettings {
                timeout: Duration::from_secs(10),
                max_retries: 0,
                max_results: 100,
                max_pages: 100,
                pages_timeout: LIMIT,
                cache_ttl: Duration::ZERO,
                cache_bytes: 0,
            },
            fetch: FetchSettings {
                user_agent: "loopwright-load/1".to_owned(),
                connect_timeout: Duration::from_secs(5),
                timeout: LIMIT,
                max_bytes: 8 << 20,
                max_redirects: 5,
                ports: vec![80, 443],
                allow: Vec::new(),
                block: Vec::new(),
                private: vec!["127.0.0.*".to_owned()],
                robots: true,
                per_host: 2,
                host_interval: Duration::ZERO,
            },
            extractor: ExtractorSettings {
                program: self.program.to_owned(),
                processes: 2,
                timeout: LIMIT,
                memory: 512 << 20,
            },
            embeddings: None,
            certificates: upstream::settings::CaCertificates::default(),
        })
    }
}

impl Runs {
    /// Adds a run but for the first, which warms up.
    fn add(&mut self, run: usize, began: Instant) {
        if run > 0 {
            self.0.push(began.elapsed().as_secs_f64());
        }
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    fn least(&self) -> Option<f64> {
        self.0.iter().copied().min_by(f64::total_cmp)
    }
}

/// The saved pages of the reader's tests.
fn bodies() -> Result<Vec<Bytes>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web/pages");
    let read = |name: &&str| {
        let path = folder.join(format!("{name}.html"));
        let bytes = std::fs::read(&path);
        Ok(bytes
            .with_context(|| format!("reading {}", path.display()))?
            .into())
    };
    PAGES.iter().map(read).collect()
}

impl Sites {
    fn start(count: usize, bodies: &[Bytes]) -> Result<Self> {
        let bind = |host: u8| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), 0))?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        };
        let provider = bind(1)?;
        let address = provider.local_addr()?;
        let mut listeners = Vec::new();
        let (mut urls, mut results) = (Vec::new(), Vec::new());
        for (number, body) in (0..count).zip(bodies.iter().cycle()) {
            let listener = bind(u8::try_from(number + 2)?)?;
            let url = format!("http://{}/page", listener.local_addr()?);
            results
                .push(json!({"url": url, "title": format!("Page {number}"), "content": "A page."}));
            urls.push(url);
            listeners.push((listener, body.clone(), "text/html; charset=utf-8"));
        }
        let answer = json!({"results": results, "unresponsive_engines": []}).to_string();
        listeners.push((provider, answer.into(), "application/json"));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new()
            .name("sites".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let mut serving = JoinSet::new();
                    for (listener, body, kind) in listeners {
                        serving.spawn(serve(listener, body, kind));
                    }
                    stopped.await.ok();
                });
            })?;
        Ok(Self {
            provider: address,
            urls,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Answers every request on one address with the same body, but for `robots.txt`, which there is none of.
async fn serve(listener: std::net::TcpListener, body: Bytes, kind: &'static str) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let head = |status: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n")
    };
    let mut found = head("200 OK", body.len()).into_bytes();
    found.extend_from_slice(&body);
    let answers = Arc::new((found, head("404 Not SearchResult", 0).into_bytes()));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn(converse(stream, answers.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(mut stream: TcpStream, answers: Arc<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    loop {
        while memchr::memmem::find(&request, b"\r\n\r\n").is_none() {
            ensure!(request.len() < MAX_HEAD, "a head is too long");
            let read = stream.read_buf(&mut request).await?;
            ensure!(read > 0, "the connection was closed");
        }
        let (found, missing) = &*answers;
        let answer = match request.starts_with(b"GET /robots.txt ") {
            true => missing,
            false => found,
        };
        stream.write_all(answer).await?;
        request.clear();
    }
}
