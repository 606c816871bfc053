//! What is measured of the proxies that run side by side, and the tables that it fills.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::{
    answers::LAST_WORDS,
    figures::{ROUNDS, Rounds, added, micros, of, proxied, ratio},
    generator::{self, Slice, Timing, Work},
    measure::{Contender, Pace, compare},
    proxies::Proxy,
    report::{Report, Table},
    requests::{self, Tools},
    script::{Plan, Script},
    tables::{DIRECT, LOOP, LOOP_SQLITE, NGINX, PASS},
};

/// Numbers of connections that everything is measured at.
const CONNECTIONS: [usize; 2] = [1, 32];

/// Lengths of history, in messages of 1 KB.
const HISTORIES: [usize; 3] = [10, 100, 1000];

/// Tokens of a stream whose chunks are counted.
const BURST: usize = 2000;

/// Tokens of a stream that is paced, which takes a millisecond for each.
const PACED: usize = 200;

/// The proxies that run while a placement is measured.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// nginx, where it is installed.
    pub(crate) nginx: Option<Proxy>,
    /// loopwright without tools.
    pub(crate) pass: Option<Proxy>,
    /// loopwright with tools, sessions in memory.
    pub(crate) memory: Option<Proxy>,
    /// loopwright with tools, sessions in SQLite.
    pub(crate) sqlite: Option<Proxy>,
}

/// What all scenarios share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// The scripted upstream.
    pub(crate) script: &'a Script,
    /// The proxies.
    pub(crate) fleet: Fleet,
    /// How long is measured.
    pub(crate) pace: Pace,
    /// Where the processes run, as the tables call it.
    pub(crate) placement: &'static str,
}

