//! Databases that are kept, and databases that are made of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use async_compression::tokio::bufread::GzipDecoder;
use async_compression::tokio::write::GzipEncoder;
use rusqlite::{Connection, params};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::told::Told;
use crate::golden::database::copy;
use crate::support::app::{Builder, TestApp};
use crate::support::postgres::PostgresServer;
use crate::support::within;

/// What a process calls its file, and the directory with the contents of files.
const DATABASE: &str = "sessions.db";
const FILES: &str = "sessions-files";
/// Writes the database of a URL as statements that every version of the server can run.
const DUMP: &str = r#"
for bin in /usr/lib/postgresql/*/bin; do PATH="$PATH:$bin"; done
exec pg_dump --inserts --rows-per-insert=100 --no-owner --no-privileges --no-comments "$1"
"#;

/// What the database is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Sqlite,
    Postgres,
}

/// What an earlier version has left in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptSet {
    Ended,
    Suspended,
}

/// A directory with a database, the contents of its files, and what was told of them.
#[derive(Debug)]
pub(super) struct Kept {
    engine: Engine,
    directory: PathBuf,
}

/// What was written and what was told of it.
#[derive(Debug)]
pub(super) struct Writing {
    /// The ids by which some of it is found.
    pub(super) ids: Value,
    pub(super) told: Told,
}

/// Where the database of an earlier version lies, with runs that have ended or with suspended ones.
pub(super) fn directory(engine: Engine, set: KeptSet) -> PathBuf {
    let of_all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/upgrades");
    let of_set = match set {
        KeptSet::Ended => of_all,
        KeptSet::Suspended => of_all.join("suspended"),
    };
    of_set.join(match engine {
        Engine::Sqlite => "sqlite",
        Engine::Postgres => "postgres",
    })
}

impl Kept {
    pub(super) fn of_earlier(engine: Engine, set: KeptSet) -> Self {
        Self::at(engine, &directory(engine, set))
    }

    pub(super) fn at(engine: Engine, directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self { engine, directory }
    }

    /// A server on a new database, and where that is.
    pub(super) async fn fresh(&self, mut builder: Builder) -> (Builder, String) {
        match self.engine {
            Engine::Sqlite => {
                let path = builder.dir().join(DATABASE).display().to_string();
                let store = format!("sqlite:{DATABASE}");
                (builder.env("LOOPWRIGHT_SESSION_STORE", &store), path)
            }
            Engine::Postgres => {
                let url = PostgresServer::shared().create_database().await;
                // A process that was killed is gone after this time at the latest.
                let store = format!("{url}&lease_seconds=2");
                (builder.env("LOOPWRIGHT_SESSION_STORE", &store), url)
            }
        }
    }

    /// A server on a database made of this one.
    pub(super) async fn restored(&self, builder: Builder) -> Builder {
        let (mut builder, place) = self.fresh(builder).await;
        copy(&self.directory.join("files"), &builder.dir().join(FILES));
        let compressed = fs::read(self.directory.join("database.gz")).unwrap();
        let mut database = Vec::new();
        let mut decoder = GzipDecoder::new(&compressed[..]);
        decoder.read_to_end(&mut database).await.unwrap();
        match self.engine {
            Engine::Sqlite => fs::write(place, database).unwrap(),
            Engine::Postgres => {
                let sql = String::from_utf8(database).unwrap();
                let mut connection = PgConnection::connect(&place).await.unwrap();
                connection.execute(AssertSqlSafe(sql)).await.unwrap();
                connection.close().await.unwrap();
            }
        }
        builder
    }

    /// Keeps what a process has left at this place.
    pub(super) async fn keep(&self, app: &mut TestApp, place: &str, with_leftovers: bool) {
        let database = match self.engine {
            Engine::Sqlite => {
                let connection = Connection::open(place).unwrap();
                if with_leftovers {
                    leave(&connection);
                }
                // Everything is to be in the one file.
                let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
                let busy: u32 = connection
                    .query_row(checkpoint, [], |row| row.get(0))
                    .unwrap();
                assert_eq!(busy, 0);
                connection.close().unwrap();
                fs::read(place).unwrap()
            }
            Engine::Postgres => dump(place).await,
        };
        let mut encoder = GzipEncoder::new(Vec::new());
        encoder.write_all(&database).await.unwrap();
        encoder.shutdown().await.unwrap();
        fs::create_dir_all(&self.directory).unwrap();
        fs::write(self.directory.join("database.gz"), encoder.into_inner()).unwrap();
        let files = self.directory.join("files");
        if files.exists() {
            fs::remove_dir_all(&files).unwrap();
        }
        copy(&app.dir().join(FILES), &files);
    }

    /// Keeps what was told, a line for each answer.
    pub(super) fn keep_told(&self, ids: &Value, told: &Told) {
        let mut text = format!("{ids}\n");
        for (path, shown) in told {
            text += &format!("{path}\t{shown}\n");
        }
        fs::write(self.directory.join("told"), text).unwrap();
    }

    /// What was told.
    pub(super) fn told(&self) -> Writing {
        let text = fs::read_to_string(self.directory.join("told")).unwrap();
        let (ids, told) = text.split_once('\n').unwrap();
        let told = told.lines().map(|line| {
            let (path, shown) = line.split_once('\t').unwrap();
            (path.to_owned(), serde_json::from_str(shown).unwrap())
        });
        Writing {
            ids: serde_json::from_str(ids).unwrap(),
            told: told.collect(),
        }
    }
}

/// Leaves what version 12 leaves that is killed while it deletes and while it writes in pieces: the sessions `doomed` and
/// `unfinished`, the answer of the run of the first, and an answer that was being written.
fn leave(connection: &Connection) {
    const HIDDEN: &str = "\u{1}hidden";
    let run = "UPDATE runs SET id = 'deleted-' || num, owner = ?1, status = 'deleted', session_id = NULL, ended_at = NULL
        WHERE session_id = 'doomed'";
    assert!(connection.execute(run, [HIDDEN]).unwrap() > 0);
    for (id, hidden) in [
        ("doomed", "'deleted-' || id"),
        ("unfinished", "'draft-' || updated_at"),
    ] {
        let session =
            format!("UPDATE sessions SET owner = ?1, session_id = {hidden} WHERE session_id = ?2");
        assert_eq!(connection.execute(&session, [HIDDEN, id]).unwrap(), 1);
    }
    let draft =
        "INSERT INTO runs (id, owner, status, created_at) VALUES ('draft-1', ?1, 'draft', 1)";
    connection.execute(draft, [HIDDEN]).unwrap();
    let piece = "INSERT INTO run_bodies (run, seq, piece) VALUES (?1, 0, ?2)";
    let written = params![connection.last_insert_rowid(), b"{\"unfin"];
    connection.execute(piece, written).unwrap();
}

async fn dump(url: &str) -> Vec<u8> {
    let mut command = Command::new("sh");
    command.args(["-c", DUMP, "sh", url]).stdin(Stdio::null());
    let dumped = within("pg_dump", command.output()).await.unwrap();
    assert!(
        dumped.status.success(),
        "{}",
        String::from_utf8_lossy(&dumped.stderr)
    );
    let sql = String::from_utf8(dumped.stdout).unwrap();
    // Its first settings depend on the version of the server, and lines with a backslash are those of a program.
    let (head, rest) = sql.split_once("CREATE ").unwrap();
    let is_known = |line: &&str| {
        let is_setting = line.starts_with("SET ") && !line.contains("check_function_bodies");
        !is_setting && !line.starts_with('\\')
    };
    let head: Vec<&str> = head.lines().filter(is_known).collect();
    let rest: Vec<&str> = rest
        .lines()
        .filter(|line| !line.starts_with('\\'))
        .collect();
    format!("{}\nCREATE {}\n", head.join("\n"), rest.join("\n")).into_bytes()
}
