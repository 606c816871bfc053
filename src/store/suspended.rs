//! Suspended turns that wait for a decision, as values. A turn belongs to its session, counts for its size and is
//! deleted with it. A [`super::TurnChange`] ends it. See [`super::approvals`] for the questions.

use super::approval::ApprovalQuestion;
use super::leases::Fence;
use super::limits::Growth;
use super::shares::StatementSize;
use super::tx::{SqlValue, run_id, session_id, signed, unsigned, values};
use super::usage::Room;
use super::{Store, StoreError, retrying};
use protocol::ids::{Owner, RunId, SessionId};

/// Whether a run has not failed, and no process runs it but this one, which is `$1`. A 409 means that the session was
/// busy; the turn still exists.
macro_rules! can_resume {
    () => {
        "(coalesce(r.http_status, 200) < 400 OR r.http_status = 409)
            AND (r.status <> 'running' OR r.replica = $1 OR NOT is_alive_1(r.replica))"
    };
}

/// A run that resumes its suspended turn by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendedRun {
    /// The session of the turn.
    pub session: SessionId,
    /// The turn.
    pub turn: String,
}

impl Store {
    /// Suspends a turn: stores it with its session until a [`super::Change`] ends it, and replaces an earlier one.
    /// Inserts the questions; a question that exists is not changed.
    ///
    /// If the text of the turn begins with `{"run":"ID"`, that run waits, and resumes the turn by itself.
    ///
    /// # Errors
    /// `LeaseLost`, `NotFound` when the session does not exist, `SessionTooLarge`, `Full`; else when the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn suspend_turn(
        &self,
        fence: &Fence,
        turn: &str,
        questions: &[ApprovalQuestion],
    ) -> Result<(), StoreError> {
        let least = self.shared.sessions.limits().min_free_disk;
        self.engine.measure_disk(least).await;
        self.with_room(&fence.owner, &fence.id, |room| {
            retrying(move || self.try_suspend_turn(fence, (turn, questions), room))
        })
        .await
    }

    /// Stores a turn within `room`. If the turn would add more, the inner error is the number of bytes.
    async fn try_suspend_turn(
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

    /// The runs that can resume by themselves, with their owners: each question of their turns is decided or has
    /// expired. At most `limit`; each owner's first run comes before the second of any.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn decided_runs(&self, limit: usize) -> Result<Vec<(Owner, RunId)>, StoreError> {
        let sql = concat!(
            "SELECT r.owner, r.id FROM parked_turns t JOIN runs r ON r.id = t.run_id
            JOIN sessions s ON s.num = t.session AND s.owner = r.owner
            WHERE t.run_id IS NOT NULL AND ",
            can_resume!(),
            " AND NOT EXISTS (SELECT 1 FROM approvals a
                WHERE a.session = t.session AND a.state = 'waiting' AND a.expires_at > micros_1())
            ORDER BY row_number() OVER (PARTITION BY r.owner ORDER BY r.num), r.num LIMIT $2"
        );
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        let values = values![self.engine.replica(), signed(limit)];
        let rows = tx.rows(sql, values).await?.into_iter();
        rows.map(|mut row| {
            let (owner, run): (String, String) = (row.column(0)?, row.column(1)?);
            Ok((Owner::key(&owner), run_id(&run)?))
        })
        .collect()
    }

    /// The run that resumes the suspended turn of a session by itself, if there is one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn suspended_run_of(
        &self,
        owner: &Owner,
        session: &SessionId,
    ) -> Result<Option<RunId>, StoreError> {
        let sql = "SELECT t.run_id FROM parked_turns t JOIN sessions s ON s.num = t.session
            WHERE s.owner = $1 AND s.session_id = $2 AND t.run_id IS NOT NULL";
        let mut tx = self.read(owner, StatementSize::Small).await?;
        let values = values![owner.as_str(), session.as_str()];
        let found = tx.row(sql, values).await?;
        found
            .map(|mut row| run_id(&row.column::<String>(0)?))
            .transpose()
    }

    /// What a run that waits resumes with: `None` if it waits no longer, or another process runs it.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn suspended_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<SuspendedRun>, StoreError> {
        let sql = concat!(
            "SELECT s.session_id, t.turn FROM parked_turns t JOIN runs r ON r.id = t.run_id
            JOIN sessions s ON s.num = t.session AND s.owner = r.owner
            WHERE r.owner = $2 AND r.id = $3 AND ",
            can_resume!()
        );
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let values = values![self.engine.replica(), owner.as_str(), run.as_str()];
        let found = tx.row(sql, values).await?;
        let read = |mut row: super::tx::Row| {
            let session = session_id(row.column(0)?)?;
            let turn = row.column(1)?;
            Ok(SuspendedRun { session, turn })
        };
        found.map(read).transpose()
    }

    /// Records a waiting run as running in this process, and returns the turn that it resumes: `None` if it does not
    /// wait any more, or another process runs it. Deletes its earlier answer.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn take_suspended_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<SuspendedRun>, StoreError> {
        retrying(|| self.try_take_suspended_run(owner, run)).await
    }

    async fn try_take_suspended_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<SuspendedRun>, StoreError> {
        let mut tx = self.begin(owner, StatementSize::Large).await?;
        let replica = self.engine.replica();
        let sql = concat!(
            "UPDATE runs AS r SET status = 'running', replica = $1, ended_at = NULL
            WHERE r.owner = $2 AND r.id = $3 AND ",
            can_resume!(),
            " AND EXISTS (SELECT 1 FROM parked_turns t JOIN sessions s ON s.num = t.session
                WHERE t.run_id = r.id AND s.owner = r.owner)
            RETURNING num"
        );
        let values = values![replica, owner.as_str(), run.as_str()];
        let Some(mut taken) = tx.row(sql, values).await? else {
            return Ok(None);
        };
        let num: i64 = taken.column(0)?;
        tx.rows("DELETE FROM run_bodies WHERE run = $1", values![num])
            .await?;
        let sql =
            "SELECT s.session_id, t.turn FROM parked_turns t JOIN sessions s ON s.num = t.session
            WHERE t.run_id = $2 AND s.owner = $1";
        let found = tx.row(sql, values![owner.as_str(), run.as_str()]).await?;
        let Some(mut row) = found else {
            return Ok(None);
        };
        let session = session_id(row.column(0)?)?;
        let turn = row.column(1)?;
        tx.commit().await?;
        Ok(Some(SuspendedRun { session, turn }))
    }
}
