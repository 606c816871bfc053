//! A TCP proxy in front of a PostgreSQL server, with the faults of a network.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::within;

/// What happens to what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// Everything arrives.
    Whole,
    /// Everything arrives later, in both directions.
    Slow(Duration),
    /// Nothing arrives any more, and nobody is told. A connection that has lost something stays so.
    Silent,
    /// Connections are reset, new ones too.
    Refused,
}

/// A running proxy. Its connections end with it.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    url: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    network: watch::Sender<Network>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
    /// Bytes that clients may still send before the network falls silent.
    budget: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy in front of the database with this URL, which names a Unix socket.
    pub(crate) async fn start(database: &str) -> Self {
        let url = url::Url::parse(database).unwrap();
        let directory = url.query_pairs().find(|(key, _)| key == "host");
        let (_, directory) = directory.expect("the directory of a socket");
        let further = url.query_pairs();
        let further = further.filter(|(key, _)| key != "host" && key != "user");
        let further = further.map(|(key, value)| format!("&{key}={value}"));
        let socket = PathBuf::from(&*directory).join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            network: watch::Sender::new(Network::Whole),
            cuts: watch::Sender::new(0),
            budget: AtomicU64::new(u64::MAX),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, socket, shared.clone()));
        Self {
            url: format!(
                "postgres://postgres:s3cret-word@127.0.0.1:{port}{}?sslmode=disable{}",
                url.path(),
                further.collect::<String>()
            ),
            shared,
            _tasks: tasks,
        }
    }

    /// The URL of the database through the proxy, with a password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Changes the network from now on.
    pub(crate) fn set(&self, network: Network) {
        self.shared.network.send_replace(network);
        if network == Network::Refused {
            self.cut();
        }
    }

    /// Lets the network fall silent once clients have sent so many more bytes.
    pub(crate) fn silent_after(&self, bytes: u64) {
        self.shared.budget.store(bytes, Ordering::SeqCst);
    }

    /// Waits until the network is silent.
    pub(crate) async fn silent(&self) {
        let mut network = self.shared.network.subscribe();
        within(
            "silence",
            network.wait_for(|network| *network == Network::Silent),
        )
        .await
        .unwrap();
    }

    /// Resets all connections; new ones are made as ever.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Shared {
    /// Takes bytes from the budget; at its end the network falls silent.
    fn spend(&self, bytes: usize) {
        let spent = self
            .budget
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                (left < u64::MAX).then(|| left.saturating_sub(bytes as u64))
            });
        if spent.is_ok_and(|left| left <= bytes as u64) {
            self.budget.store(u64::MAX, Ordering::SeqCst);
            self.network.send_replace(Network::Silent);
        }
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let (socket, shared) = (socket.clone(), shared.clone());
        connections.spawn(async move {
            // A reset instead of an end in order.
            let _closed_at_once = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
            let _ended = serve(client, socket, &shared).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(client: TcpStream, socket: PathBuf, shared: &Shared) -> io::Result<()> {
    // Before the look at the network, so that no cut is missed.
    let mut cuts = shared.cuts.subscribe();
    if *shared.network.borrow() == Network::Refused {
        return Ok(());
    }
    client.set_nodelay(true)?;
    let server = UnixStream::connect(socket).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pump(from_client, to_server, shared, true) => ended,
        ended = pump(from_server, to_client, shared, false) => ended,
        _cut = cuts.changed() => Ok(()),
    }
}

/// Passes on what comes until one side ends.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
    is_client: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut is_lossy = false;
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if is_client {
            shared.spend(count);
        }
        let network = *shared.network.borrow();
        is_lossy |= network == Network::Silent;
        if let Network::Slow(delay) = network {
            tokio::time::sleep(delay).await;
        }
        if !is_lossy {
            to.write_all(&buffer[..count]).await?;
        }
    }
}
