//! Turns that wait for a decision, as values. A turn belongs to its session, counts for its size and goes with it. A change
//! that says so ends it. See [`super::approvals`] for what they wait for.

use super::approval::ApprovalQuestion;
use super::lease::Fence;
use super::limits::Growth;
use super::shares::StatementSize;
use super::tx::{SqlValue, signed, unsigned, values};
use super::usage::Room;
use super::{Store, StoreError, retrying};

impl Store {
    /// Keeps a turn with its session, in the place of an earlier one, until a [`super::Change`] ends it. The questions are
    /// inserted with it; one that is there stays as it is.
    ///
    /// # Errors
    /// `LeaseLost`, `NotFound` when the session does not exist, `SessionTooLarge`, `Full`; else when the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn keep_turn(
        &self,
        fence: &Fence,
        turn: &str,
        questions: &[ApprovalQuestion],
    ) -> Result<(), StoreError> {
        let least = self.shared.sessions.limits().min_free_disk;
        self.engine.measure_disk(least).await;
        self.with_room(&fence.owner, &fence.id, |room| {
            retrying(move || self.try_keep_turn(fence, (turn, questions), room))
        })
        .await
    }

    /// Keeps a turn if there is room for it. Else the inner error is what it would add.
    async fn try_keep_turn(
        &self,
        fence: &Fence,
        (turn, questions): (&str, &[ApprovalQuestion]),
        room: Room,
    ) -> Result<Result<(), u64>, StoreError> {
        let asked = questions.iter().map(ApprovalQuestion::bytes);
        let size = StatementSize::of_bytes((turn.len() + asked.sum::<usize>()) as u64);
        let mut tx = self.begin(&fence.owner, size).await?;
        tx.check_lease(fence).await?;
        let sql = "UPDATE sessions SET written_at = written_at WHERE owner = $1 AND session_id = $2 RETURNING num, bytes";
        let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
        let row = tx.row(sql, values![owner, id]).await?;
        let mut row = row.ok_or(StoreError::NotFound)?;
        let (session, before): (i64, i64) = (row.column(0)?, row.column(1)?);
        let sql = "SELECT CAST(coalesce(sum(octet_length(turn)), 0) AS bigint) FROM parked_turns WHERE session = $1";
        let earlier: i64 = tx.one(sql, values![session]).await?.column(0)?;
        let asked = tx.ask(session, questions).await?;
        let after = before - earlier + signed(turn.len()) + asked;
        let growth = Growth {
            before: Some(unsigned(before)),
            after: unsigned(after),
        };
        self.check_session(growth)?;
        if !self.admit(room, growth.added()) {
            return Ok(Err(growth.added()));
        }
        let sql = "INSERT INTO parked_turns (session, turn) VALUES ($1, $2)
            ON CONFLICT (session) DO UPDATE SET turn = excluded.turn";
        tx.rows(sql, values![session, SqlValue::any(turn)]).await?;
        let sql = "UPDATE sessions SET bytes = $2 WHERE num = $1";
        tx.rows(sql, values![session, after]).await?;
        tx.commit().await?;
        Ok(Ok(()))
    }
}
