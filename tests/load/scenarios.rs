//! What is measured of the proxies that run side by side, and the tables that it fills.

use std::net::SocketAddr;

use crate::{
    answers::LAST_WORDS,
    figures::{added, micros, of, proxied, ratio},
    generator::{Rate, Slice, Timing, Work},
    measure::{self, Contender, Pace},
    proxies::Proxy,
    report::Report,
    requests::{self, Asked, CHAT, Dialect, Tools},
    script::{Plan, Script},
    tables::{
        CHUNKS, DIRECT, FIRST_TOKEN, FIXED_RATE, FULL_SPEED, LOOP, LOOP_SQLITE, NGINX, PACED, PASS,
        PASS_THROUGH, RESPONSES, RESPONSES_NO_TOOLS, SHORT_STREAM,
    },
};

/// Numbers of connections that everything is measured at.
pub(crate) const CONNECTIONS: [usize; 2] = [1, 32];

/// Tokens of a stream whose chunks are counted.
const BURST: usize = 2000;

/// Tokens of a stream that is paced, which takes a millisecond for each.
const SLOW: usize = 200;

/// A slice at a fixed rate is longer than others by this factor.
const RATE_SLICE: u32 = 3;

/// The proxies that run while a placement is measured.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// nginx, where it is installed.
    pub(crate) nginx: Option<Proxy>,
    /// loopwright without tools.
    pub(crate) pass: Option<Proxy>,
    /// loopwright with tools, by the name of its row.
    pub(crate) loops: Vec<(&'static str, Proxy)>,
}

