//! The addresses that are listened on: for clients, for collectors of metrics, and for other replicas.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::AppError;
use net::cluster::Cluster;
use net::cluster::settings::Settings;
use store::Store;

/// Listens on an address; returns the one that the operating system chose for port 0.
/// `setting` names the setting that the address is from.
pub(super) async fn listen(
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), AppError> {
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| AppError::Listen {
        address,
        setting,
        source,
    })?;
    let address = listener.local_addr().map_err(AppError::Serve)?;
    Ok((listener, address))
}

/// Listens for collectors of metrics, if there is an address for them.
pub(super) async fn for_metrics(
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, AppError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let (listener, address) = listen(address, "metrics_listen").await?;
    tracing::info!(url = format!("http://{address}/metrics"), "serving metrics");
    Ok(Some(listener))
}

/// Listens for other replicas, if there is an address for them, and publishes the address.
pub(super) async fn for_replicas(
    settings: Option<&Settings>,
    store: &Store,
) -> Result<(Option<Cluster>, Option<TcpListener>), AppError> {
    let Some(settings) = settings else {
        return Ok((None, None));
    };
    let (listener, address) = listen(settings.listen, "--cluster-listen").await?;
    let cluster = Cluster::new(settings, address)?;
    let announced = store.announce(cluster.address()).await;
    announced.map_err(AppError::Announce)?;
    tracing::info!(url = cluster.address(), "serving other replicas");
    Ok((Some(cluster), Some(listener)))
}
