//! Comparing contenders under the same load.
//!
//! Slices of all contenders alternate, so that whatever else the machine is doing falls on each of them, and the median
//! slice counts.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Result, anyhow};

use crate::{
    generator::{self, Rate, Slice, Work},
    proxies::Proxy,
    script::Script,
};

/// One way to the scripted upstream.
#[derive(Debug)]
pub(crate) struct Contender<'a> {
    /// How it is called in the tables.
    pub(crate) name: &'static str,
    /// Where the load goes.
    pub(crate) address: SocketAddr,
    /// The process whose CPU time counts; none for a direct connection.
    pub(crate) proxy: Option<&'a Proxy>,
    /// What is asked of it.
    pub(crate) work: Work,
}

/// How long is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Slices per contender.
    pub(crate) slices: usize,
    /// Length of a slice.
    pub(crate) length: Duration,
}

/// Measures every contender; a contender that fails is left out from then on.
pub(crate) async fn compare(
    contenders: &[Contender<'_>],
    connections: usize,
    pace: Pace,
) -> Vec<Result<Slice>> {
    let mut results: Vec<Result<Vec<Slice>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..pace.slices {
        for (contender, result) in contenders.iter().zip(&mut results) {
            let Ok(slices) = result else { continue };
            let cpu = || contender.proxy.map(Proxy::cpu_time).unwrap_or_default();
            let load = (connections, pace.length);
            match generator::slice(contender.address, &contender.work, load, cpu).await {
                Ok(slice) => slices.push(slice),
                Err(error) => *result = Err(error),
            }
        }
    }
    results
        .into_iter()
        .map(|result| result.and_then(|slices| middle(&slices)))
        .collect()
}

/// Measures every contender at the same rate; returns also the CPU seconds of the script per request.
pub(crate) async fn compare_at_rate(
    contenders: &[Contender<'_>],
    rate: Rate,
    pace: Pace,
    script: &Script,
) -> Vec<Result<(Slice, f64)>> {
    let mut results: Vec<Result<Vec<_>>> = contenders.iter().map(|_| Ok(Vec::new())).collect();
    for _ in 0..pace.slices {
        for (contender, result) in contenders.iter().zip(&mut results) {
            let Ok(slices) = result else { continue };
            let cpu = || contender.proxy.map(Proxy::cpu_time).unwrap_or_default();
            match generator::at_rate(contender.address, &contender.work, rate, script, cpu).await {
                Ok(slice) => slices.push(slice),
                Err(error) => *result = Err(error),
            }
        }
    }
    results
        .into_iter()
        .map(|result| {
            let (slices, mut scripts): (Vec<_>, Vec<f64>) = result?.into_iter().unzip();
            scripts.sort_unstable_by(f64::total_cmp);
            let script = scripts.get(scripts.len() / 2).copied();
            Ok((middle(&slices)?, script.unwrap_or_default()))
        })
        .collect()
}

/// The median of several slices, figure by figure.
pub(crate) fn middle(slices: &[Slice]) -> Result<Slice> {
    let median = |of: fn(&Slice) -> f64| {
        let mut values: Vec<f64> = slices.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
            .get(values.len() / 2)
            .copied()
            .ok_or_else(|| anyhow!("nothing was measured"))
    };
    Ok(Slice {
        rate: median(|slice| slice.rate)?,
        cpu: median(|slice| slice.cpu)?,
        median: median(|slice| slice.median)?,
        p99: median(|slice| slice.p99)?,
        least: slices
            .iter()
            .map(|slice| slice.least)
            .fold(f64::INFINITY, f64::min),
    })
}
