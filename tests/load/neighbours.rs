//! What the flood of one API key costs the requests of another.
//!
//! Starts a proxy of its own, which has two keys. The generator and the upstream serve both, so that their part of the
//! delay is in the figures.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::{
    answers::LAST_WORDS,
    figures::{ROUNDS, micros, ratio},
    generator::{self, Slice, Timing, Work},
    measure::{Pace, middle},
    proxies::{Launcher, Proxy},
    report::Report,
    requests::{self, Tools},
    script::Plan,
    tables,
};

/// The settings of the two keys below.
const KEYS: &str = "
[[api_keys]]
name = \"quiet\"
sha256 = \"5152e21b7153e4ad01e6cafa2062f796e2be79fd6a854aece77eac03d1700699\"
[[api_keys]]
name = \"flooding\"
sha256 = \"5189bdf661d9e9a562e27ab499363594a029a8b057e8d1b5c6ab0478e64abda8\"
";
const QUIET_KEY: &str = "load-quiet-neighbour";
const FLOODING_KEY: &str = "load-flooding-neighbour";
/// Connections of the flood.
const FLOODING: usize = 32;
/// Messages of 1 KB in the larger bodies of the flood.
const LARGE: usize = 1000;

/// What the figures share.
#[derive(Debug)]
pub(crate) struct NeighbourBench<'a> {
    /// How proxies are started.
    pub(crate) launcher: &'a Launcher,
    /// How long is measured.
    pub(crate) pace: Pace,
    /// Where the processes run, as the table calls it.
    pub(crate) placement: &'static str,
}

impl NeighbourBench<'_> {
    /// Fills the table.
    pub(crate) async fn run(&self, report: &mut Report) {
        if let Err(error) = self.measure(report).await {
            report.remark(format!("neighbours: {error:#}"));
        }
    }

    async fn measure(&self, report: &mut Report) -> Result<()> {
        let proxy = self.launcher.loopwright_with("memory:", KEYS).await?;
        let address = proxy.address;
        for (what, plan, tools, expects) in [
            ("plain", Plan::Plain, Tools::None, "lazy dog"),
            ("5 rounds", Plan::Rounds(ROUNDS), Tools::Lookup, LAST_WORDS),
        ] {
            let quiet = work(address, QUIET_KEY, (plan, tools, 0), expects)?;
            let idle = self.slices(&proxy, &quiet).await?;
            for (beside, history) in [
                ("nothing", None),
                ("5 rounds", Some(0)),
                ("bodies of 1 MB", Some(LARGE)),
            ] {
                let slice = match history {
                    None => idle,
                    Some(history) => {
                        let flood = (Plan::Rounds(ROUNDS), Tools::Lookup, history);
                        let flood = work(address, FLOODING_KEY, flood, LAST_WORDS)?;
                        // Dropped after the measurement, which ends it.
                        let _flood = generator::flood(address, &flood, FLOODING);
                        self.slices(&proxy, &quiet).await?
                    }
                };
                let figures = [
                    Some(slice.rate),
                    Some(micros(slice.median)),
                    Some(micros(slice.p99)),
                    ratio(Some(slice.median), Some(idle.median)),
                    ratio(Some(slice.p99), Some(idle.p99)),
                ];
                report.row(
                    &tables::NEIGHBOURS,
                    &[self.placement, what, beside],
                    &figures,
                );
            }
        }
        Ok(())
    }

    /// One connection of the quiet key.
    async fn slices(&self, proxy: &Proxy, work: &Work) -> Result<Slice> {
        let mut slices = Vec::new();
        for _ in 0..self.pace.slices {
            let load = (1, self.pace.length);
            slices.push(generator::slice(proxy.address, work, load, || proxy.cpu_time()).await?);
        }
        middle(&slices)
    }
}

/// Requests of a key.
fn work(
    address: SocketAddr,
    key: &str,
    (plan, tools, history): (Plan, Tools, usize),
    expects: &'static str,
) -> Result<Work> {
    let request = requests::plain(address, plan, tools, history);
    let request = String::from_utf8(request).context("a request is no text")?;
    let request = request.replacen("Bearer load\r\n", &format!("Bearer {key}\r\n"), 1);
    Ok(Work::single(request.into(), Timing::Whole, expects))
}
