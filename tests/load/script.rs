//! The scripted upstream: a model and a webhook on one port, in a thread of the benchmark's own.
//!
//! The name of the model in a request says what is wanted (see [`Plan`]), so the script keeps no state between requests
//! and behaves the same whoever calls it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use memchr::memmem;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

use crate::{
    answers::{Answers, Form},
    process, soak,
    wire::Peer,
};

/// Between the first token of a [`Plan::FirstToken`] stream and its end, so that whoever waits for more before passing
/// it on is seen to wait.
const STALL: Duration = Duration::from_millis(4);

/// How long a stalled answer takes.
const FAULT_STALL: Duration = Duration::from_secs(1);

/// Between two tokens of a paced stream.
const PACE: Duration = Duration::from_millis(1);

/// The parts of a body that are searched: all but a long history lies within them.
const HEAD_BYTES: usize = 16 * 1024;
const TAIL_BYTES: usize = 64 * 1024;

/// Between two tokens of an open stream.
const OPEN_GAP: Duration = Duration::from_millis(500);

/// A running scripted upstream; dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct Script {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    counters: Arc<Counters>,
    /// The directory of its thread in `/proc`.
    account: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the name of the model asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// `load-plain`: a completion of about 500 bytes.
    Plain,
    /// `load-rounds-N`: N requests for the tool, told apart by the tool messages in the request, then text.
    Rounds(usize),
    /// `load-cells-N`: the same with the Python tool and the sum of two numbers.
    Cells(usize),
    /// `load-plots-N`: the same with a plot.
    Plots(usize),
    /// `load-burst-N`: a stream of N tokens, each written by itself, as fast as they are taken.
    Burst(usize),
    /// `load-paced-N`: the same with a pause after each token, so that every chunk travels alone.
    Paced(usize),
    /// `load-first-1`: a stream of one token that stalls before it ends.
    FirstToken,
    /// `load-flaky-N`: N requests for the tool where it is offered, then text; at random a fault instead.
    Flaky(usize),
    /// `load-open-N`: a stream of N slow tokens.
    Open(usize),
}

impl Plan {
    /// The model name that asks for this plan.
    pub(crate) fn model(self) -> String {
        match self {
            Self::Plain => "load-plain-1".to_owned(),
            Self::Rounds(rounds) => format!("load-rounds-{rounds}"),
            Self::Cells(rounds) => format!("load-cells-{rounds}"),
            Self::Plots(rounds) => format!("load-plots-{rounds}"),
            Self::Burst(tokens) => format!("load-burst-{tokens}"),
            Self::Paced(tokens) => format!("load-paced-{tokens}"),
            Self::FirstToken => "load-first-1".to_owned(),
            Self::Flaky(rounds) => format!("load-flaky-{rounds}"),
            Self::Open(tokens) => format!("load-open-{tokens}"),
        }
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let after = body.get(memmem::find(body, b"\"load-")? + 6..)?;
        let name = after.get(..memchr::memchr(b'"', after)?)?;
        let (kind, count) = std::str::from_utf8(name).ok()?.split_once('-')?;
        let count = count.parse().ok()?;
        match kind {
            "plain" => Some(Self::Plain),
            "rounds" => Some(Self::Rounds(count)),
            "cells" => Some(Self::Cells(count)),
            "plots" => Some(Self::Plots(count)),
            "burst" => Some(Self::Burst(count)),
            "paced" => Some(Self::Paced(count)),
            "first" => Some(Self::FirstToken),
            "flaky" => Some(Self::Flaky(count)),
            "open" => Some(Self::Open(count)),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    model: AtomicU64,
    tool: AtomicU64,
    /// The webhook fails at random.
    faulty: AtomicBool,
}

impl Counters {
    /// The fault of this call, which few have.
    fn fault(&self) -> Option<u64> {
        let calls = self.model.load(Ordering::Relaxed) + self.tool.load(Ordering::Relaxed);
        let chance = soak::next(soak::next(calls)) >> 33;
        chance.is_multiple_of(10).then_some(chance / 16)
    }
}

impl Script {
    /// Starts the script on a free port of the loopback interface.
    pub(crate) fn start() -> Result<Self> {
        let listener =
            std::net::TcpListener::bind("127.0.0.1:0").context("binding the scripted upstream")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the runtime of the scripted upstream")?;
        let counters = Arc::new(Counters::default());
        let counted = Arc::clone(&counters);
        let (stop, stopped) = oneshot::channel();
        let (tell, account) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("script".to_owned())
            .spawn(move || {
                // The start fails where nobody listens.
                let _ = tell.send(std::fs::read_link("/proc/thread-self"));
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener, counted) => {}
                        _ = stopped => {}
                    }
                });
            })
            .context("starting the thread of the scripted upstream")?;
        let account = account.recv().context("starting the scripted upstream")?;
        let account = account.context("finding the thread of the scripted upstream")?;
        Ok(Self {
            address,
            account: Path::new("/proc").join(account),
            counters,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Whether the webhook fails at random.
    pub(crate) fn set_faulty(&self, faulty: bool) {
        self.counters.faulty.store(faulty, Ordering::Relaxed);
    }

    /// CPU time of the script, in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        process::thread_seconds(&self.account)
    }

    /// Calls of the model and of the webhook so far.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (
            self.counters.model.load(Ordering::Relaxed),
            self.counters.tool.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has nothing to report; a panic in it has shown itself in the figures.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: std::net::TcpListener, counters: Arc<Counters>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let answers = Arc::new(Answers::new());
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(stream, Arc::clone(&answers), Arc::clone(&counters)));
    }
}

