//! The memory of a proxy that holds many streams open.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::{
    figures::ratio,
    generator::{self, Timing, Work},
    proxies::{Effect, Launcher, Proxy, Role, Store},
    report::Report,
    requests::{self, Dialect, Tools},
    script::Plan,
    tables::{self, LOOP, NGINX, PASS},
};

/// An open stream ends by itself after this many tokens.
const OPEN_TOKENS: usize = 120;

/// How long open streams are left to flow before memory is read: long enough for two more tokens on each.
const SETTLE: Duration = Duration::from_millis(1500);

/// Memory of open streams. Starts proxies of its own, so that nothing served before is in the figure.
pub(crate) async fn open_streams(launcher: &Launcher, streams: usize, report: &mut Report) {
    let mut nginx = None;
    for name in [NGINX, PASS, LOOP] {
        let proxy = match name {
            NGINX if launcher.nginx_version().is_none() => continue,
            NGINX => launcher.nginx().await,
            PASS => launcher.loopwright(Role::PassThrough).await,
            _ => {
                launcher
                    .loopwright(Role::Loop(Store::Memory, Effect::Idempotent))
                    .await
            }
        };
        let tools = if name == LOOP {
            Tools::Lookup
        } else {
            Tools::None
        };
        let measured = match proxy {
            Ok(proxy) => measure(&proxy, tools, streams).await,
            Err(error) => Err(error),
        };
        match measured {
            Ok((idle, open)) => {
                let each = (open - idle) / streams as f64;
                if name == NGINX {
                    nginx = Some(each);
                }
                report.row(
                    &tables::OPEN_STREAMS,
                    &[&streams.to_string(), name],
                    &[
                        Some(idle / 1024.0),
                        Some(open / 1024.0),
                        Some(each),
                        ratio(Some(each), nginx),
                    ],
                );
            }
            Err(error) => report.remark(format!("{name}, memory: {error:#}")),
        }
    }
}

async fn measure(proxy: &Proxy, tools: Tools, streams: usize) -> Result<(f64, f64)> {
    let warm = requests::stream(proxy.address, Plan::Burst(20), (Dialect::Chat, tools));
    let warm = Work::single(warm, Timing::Whole, "[DONE]");
    for _ in 0..20 {
        generator::once(proxy.address, &warm).await?;
    }
    sleep(SETTLE / 4).await;
    let idle = proxy.memory_kib()?;
    let request: Arc<[u8]> = requests::stream(
        proxy.address,
        Plan::Open(OPEN_TOKENS),
        (Dialect::Chat, tools),
    )
    .into();
    let mut held = generator::open(proxy.address, &request, streams)
        .await
        .context("opening the streams")?;
    sleep(SETTLE).await;
    let open = proxy.memory_kib()?;
    let ended = std::iter::from_fn(|| held.try_join_next()).count();
    ensure!(ended == 0, "{ended} of {streams} streams ended early");
    Ok((idle, open))
}