impl Bench<'_> {
    /// Requests per second, CPU and latency of plain requests.
    pub(crate) async fn pass_through(&self, table: &mut Table, report: &mut Report) {
        for connections in CONNECTIONS {
            let contenders = self.contenders(Among::PassThrough, |address, _| {
                let request = requests::plain(address, Plan::Plain, Tools::None, 0);
                Work::single(request, Timing::Whole, "lazy dog")
            });
            let figures = self.figures(&contenders, connections, report).await;
            let direct = of(&figures, DIRECT);
            let nginx = of(&figures, NGINX);
            for (name, slice) in &figures {
                let cells = [
                    slice.map(|it| it.rate),
                    proxied(name, *slice).map(|it| it.cpu * 1e4),
                    slice.map(|it| it.median * 1e6),
                    slice.map(|it| it.p99 * 1e6),
                    added(name, *slice, direct, |it| it.median).map(micros),
                    added(name, *slice, direct, |it| it.p99).map(micros),
                    ratio(slice.map(|it| it.rate), direct.map(|it| it.rate)),
                    ratio(slice.map(|it| it.median), direct.map(|it| it.median)),
                    ratio(slice.map(|it| it.rate), nginx.map(|it| it.rate)),
                    ratio(
                        proxied(name, *slice).map(|it| it.cpu),
                        nginx.map(|it| it.cpu),
                    ),
                    ratio(
                        added(name, *slice, direct, |it| it.median),
                        added(NGINX, nginx, direct, |it| it.median),
                    ),
                ];
                table.row(&[self.placement, &connections.to_string(), name], &cells);
            }
        }
    }

    /// The tool loop.
    pub(crate) async fn tool_loop(&self, table: &mut Table, report: &mut Report) {
        for connections in CONNECTIONS {
            let rows = self.rounds(0, connections, report).await;
            let direct = rows.first().and_then(|row| row.full);
            for row in &rows {
                let full = row.full;
                let cells = [
                    full.map(|it| it.rate),
                    proxied(row.name, full).map(|it| it.cpu * 1e4),
                    full.map(|it| it.median * 1e6),
                    full.map(|it| it.p99 * 1e6),
                    added(row.name, full, direct, |it| it.median).map(micros),
                    added(row.name, full, direct, |it| it.p99).map(micros),
                    row.own(rows.first()).map(micros),
                    row.cpu().map(micros),
                    ratio(full.map(|it| it.rate), direct.map(|it| it.rate)),
                    ratio(full.map(|it| it.median), direct.map(|it| it.median)),
                ];
                table.row(
                    &[self.placement, &connections.to_string(), row.name],
                    &cells,
                );
            }
        }
    }

    /// A round of the loop at growing lengths of history.
    pub(crate) async fn history(&self, table: &mut Table, report: &mut Report) {
        let mut shortest: Vec<(&str, Option<f64>)> = Vec::new();
        for messages in HISTORIES {
            let rows = self.rounds(messages, 1, report).await;
            for row in &rows {
                let own = if row.name == DIRECT {
                    row.slope(|it| it.median)
                } else {
                    row.own(rows.first())
                };
                let first = shortest.iter().find(|(name, _)| *name == row.name);
                let first = if let Some((_, first)) = first {
                    *first
                } else {
                    shortest.push((row.name, own));
                    own
                };
                table.row(
                    &[self.placement, &messages.to_string(), row.name],
                    &[own.map(micros), row.cpu().map(micros), ratio(own, first)],
                );
            }
        }
    }

    /// Time to the first token of a stream.
    pub(crate) async fn first_token(&self, table: &mut Table, report: &mut Report) {
        for connections in CONNECTIONS {
            let contenders = self.contenders(Among::Streams, |address, tools| {
                let request = requests::stream(address, Plan::FirstToken, tools);
                Work::single(request, Timing::FirstToken, "[DONE]")
            });
            let figures = self.figures(&contenders, connections, report).await;
            let direct = of(&figures, DIRECT);
            let nginx = of(&figures, NGINX);
            for (name, slice) in &figures {
                let cells = [
                    slice.map(|it| it.median * 1e6),
                    slice.map(|it| it.p99 * 1e6),
                    added(name, *slice, direct, |it| it.median).map(micros),
                    added(name, *slice, direct, |it| it.p99).map(micros),
                    ratio(slice.map(|it| it.median), direct.map(|it| it.median)),
                    ratio(
                        added(name, *slice, direct, |it| it.median),
                        added(NGINX, nginx, direct, |it| it.median),
                    ),
                ];
                table.row(&[self.placement, &connections.to_string(), name], &cells);
            }
        }
    }

    /// Cost of streamed chunks.
    pub(crate) async fn chunks(&self, table: &mut Table, report: &mut Report) {
        let [one, many] = CONNECTIONS;
        let cases = [
            (one, "full speed", Plan::Burst(BURST), BURST as f64),
            (many, "full speed", Plan::Burst(BURST), BURST as f64),
            (many, "1 ms apart", Plan::Paced(PACED), PACED as f64),
        ];
        for (connections, pace, plan, chunks) in cases {
            let contenders = self.contenders(Among::Streams, |address, tools| {
                let request = requests::stream(address, plan, tools);
                Work::single(request, Timing::Whole, "[DONE]")
            });
            let figures = self.figures(&contenders, connections, report).await;
            let direct = of(&figures, DIRECT);
            let nginx = of(&figures, NGINX);
            for (name, slice) in &figures {
                let cpu = proxied(name, *slice).map(|it| it.cpu);
                let cells = [
                    slice.map(|it| it.rate * chunks),
                    cpu.map(|cpu| cpu * 1e6 / chunks),
                    ratio(slice.map(|it| it.rate), direct.map(|it| it.rate)),
                    ratio(cpu, nginx.map(|it| it.cpu)),
                ];
                table.row(
                    &[self.placement, &connections.to_string(), pace, name],
                    &cells,
                );
            }
        }
    }

    fn contenders(
        &self,
        among: Among,
        work: impl Fn(SocketAddr, Tools) -> Work,
    ) -> Vec<Contender<'_>> {
        let fleet = &self.fleet;
        let looped = fleet.memory.as_ref().filter(|_| among == Among::Streams);
        let proxies = [
            (NGINX, fleet.nginx.as_ref(), Tools::None),
            (PASS, fleet.pass.as_ref(), Tools::None),
            (LOOP, looped, Tools::Lookup),
        ];
        let direct = Contender {
            name: DIRECT,
            address: self.script.address,
            proxy: None,
            work: work(self.script.address, Tools::None),
        };
        let proxied = proxies.into_iter().filter_map(|(name, proxy, tools)| {
            let proxy = proxy?;
            let work = work(proxy.address, tools);
            Some(Contender {
                name,
                address: proxy.address,
                proxy: Some(proxy),
                work,
            })
        });
        std::iter::once(direct).chain(proxied).collect()
    }

    async fn figures(
        &self,
        contenders: &[Contender<'_>],
        connections: usize,
        report: &mut Report,
    ) -> Vec<(&'static str, Option<Slice>)> {
        let results = compare(contenders, connections, self.pace).await;
        contenders
            .iter()
            .zip(results)
            .map(|(contender, result)| {
                if let Err(error) = &result {
                    report.remark(format!("{}: {error:#}", contender.name));
                }
                (contender.name, result.ok())
            })
            .collect()
    }

    /// Requests with all rounds and with one, side by side. The direct row comes first.
    async fn rounds(&self, history: usize, connections: usize, report: &mut Report) -> Vec<Rounds> {
        let fleet = &self.fleet;
        let direct = self.script.address;
        let mut contenders: Vec<Contender<'_>> = [ROUNDS, 1]
            .map(|rounds| Contender {
                name: DIRECT,
                address: direct,
                proxy: None,
                work: Work {
                    requests: requests::client_loop(direct, rounds, history).into(),
                    timing: Timing::Whole,
                    expects: LAST_WORDS,
                },
            })
            .into();
        for (name, proxy) in [(LOOP, &fleet.memory), (LOOP_SQLITE, &fleet.sqlite)] {
            let Some(proxy) = proxy else { continue };
            let address = proxy.address;
            let [full, one] = [ROUNDS, 1].map(|rounds| {
                let request =
                    requests::plain(address, Plan::Rounds(rounds), Tools::Lookup, history);
                Work::single(request, Timing::Whole, LAST_WORDS)
            });
            if let Err(error) = self.check_loop(address, &full).await {
                report.remark(format!("{name}, {history} messages: {error:#}"));
                continue;
            }
            contenders.extend([full, one].map(|work| Contender {
                name,
                address,
                proxy: Some(proxy),
                work,
            }));
        }
        let figures = self.figures(&contenders, connections, report).await;
        figures
            .chunks_exact(2)
            .filter_map(|pair| match pair {
                [(name, full), (_, one)] => Some(Rounds {
                    name,
                    full: *full,
                    one: *one,
                }),
                _ => None,
            })
            .collect()
    }

    /// Sees that a proxy really runs the loop: a figure for something else would look splendid.
    async fn check_loop(&self, address: SocketAddr, work: &Work) -> Result<()> {
        let (model_before, tool_before) = self.script.calls();
        generator::once(address, work).await?;
        let (model, tool) = self.script.calls();
        let (model, tool) = (model - model_before, tool - tool_before);
        ensure!(
            (model, tool) == (ROUNDS as u64 + 1, ROUNDS as u64),
            "a request made {model} model calls and {tool} webhook calls"
        );
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Among {
    PassThrough,
    Streams,
}
