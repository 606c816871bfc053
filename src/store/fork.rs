//! Forks: copies of sessions.

use super::clock::seconds;
use super::leases::Fence;
use super::limits::Growth;
use super::record::SessionSummary;
use super::sessions::{INSTRUCTIONS_START, message_bytes};
use super::shares::StatementSize;
use super::tx::{Tx, signed, unsigned, values};
use super::usage::Room;
use super::{Store, StoreError, retrying};
use protocol::ids::SessionId;

impl Store {
    /// Copies the messages before the index `before_message`, or all. The index counts instructions and messages together.
    ///
    /// Pending client calls stay assigned to the source session. Both sessions use the same files.
    ///
    /// # Errors
    /// `LeaseLost`, `NotFound`, `Exists` when the new id is taken, `PastEnd`, `SessionTooLarge`, `Full`; else when the
    /// store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn fork(
        &self,
        source: &Fence,
        before_message: Option<usize>,
        new_id: &SessionId,
    ) -> Result<SessionSummary, StoreError> {
        let least = self.shared.sessions.limits().min_free_disk;
        self.engine.measure_disk(least).await;
        self.with_room(&source.owner, new_id, |room| {
            retrying(move || self.try_fork(source, before_message, new_id, room))
        })
        .await
    }

    /// Makes a fork within `room`. If the fork would add more, the inner error is the number of bytes.
    async fn try_fork(
        &self,
        source: &Fence,
        before_message: Option<usize>,
        new_id: &SessionId,
        room: Room,
    ) -> Result<Result<SessionSummary, u64>, StoreError> {
        let (owner, new) = (source.owner.as_str(), new_id.as_str());
        let mut tx = self.begin(&source.owner, StatementSize::Large).await?;
        tx.check_lease(source).await?;
        // Locks the row, and changes nothing.
        let sql = "UPDATE sessions SET written_at = written_at WHERE owner = $1 AND session_id = $2
            RETURNING num, instruction_count, message_count, coalesce(octet_length(metadata), 0), micros_1()";
        let head = tx.row(sql, values![owner, source.id.as_str()]).await?;
        let mut head = head.ok_or(StoreError::NotFound)?;
        let (row, instructions, total): (i64, i64, i64) =
            (head.column(0)?, head.column(1)?, head.column(2)?);
        let (metadata, now): (i64, i64) = (head.column(3)?, head.column(4)?);
        let sql = "SELECT 1 FROM sessions WHERE owner = $1 AND session_id = $2";
        if tx.row(sql, values![owner, new]).await?.is_some() {
            return Err(StoreError::Exists);
        }
        let messages = before_message.map_or(total, signed);
        if messages > total {
            let messages = unsigned(total);
            return Err(StoreError::PastEnd { messages });
        }
        let instructions = instructions.min(messages);
        let ends = [INSTRUCTIONS_START + instructions, messages - instructions];
        let (bytes, instruction_bytes) = bytes_until(&mut tx, row, ends).await?;
        let bytes = bytes + metadata;
        let after = unsigned(bytes);
        let before = None;
        self.check_session(Growth { before, after })?;
        if !self.admit(room, after) {
            return Ok(Err(after));
        }
        let sql = "INSERT INTO sessions (owner, session_id, instruction_count, instruction_bytes, message_count, bytes,
                                         title_seq, title, created_at, updated_at, metadata)
            SELECT owner, $2, $3, $4, $5, $6, CASE WHEN title_seq < $7 THEN title_seq END,
                   CASE WHEN title_seq < $7 THEN title END, $8, $8, metadata
            FROM sessions WHERE num = $1
            ON CONFLICT (owner, session_id) DO NOTHING RETURNING num, title";
        let made = tx
            .row(
                sql,
                values![
                    row,
                    new,
                    instructions,
                    instruction_bytes,
                    messages,
                    bytes,
                    ends[1],
                    now
                ],
            )
            .await?;
        let mut made = made.ok_or(StoreError::Exists)?;
        let copy: i64 = made.column(0)?;
        let sql = "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
            SELECT $2, seq, json, hidden, view, full_text, sources FROM messages
            WHERE session = $1 AND (seq < $3 OR seq >= 0 AND seq < $4)";
        tx.rows(sql, values![row, copy, ends[0], ends[1]]).await?;
        let sql = "INSERT INTO session_files (session, file) SELECT $2, file FROM session_files WHERE session = $1";
        tx.rows(sql, values![row, copy]).await?;
        tx.count_copied(after);
        tx.commit().await?;
        Ok(Ok(SessionSummary {
            id: new_id.clone(),
            created_at: seconds(now),
            updated_at: seconds(now),
            message_count: unsigned(messages),
            title: made.column(1)?,
            running: false,
            last_run: None,
        }))
    }
}

/// The bytes of the instructions and messages of a session before each of these places, and the bytes of the
/// instructions alone.
async fn bytes_until(tx: &mut Tx, session: i64, ends: [i64; 2]) -> Result<(i64, i64), StoreError> {
    let sql = concat!(
        "SELECT CAST(coalesce(sum(",
        message_bytes!(),
        "), 0) AS bigint), CAST(coalesce(sum(octet_length(json)) FILTER (WHERE seq < 0), 0) AS bigint)
         FROM messages WHERE session = $1 AND (seq < $2 OR seq >= 0 AND seq < $3)"
    );
    let mut sums = tx.one(sql, values![session, ends[0], ends[1]]).await?;
    Ok((sums.column(0)?, sums.column(1)?))
}
