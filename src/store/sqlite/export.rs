//! Reads whole tables in the order of their keys, a batch at a time.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};

use super::super::StoreError;
use super::super::copy::{CopiedRow, CopiedTable, CopiedValue, RowBatch, RowSource};
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::instructions::INSTRUCTIONS_START;
use super::pieces;
use super::read::damaged;
use super::shared::RowLayout;
use super::size::unsigned;
use super::write::{HIDDEN, count};
use crate::ids::Owner;

/// As an argument a value is part of a key, whose texts are of the type `TEXT`.
impl ToSql for CopiedValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Bytes(bytes) => ValueRef::Text(bytes),
        }))
    }
}

impl Sqlite {
    /// Removes hidden sessions and answers, so that every row of a file belongs to what is there.
    pub(in crate::store) async fn tidy(&self) -> Result<(), StoreError> {
        self.sweep().await?;
        self.sweep_runs().await
    }

    /// The number of rows of a table.
    pub(in crate::store) async fn count_rows(
        &self,
        table: &'static CopiedTable,
    ) -> Result<u64, StoreError> {
        let counted = self.0.reader.run(Owner::server(), Executor::Thread, |connection, _| {
            let rows = match table.source {
                RowSource::Query(query) => {
                    let sql = format!("SELECT count(*) FROM ({query})");
                    connection.query_row(&sql, [], |row| row.get(0))?
                }
                RowSource::Messages => {
                    let sql =
                        "SELECT coalesce(sum(message_count), 0) FROM sessions WHERE owner <> ?1";
                    connection.query_row(sql, [HIDDEN], |row| row.get(0))?
                }
            };
            Ok(unsigned(rows))
        });
        counted.await
    }

    /// The time of the last write of any kind.
    pub(in crate::store) async fn last_write(&self) -> Result<i64, StoreError> {
        let sql = "SELECT max(
            (SELECT coalesce(max(max(updated_at, written_at)), 0) FROM sessions),
            (SELECT coalesce(max(last_used_at), 0) FROM files),
            (SELECT coalesce(max(max(created_at, coalesce(ended_at, 0))), 0) FROM runs),
            (SELECT coalesce(max(created_at), 0) FROM idempotency_keys))";
        let read = self
            .0
            .reader
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                Ok(connection.query_row(sql, [], |row| row.get(0))?)
            });
        read.await
    }

    /// The next rows of a table after a key, or its first rows; none at the end.
    pub(in crate::store) async fn read_rows(
        &self,
        table: &'static CopiedTable,
        after: Option<CopiedRow>,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        let read = self
            .0
            .reader
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                // One transaction, so that all statements see the same state.
                let transaction = connection.transaction()?;
                match table.source {
                    RowSource::Query(query) => rows(&transaction, table, query, after.as_deref()),
                    RowSource::Messages => messages(&transaction, after.as_deref()),
                }
            });
        read.await
    }
}

fn rows(
    connection: &Connection,
    table: &CopiedTable,
    query: &str,
    after: Option<&[CopiedValue]>,
) -> Result<Vec<CopiedRow>, StatementError> {
    let sql = select(table, query, after.is_some());
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(after.into_iter().flatten()))?;
    let mut batch = RowBatch::default();
    while let Some(row) = rows.next()? {
        let values = (0..table.columns.len()).map(|index| value(row, index));
        if batch.add(values.collect::<Result<_, _>>()?) {
            break;
        }
    }
    Ok(batch.rows)
}

/// The statement for the rows of a table, all or those after a key. No row is read before it is needed.
fn select(table: &CopiedTable, query: &str, is_after: bool) -> String {
    let key = table.key_names();
    let names = key.join(", ");
    let marks = vec!["?"; key.len()].join(", ");
    let condition = match is_after {
        true => format!("WHERE ({names}) > ({marks})"),
        false => String::new(),
    };
    format!("SELECT * FROM ({query}) {condition} ORDER BY {names}")
}