impl Fleet {
    /// The loop of that name.
    fn looped(&self, name: &str) -> Option<&Proxy> {
        let (_, proxy) = self.loops.iter().find(|(its, _)| *its == name)?;
        Some(proxy)
    }
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
    pub(crate) async fn pass_through(&self, report: &mut Report) {
        for connections in CONNECTIONS {
            let contenders = self.contenders(&[DIRECT, NGINX, PASS], |address, _| {
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
                report.row(
                    &PASS_THROUGH,
                    &[self.placement, &connections.to_string(), name],
                    &cells,
                );
            }
        }
    }

    /// CPU and latency of plain requests at a fixed rate.
    pub(crate) async fn fixed_rate(&self, per_second: u32, report: &mut Report) {
        let contenders = self.contenders(&[DIRECT, NGINX, PASS], |address, _| {
            let request = requests::plain(address, Plan::Plain, Tools::None, 0);
            Work::single(request, Timing::Whole, "lazy dog")
        });
        let [_, connections] = CONNECTIONS;
        let rate = Rate {
            per_second,
            connections,
            length: self.pace.length * RATE_SLICE,
        };
        let figures = measure::compare_at_rate(&contenders, rate, self.pace, self.script).await;
        let mut measured = Vec::new();
        for (contender, result) in contenders.iter().zip(figures) {
            match result {
                Ok((slice, script)) => measured.push((contender.name, Some(slice), script)),
                Err(error) => {
                    report.remark(format!("{}, at a fixed rate: {error:#}", contender.name));
                }
            }
        }
        let slices: Vec<_> = measured.iter().map(|(name, it, _)| (*name, *it)).collect();
        let [direct, nginx] = [DIRECT, NGINX].map(|name| of(&slices, name));
        for (name, slice, script) in &measured {
            let cpu = proxied(name, *slice).map(|it| it.cpu);
            let cells = [
                slice.map(|it| it.rate),
                cpu.map(|cpu| cpu * 1e4),
                Some(script * 1e4),
                slice.map(|it| it.median * 1e6),
                slice.map(|it| it.p99 * 1e6),
                added(name, *slice, direct, |it| it.median).map(micros),
                added(name, *slice, direct, |it| it.p99).map(micros),
                ratio(cpu, nginx.map(|it| it.cpu)),
            ];
            let labels = [self.placement, &per_second.to_string(), name];
            report.row(&FIXED_RATE, &labels, &cells);
        }
    }

    /// A short stream: passed through, with a tool that is not called, and as a response.
    pub(crate) async fn short_stream(&self, report: &mut Report) {
        let all = [DIRECT, NGINX, PASS, LOOP, LOOP_SQLITE, RESPONSES_NO_TOOLS];
        let contenders = self.contenders(&all, |address, asked| {
            let request = requests::stream(address, Plan::Rounds(0), asked);
            Work::single(request, Timing::Whole, LAST_WORDS)
        });
        let figures = self.figures(&contenders, 1, report).await;
        let [direct, nginx, pass] = [DIRECT, NGINX, PASS].map(|name| of(&figures, name));
        for (name, slice) in &figures {
            let cpu = proxied(name, *slice).map(|it| it.cpu);
            let own = slice.filter(|_| ![DIRECT, NGINX, PASS].contains(name));
            let cells = [
                slice.map(|it| it.median * 1e6),
                slice.map(|it| it.p99 * 1e6),
                added(name, *slice, direct, |it| it.median).map(micros),
                added(name, own, pass, |it| it.median).map(micros),
                cpu.map(micros),
                ratio(cpu, nginx.map(|it| it.cpu)),
                ratio(slice.map(|it| it.median), direct.map(|it| it.median)),
            ];
            report.row(&SHORT_STREAM, &[self.placement, name], &cells);
        }
    }

    /// Time to the first token of a stream.
    pub(crate) async fn first_token(&self, report: &mut Report) {
        for connections in CONNECTIONS {
            let all = [DIRECT, NGINX, PASS, LOOP];
            let contenders = self.contenders(&all, |address, asked| {
                let request = requests::stream(address, Plan::FirstToken, asked);
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
                report.row(
                    &FIRST_TOKEN,
                    &[self.placement, &connections.to_string(), name],
                    &cells,
                );
            }
        }
    }

    /// Cost of streamed chunks.
    pub(crate) async fn chunks(&self, report: &mut Report) {
        let [_, connections] = CONNECTIONS;
        let cases = [
            (FULL_SPEED, Plan::Burst(BURST), BURST as f64),
            (PACED, Plan::Paced(SLOW), SLOW as f64),
        ];
        for (pace, plan, chunks) in cases {
            let all = [DIRECT, NGINX, PASS, LOOP, RESPONSES];
            let contenders = self.contenders(&all, |address, asked| {
                let request = requests::stream(address, plan, asked);
                Work::single(request, Timing::Whole, "tok ")
            });
            let figures = self.figures(&contenders, connections, report).await;
            let [direct, nginx, looped] = [DIRECT, NGINX, LOOP].map(|name| of(&figures, name));
            for (name, slice) in &figures {
                let cpu = proxied(name, *slice).map(|it| it.cpu);
                let cells = [
                    slice.map(|it| it.rate * chunks),
                    cpu.map(|cpu| cpu * 1e6 / chunks),
                    ratio(slice.map(|it| it.rate), direct.map(|it| it.rate)),
                    ratio(cpu, nginx.map(|it| it.cpu)),
                    ratio(cpu.filter(|_| *name == RESPONSES), looped.map(|it| it.cpu)),
                ];
                report.row(
                    &CHUNKS,
                    &[self.placement, &connections.to_string(), pace, name],
                    &cells,
                );
            }
        }
    }

    /// Those of these rows whose proxy runs.
    fn contenders(
        &self,
        names: &[&'static str],
        work: impl Fn(SocketAddr, Asked) -> Work,
    ) -> Vec<Contender<'_>> {
        let fleet = &self.fleet;
        let all = names.iter().filter_map(|&name| {
            let (proxy, asked) = match name {
                DIRECT => (None, CHAT),
                NGINX => (Some(fleet.nginx.as_ref()?), CHAT),
                PASS => (Some(fleet.pass.as_ref()?), CHAT),
                RESPONSES => (
                    Some(fleet.looped(LOOP)?),
                    (Dialect::Responses, Tools::Lookup),
                ),
                RESPONSES_NO_TOOLS => (
                    Some(fleet.pass.as_ref()?),
                    (Dialect::Responses, Tools::None),
                ),
                _ => (Some(fleet.looped(name)?), (Dialect::Chat, Tools::Lookup)),
            };
            let address = proxy.map_or(self.script.address, |proxy| proxy.address);
            Some(Contender {
                name,
                address,
                proxy,
                work: work(address, asked),
            })
        });
        all.collect()
    }

    pub(crate) async fn figures(
        &self,
        contenders: &[Contender<'_>],
        connections: usize,
        report: &mut Report,
    ) -> Vec<(&'static str, Option<Slice>)> {
        let results = measure::compare(contenders, connections, self.pace).await;
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
}
