//! The PostgreSQL server for sessions of the loop.

use std::{fs, path::Path, sync::OnceLock};

use server::PostgresServer;

#[expect(
    clippy::unwrap_used,
    dead_code,
    reason = "the server of the tests, of which a part is used"
)]
#[path = "../postgres/server.rs"]
mod server;

/// A PostgreSQL server that is started for the first database and ends with this process.
#[derive(Debug, Default)]
pub(crate) struct Databases(OnceLock<PostgresServer>);

impl Databases {
    /// Makes an empty database and returns its URL; `None` if PostgreSQL is not installed.
    pub(crate) async fn create(&self) -> Option<String> {
        if !is_installed() {
            return None;
        }
        let server = self.0.get_or_init(PostgresServer::start);
        Some(server.create_database().await)
    }
}

/// Whether PostgreSQL is where Debian has it, or among the programs.
fn is_installed() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = programs.chain(std::env::split_paths(&path));
    all.any(|programs: std::path::PathBuf| Path::new(&programs).join("initdb").exists())
}
