//! A PostgreSQL server whose tables lie on a small disk of its own, which a test can fill.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;

use super::eventually;

/// Mounts the disk where nobody else sees it, and gives up root's rights.
const WORLD: &str = r#"
mount -t tmpfs -o "size=160m,mode=0700,uid=$2,gid=$2" small "$1/data"
exec setpriv --reuid "$2" --regid "$2" --clear-groups sh -c "$3" sh "$1"
"#;
/// Runs the server until the standard input ends. The log of changes and the server's own log lie on another disk: what
/// fails is the growth of a table.
const SERVER: &str = r#"
for bin in /usr/lib/postgresql/*/bin; do PATH="$PATH:$bin"; done
initdb -D "$1/data" -X "$1/wal" -U postgres -A trust --no-sync -E UTF8 --locale=C > "$1/log" 2>&1 || exit 1
postgres -D "$1/data" -k "$1" -c listen_addresses= -c shared_buffers=32MB -c fsync=off -c checkpoint_timeout=1h \
    -c autovacuum=off -c log_min_messages=fatal >> "$1/log" 2>&1 < /dev/null &
while read word; do
    case $word in
        fill) cat /dev/zero > "$1/data/balloon"; : > "$1/full" ;;
        empty) rm "$1/data/balloon" "$1/full" ;;
    esac
done
kill -QUIT $!
wait $!
"#;
/// Nobody. PostgreSQL refuses to run as root.
const UNPRIVILEGED: u32 = 65534;

/// The server. It ends with this handle.
pub(crate) struct SmallDisk {
    directory: TempDir,
    process: Child,
    input: Option<ChildStdin>,
}

impl SmallDisk {
    /// Starts a server and makes an empty database. Needs root, or sudo without a password.
    pub(crate) async fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("pg-").tempdir().unwrap();
        let path = directory.path();
        std::fs::create_dir(path.join("data")).unwrap();
        let own = rustix::process::geteuid();
        let (user, mut command) = match own.is_root() {
            true => {
                std::os::unix::fs::chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
                (UNPRIVILEGED, Command::new("unshare"))
            }
            false => {
                let mut sudo = Command::new("sudo");
                sudo.args(["-n", "unshare"]);
                (own.as_raw(), sudo)
            }
        };
        command.args(["--mount", "--", "sh", "-ec", WORLD, "sh"]);
        command.arg(path).arg(user.to_string()).arg(SERVER);
        command.current_dir("/").stdin(Stdio::piped());
        let mut process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let server = Self {
            directory,
            process,
            input,
        };
        let mut connection = eventually("a server on a small disk", async || {
            PgConnection::connect(&server.url("postgres")).await.ok()
        })
        .await;
        connection.execute("CREATE DATABASE test").await.unwrap();
        connection.close().await.unwrap();
        server
    }

    /// The URL of the database.
    pub(crate) fn database(&self) -> String {
        self.url("test")
    }

    /// Leaves no space on the disk.
    pub(crate) async fn fill(&mut self) {
        self.tell("fill");
        let full = self.full();
        eventually("a full disk", async || full.exists().then_some(())).await;
    }

    /// Frees the space.
    pub(crate) async fn empty(&mut self) {
        self.tell("empty");
        let full = self.full();
        eventually("an empty disk", async || (!full.exists()).then_some(())).await;
    }

    fn tell(&mut self, word: &str) {
        let input = self.input.as_mut().expect("the server runs");
        writeln!(input, "{word}").unwrap();
    }

    fn full(&self) -> PathBuf {
        self.directory.path().join("full")
    }

    fn url(&self, database: &str) -> String {
        let directory = self.directory.path().display();
        format!("postgres:///{database}?host={directory}&user=postgres")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its end is the end of the server.
        drop(self.input.take());
        let _ended = self.process.wait();
    }
}