/// Serves one connection to its end. An error is the other side's leaving, which is how streams are meant to end here.
async fn serve(stream: TcpStream, answers: Arc<Answers>, counters: Arc<Counters>) -> Result<()> {
    let mut peer = Peer::new(stream)?;
    while let Some(length) = peer.head().await? {
        let route = Route::of(peer.first_line());
        let body = peer.whole(length).await?;
        match route {
            Route::Chat => {
                counters.model.fetch_add(1, Ordering::Relaxed);
                let [head, tail] = edges(body);
                let plan = Plan::parse(head).or_else(|| Plan::parse(tail));
                let form = Form::of(|text| {
                    memmem::find(head, text)
                        .or_else(|| memmem::find(tail, text))
                        .is_some()
                });
                let done = [head, tail]
                    .map(|part| memmem::find_iter(part, b"\"role\":\"tool\"").count())
                    .iter()
                    .sum();
                let plan =
                    plan.ok_or_else(|| anyhow!("the model's name is not one of the script's"))?;
                let offered = memmem::find(body, b"\"tools\":[").is_some();
                match plan {
                    Plan::Flaky(rounds) => {
                        let fault = counters.fault();
                        let asks = offered && done < rounds;
                        let answer = if asks {
                            answers.round(done, form)
                        } else {
                            answers.last(form)
                        };
                        answer_or_fail(&mut peer, &answers, answer, fault).await?;
                    }
                    _ => answer(&mut peer, &answers, plan, (form, done)).await?,
                }
            }
            Route::Tool => {
                counters.tool.fetch_add(1, Ordering::Relaxed);
                let faulty = counters.faulty.load(Ordering::Relaxed);
                let fault = counters.fault().filter(|_| faulty);
                answer_or_fail(&mut peer, &answers, &answers.tool, fault).await?;
            }
            Route::Models => peer.send(&answers.models).await?,
            Route::Other => peer.send(&answers.missing).await?,
        }
    }
    Ok(())
}

#[expect(
    clippy::cognitive_complexity,
    reason = "one arm for each kind of answer"
)]
async fn answer(
    peer: &mut Peer,
    answers: &Answers,
    plan: Plan,
    (form, done): (Form, usize),
) -> Result<()> {
    match plan {
        Plan::Plain => peer.send(&answers.plain).await,
        Plan::Rounds(rounds) if done < rounds => peer.send(answers.round(done, form)).await,
        Plan::Cells(rounds) if done < rounds => peer.send(answers.cell(done, form)).await,
        Plan::Plots(rounds) if done < rounds => peer.send(answers.plot(done, form)).await,
        Plan::Rounds(_) | Plan::Cells(_) | Plan::Plots(_) | Plan::Flaky(_) => {
            peer.send(answers.last(form)).await
        }
        Plan::Burst(tokens) => {
            peer.send(&answers.opening).await?;
            for _ in 0..tokens {
                peer.send(&answers.token).await?;
                // A model decodes for all its streams in turn.
                tokio::task::yield_now().await;
            }
            peer.send(answers.closing(form)).await
        }
        Plan::Paced(tokens) => {
            peer.send(&answers.opening).await?;
            for _ in 0..tokens {
                peer.send(&answers.token).await?;
                tokio::time::sleep(PACE).await;
            }
            peer.send(answers.closing(form)).await
        }
        Plan::FirstToken => {
            peer.send(&answers.opening).await?;
            peer.send(&answers.token).await?;
            tokio::time::sleep(STALL).await;
            peer.send(answers.closing(form)).await
        }
        Plan::Open(tokens) => {
            peer.send(&answers.opening).await?;
            for _ in 0..tokens {
                peer.send(&answers.token).await?;
                tokio::time::sleep(OPEN_GAP).await;
            }
            peer.send(answers.closing(form)).await
        }
    }
}

/// Sends the answer, or fails as servers do.
async fn answer_or_fail(
    peer: &mut Peer,
    answers: &Answers,
    answer: &[u8],
    fault: Option<u64>,
) -> Result<()> {
    match fault.map(|kind| kind % 7) {
        None => peer.send(answer).await,
        Some(0) => peer.send(&answers.error).await,
        Some(1) => peer.send(&answers.busy).await,
        Some(2) => peer.send(&answers.garbage).await,
        Some(3) => peer.reset(),
        Some(4) => {
            peer.send(&answers.opening).await?;
            peer.reset()
        }
        Some(5) => {
            peer.send(answer.get(..answer.len() / 2).unwrap_or_default())
                .await?;
            bail!("ended on purpose")
        }
        Some(_) => {
            tokio::time::sleep(FAULT_STALL).await;
            peer.send(answer).await
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Route {
    Chat,
    Tool,
    Models,
    Other,
}

impl Route {
    fn of(request_line: &[u8]) -> Self {
        if request_line.starts_with(b"POST /v1/chat/completions ") {
            Self::Chat
        } else if request_line.starts_with(b"POST /tool ") {
            Self::Tool
        } else if request_line.starts_with(b"GET /v1/models ") {
            Self::Models
        } else {
            Self::Other
        }
    }
}

/// The beginning and the end of a body, which together are all of a short one.
fn edges(body: &[u8]) -> [&[u8]; 2] {
    if body.len() <= HEAD_BYTES + TAIL_BYTES {
        return [body, &[]];
    }
    let (head, rest) = body.split_at(HEAD_BYTES);
    [head, rest.get(rest.len() - TAIL_BYTES..).unwrap_or(rest)]
}
