//! Schema migrations. Applied migrations are recorded in the table format and with the checksums of sqlx.

mod moves;

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior, params};
use sha2::{Digest, Sha384};

use super::super::StoreError;
use super::connections::StatementError;

/// One migration. Its SQL must not change after a release.
struct Migration {
    version: i64,
    description: &'static str,
    sql: &'static str,
    /// What follows the SQL in the same transaction.
    then: fn(&Connection) -> Result<(), StatementError>,
}

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        description: "sessions",
        sql: include_str!("migrations/0001_sessions.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 2,
        description: "files",
        sql: include_str!("migrations/0002_files.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 3,
        description: "sources",
        sql: include_str!("migrations/0003_sources.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 4,
        description: "runs",
        sql: include_str!("migrations/0004_runs.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 5,
        description: "session sizes",
        sql: include_str!("migrations/0005_session_sizes.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 6,
        description: "shared messages",
        sql: include_str!("migrations/0006_shared_messages.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 7,
        description: "chats",
        sql: include_str!("migrations/0007_chats.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 8,
        description: "pieces",
        sql: include_str!("migrations/0008_pieces.sql"),
        // Long texts stay in their rows.
        then: |_| Ok(()),
    },
    Migration {
        version: 9,
        description: "written at",
        sql: include_str!("migrations/0009_written_at.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 10,
        description: "instructions",
        sql: include_str!("migrations/0010_instructions.sql"),
        then: moves::instructions_to_rows,
    },
    Migration {
        version: 11,
        description: "kept answers",
        sql: include_str!("migrations/0011_kept_answers.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 12,
        description: "conversation metadata",
        sql: include_str!("migrations/0012_conversation_metadata.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 13,
        description: "expiry time",
        sql: include_str!("migrations/0013_expiry_time.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 14,
        description: "key usage",
        sql: include_str!("migrations/0014_key_usage.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 15,
        description: "whole messages",
        sql: include_str!("migrations/0015_whole_messages.sql"),
        then: moves::messages_to_sessions,
    },
    Migration {
        version: 16,
        description: "parked turns",
        sql: include_str!("migrations/0016_parked_turns.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 17,
        description: "approvals",
        sql: include_str!("migrations/0017_approvals.sql"),
        then: |_| Ok(()),
    },
    Migration {
        version: 18,
        description: "waiting runs",
        sql: include_str!("migrations/0018_waiting_runs.sql"),
        then: |_| Ok(()),
    },
];

/// Applies the missing migrations. Returns whether an older version has made the database. Blocks.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<bool, StoreError> {
    apply(connection, path, MIGRATIONS).map_err(StoreError::from)
}

fn apply(
    connection: &mut Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<bool, StatementError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS _sqlx_migrations (
            version BIGINT PRIMARY KEY,
            description TEXT NOT NULL,
            installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
            success BOOLEAN NOT NULL,
            checksum BLOB NOT NULL,
            execution_time BIGINT NOT NULL
        )",
    )?;
    let applied = applied(connection)?;
    let known = migrations.last().map_or(0, |last| last.version);
    for (version, success, checksum) in &applied {
        let problem = match migrations.iter().find(|one| one.version == *version) {
            None => {
                return Err(StatementError::Store(StoreError::NewerSchema {
                    location: path.display().to_string(),
                    found: applied.last().map_or(*version, |last| last.0),
                    known,
                }));
            }
            Some(_) if !success => "was not finished",
            Some(migration) if Sha384::digest(migration.sql)[..] != checksum[..] => {
                "differs from that of this binary"
            }
            Some(_) => continue,
        };
        let problem = format!("migration {version} of the database {problem}");
        return Err(StatementError::Store(StoreError::failed(problem)));
    }
    for migration in migrations {
        if !applied
            .iter()
            .any(|(version, ..)| *version == migration.version)
        {
            run(connection, migration)?;
        }
    }
    Ok(!applied.is_empty() && applied.len() < migrations.len())
}

fn applied(connection: &Connection) -> Result<Vec<(i64, bool, Vec<u8>)>, StatementError> {
    let mut statement = connection
        .prepare("SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn run(connection: &mut Connection, migration: &Migration) -> Result<(), StatementError> {
    let started = Instant::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration.sql)?;
    (migration.then)(&transaction)?;
    transaction.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (?1, ?2, TRUE, ?3, ?4)",
        params![
            migration.version,
            migration.description,
            &Sha384::digest(migration.sql)[..],
            i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX),
        ],
    )?;
    transaction.commit()?;
    Ok(())
}