/// The instructions and messages of all sessions, by session and index. What sessions share each of them has.
fn messages(
    connection: &Connection,
    after: Option<&[CopiedValue]>,
) -> Result<Vec<CopiedRow>, StatementError> {
    let (mut session, mut from) = match after {
        Some([CopiedValue::Integer(session), CopiedValue::Integer(seq), ..]) => (*session, seq + 1),
        Some(_) | None => (i64::MIN, INSTRUCTIONS_START),
    };
    let mut heads = connection.prepare_cached(
        "SELECT id, shared_instructions, shared FROM sessions WHERE id >= ?1 AND owner <> ?2 ORDER BY id LIMIT 1",
    )?;
    let mut texts = connection.prepare_cached(
        "SELECT seq, json, hidden, view, full_text, sources, long_bytes FROM messages
         WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
    )?;
    let mut batch = RowBatch::default();
    loop {
        let head = heads.query_row(params![session, HIDDEN], |row| {
            Ok(RowLayout {
                row: row.get(0)?,
                shared_instructions: row.get(1)?,
                shared: row.get(2)?,
            })
        });
        let Some(layout) = head.optional()? else {
            return Ok(batch.rows);
        };
        if layout.row != session {
            from = INSTRUCTIONS_START;
        }
        for part in layout.segments(connection, from)? {
            let mut rows = texts.query([part.row, part.from, part.to])?;
            while let Some(row) = rows.next()? {
                if batch.add(message(connection, layout.row, part.row, row)?) {
                    return Ok(batch.rows);
                }
            }
        }
        (session, from) = (layout.row + 1, INSTRUCTIONS_START);
    }
}

/// The row of a message, whose texts belong to the row `holder` of `sessions`.
fn message(
    connection: &Connection,
    session: i64,
    holder: i64,
    row: &Row<'_>,
) -> Result<CopiedRow, StatementError> {
    let seq: i64 = row.get(0)?;
    let long_bytes: i64 = row.get(6)?;
    let long = match long_bytes {
        0 => Default::default(),
        _ => pieces::load(connection, holder, seq)?,
    };
    if count(long.iter().map(Vec::len).sum()) != long_bytes {
        return Err(damaged(format!("stored message {seq} is not complete")));
    }
    let mut long = long.into_iter();
    let mut text = |index| match long.next().filter(|long| !long.is_empty()) {
        Some(long) => Ok(CopiedValue::Bytes(long)),
        None => value(row, index),
    };
    let [json, view, full_text, sources] = [text(1)?, text(3)?, text(4)?, text(5)?];
    let (session, seq) = (CopiedValue::Integer(session), CopiedValue::Integer(seq));
    let hidden = value(row, 2)?;
    Ok(vec![session, seq, json, hidden, view, full_text, sources])
}

fn value(row: &Row<'_>, index: usize) -> Result<CopiedValue, StatementError> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => CopiedValue::Null,
        ValueRef::Integer(number) => CopiedValue::Integer(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => CopiedValue::Bytes(bytes.to_vec()),
        ValueRef::Real(_) => return Err(damaged("a stored value is a fraction".to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::copy::TABLES;
    use super::super::open::open;
    use super::*;

    #[tokio::test]
    async fn no_table_is_sorted_to_be_read() {
        let opened = open(None).unwrap();
        let plans = opened
            .reader
            .run(Owner::server(), Executor::Thread, |connection, _| {
                let mut plans = Vec::new();
                for table in TABLES {
                    let RowSource::Query(query) = table.source else {
                        continue;
                    };
                    for is_after in [false, true] {
                        let sql = format!("EXPLAIN QUERY PLAN {}", select(table, query, is_after));
                        let mut statement = connection.prepare(&sql)?;
                        let key = (0..statement.parameter_count()).map(|_| CopiedValue::Integer(0));
                        let mut rows = statement.query(params_from_iter(key))?;
                        while let Some(row) = rows.next()? {
                            plans.push(format!("{}: {}", table.name, row.get::<_, String>(3)?));
                        }
                    }
                }
                Ok(plans)
            });
        let plans = plans.await.unwrap();
        assert!(plans.len() > 2 * TABLES.len() - 3, "{plans:?}");
        let sorted: Vec<_> = plans
            .iter()
            .filter(|plan| plan.contains("TEMP B-TREE"))
            .collect();
        assert!(sorted.is_empty(), "{plans:#?}");
    }
}
