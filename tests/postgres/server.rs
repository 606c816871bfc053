//! A PostgreSQL server in a temporary directory, for tests. It ends with the process that started it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Makes the database and runs the server until the standard input ends. `kill` ends it as a crash would, `start` starts
/// it again.
const SCRIPT: &str = r#"
for bin in /usr/lib/postgresql/*/bin; do PATH="$PATH:$bin"; done
initdb -D "$1/data" -U postgres -A trust --no-sync -E UTF8 --locale=C > "$1/log" 2>&1 || exit 1
directory=$1
shift
start() {
    while :; do
        postgres -D "$directory/data" -k "$directory" -c listen_addresses= -c max_connections=500 -c shared_buffers=32MB \
            -c fsync=off -c log_min_messages=fatal "$@" >> "$directory/log" 2>&1 < /dev/null &
        pid=$!
        sleep 0.2
        kill -0 $pid && break
    done
}
# The processes of connections as well: they would answer until they notice that the server is gone.
crash() {
    children=$(cat /proc/$pid/task/$pid/children)
    kill -KILL $pid $children
    wait $pid
    for child in $children; do
        while grep -q "^State:[[:space:]]*[^XZ]" /proc/$child/status; do sleep 0.01; done
    done
}
start "$@"
while read word; do
    case $word in
        kill) crash ;;
        start) start "$@" ;;
    esac
done
kill -QUIT $pid
wait $pid
rm -rf "$directory"
"#;
/// Nobody. PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65534;
const START_LIMIT: Duration = Duration::from_secs(90);

/// A running server.
#[derive(Debug)]
pub(crate) struct PostgresServer {
    directory: PathBuf,
    input: Mutex<ChildStdin>,
    databases: AtomicU32,
}

impl PostgresServer {
    /// Starts a server; use it once it answers.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self::start_with(|_| Vec::new())
    }

    /// Starts a server with more arguments, and with files of the test's own in its directory.
    #[must_use]
    pub(crate) fn start_with(prepare: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("pg-")
            .tempdir()
            .unwrap()
            .keep();
        let arguments = prepare(&directory);
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "sh"])
            .arg(&directory)
            .args(arguments)
            .current_dir("/");
        if rustix::process::geteuid().is_root() {
            let files = std::fs::read_dir(&directory).unwrap();
            let files = files.map(|file| file.unwrap().path());
            for path in files.chain([directory.clone()]) {
                std::os::unix::fs::chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
            }
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        // In a group of its own, so that an interrupt of the tests lets it end in order.
        command.process_group(0).stdin(Stdio::piped());
        let mut keeper = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = keeper.stdin.take().unwrap();
        std::thread::spawn(move || keeper.wait());
        Self {
            directory,
            input: Mutex::new(input),
            databases: AtomicU32::new(0),
        }
    }

    /// The server that all tests of this process share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Makes an empty database; returns its URL.
    pub(crate) async fn create_database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut connection = self.connect().await;
        let sql = format!("CREATE DATABASE {name}");
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
        connection.close().await.unwrap();
        self.url(&name)
    }

    /// Ends the server as a crash would, and waits until it is gone.
    pub(crate) async fn kill(&self) {
        writeln!(self.input.lock(), "kill").unwrap();
        while let Ok(connection) = PgConnection::connect(&self.url("postgres")).await {
            drop(connection);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts the server again and waits until it answers.
    pub(crate) async fn restart(&self) {
        writeln!(self.input.lock(), "start").unwrap();
        self.connect().await.close().await.unwrap();
    }

    async fn connect(&self) -> PgConnection {
        let start = Instant::now();
        loop {
            match PgConnection::connect(&self.url("postgres")).await {
                Ok(connection) => return connection,
                Err(error) => {
                    let log = std::fs::read_to_string(self.directory.join("log"));
                    assert!(start.elapsed() < START_LIMIT, "{error}: {log:?}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn url(&self, database: &str) -> String {
        format!(
            "postgres:///{database}?host={}&user=postgres",
            self.directory.display()
        )
    }
}
