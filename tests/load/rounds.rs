//! What a round of the tool loop costs.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::{
    answers::LAST_WORDS,
    figures::{ROUNDS, Rounds, added, micros, proxied, ratio},
    generator::{self, Timing, Work},
    measure::Contender,
    report::Report,
    requests::{self, Tools},
    scenarios::{Bench, CONNECTIONS},
    script::Plan,
    tables::{DIRECT, LOOP_ROUNDS},
};

/// Requests of two lengths, whose difference is rounds alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Rounds of the longer one.
    pub(crate) many: usize,
    /// Rounds of the shorter one.
    pub(crate) few: usize,
    /// Messages of 1 KB before the question.
    pub(crate) history: usize,
}

const FIVE_ROUNDS: Load = Load {
    many: ROUNDS,
    few: 1,
    history: 0,
};

impl Bench<'_> {
    /// The loop of 5 rounds.
    pub(crate) async fn tool_loop(&self, report: &mut Report) {
        for connections in CONNECTIONS {
            let rows = self.rounds(FIVE_ROUNDS, connections, report).await;
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
                report.row(
                    &LOOP_ROUNDS,
                    &[self.placement, &connections.to_string(), row.name],
                    &cells,
                );
            }
        }
    }

    /// Requests with many rounds and with few, side by side. The direct row comes first.
    pub(crate) async fn rounds(
        &self,
        load: Load,
        connections: usize,
        report: &mut Report,
    ) -> Vec<Rounds> {
        let direct = self.script.address;
        let Load { many, few, history } = load;
        let mut contenders: Vec<Contender<'_>> = [many, few]
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
        for (name, proxy) in &self.fleet.loops {
            let address = proxy.address;
            let [full, rest] = [many, few].map(|rounds| {
                let request =
                    requests::plain(address, Plan::Rounds(rounds), Tools::Lookup, history);
                Work::single(request, Timing::Whole, LAST_WORDS)
            });
            if let Err(error) = self.check_loop(address, &full, many).await {
                report.remark(format!(
                    "{name}, {many} rounds, {history} messages: {error:#}"
                ));
                continue;
            }
            contenders.extend([full, rest].map(|work| Contender {
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
                [(name, full), (_, rest)] => Some(Rounds {
                    name,
                    full: *full,
                    few: *rest,
                    between: many - few,
                }),
                _ => None,
            })
            .collect()
    }

    /// Sees that a proxy really runs the loop: a figure for something else would look splendid.
    async fn check_loop(&self, address: SocketAddr, work: &Work, rounds: usize) -> Result<()> {
        let (model_before, tool_before) = self.script.calls();
        generator::once(address, work).await?;
        let (model, tool) = self.script.calls();
        let (model, tool) = (model - model_before, tool - tool_before);
        ensure!(
            (model, tool) == (rounds as u64 + 1, rounds as u64),
            "a request made {model} model calls and {tool} webhook calls"
        );
        Ok(())
    }
}
