//! The statements that write answers.

use rusqlite::{Connection, params};

use super::super::super::answer::NewAnswerHead;
use super::super::connections::StatementError;
use super::super::pieces::PIECE;
use super::super::write::count;
use super::rows::RunRow;

/// Marks a record that has all pieces as ended.
pub(super) fn complete(
    connection: &Connection,
    head: &NewAnswerHead,
    row: &RunRow,
    now: i64,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET status = 'ended', ended_at = ?2, http_status = ?3, headers = ?4, bytes = ?5,
            kept = ?6
         WHERE num = ?1",
    )?;
    let bytes = count(head.bytes());
    let head = params![row.num, now, head.status, head.headers, bytes, head.kept];
    statement.execute(head)?;
    Ok(())
}

/// Inserts a part of a body in pieces from the number `seq`; returns the number after them.
pub(super) fn add_part(
    connection: &Connection,
    run: i64,
    mut seq: i64,
    part: &[u8],
) -> Result<i64, StatementError> {
    let mut statement = connection
        .prepare_cached("INSERT INTO run_bodies (run, seq, piece) VALUES (?1, ?2, ?3)")?;
    for piece in part.chunks(PIECE) {
        statement.execute(params![run, seq, piece])?;
        seq += 1;
    }
    Ok(seq)
}
