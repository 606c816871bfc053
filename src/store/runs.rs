//! Records of runs and their answers.

use std::time::Duration;

use bytes::Bytes;

use super::answer::{AnswerParts, NewAnswerHead};
use super::clock::seconds;
use super::run::{AnswerLimits, KEY_TTL, RunAnswer, RunRecord, RunRecordState};
use super::shares::StatementSize;
use super::tx::{Row, SqlValue, Tx, session_id, signed, values};
use super::{Engine, Store, StoreError, retrying};
use protocol::ids::{Owner, RunId, SessionId};

/// Records a run as running. No row is returned if the id belongs to another owner.
pub(super) const BEGIN_RUN: &str =
    "INSERT INTO runs (id, owner, session_id, status, replica, created_at) VALUES ($1, $2, $3, 'running', $4, micros_1())
     ON CONFLICT (id) DO UPDATE SET
        session_id = coalesce(excluded.session_id, runs.session_id),
        replica = CASE runs.status WHEN 'ended' THEN runs.replica ELSE excluded.replica END,
        ended_at = CASE runs.status WHEN 'interrupted' THEN NULL ELSE runs.ended_at END,
        status = CASE runs.status WHEN 'interrupted' THEN 'running' ELSE runs.status END
     WHERE runs.owner = excluded.owner RETURNING 1";

/// Marks a run as ended.
macro_rules! end_run {
    () => {
        "UPDATE runs SET status = 'ended', ended_at = micros_1(), http_status = $3, headers = $4, bytes = $5, kept = $6
         WHERE id = $1 AND owner = $2 AND status <> 'ended' RETURNING num"
    };
}

impl Store {
    /// Limits the bytes of all answers. Without this call only each answer is limited.
    pub fn limit_answers(&self, total: u64) {
        self.shared.answers.limit(AnswerLimits::within(total));
    }

    /// Records a run as running. An existing record gets the session, if one is given, and is running again if it was
    /// interrupted. The record of an ended run is not changed.
    ///
    /// # Errors
    /// `Exists` when the id belongs to another owner; else when the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn begin_run(
        &self,
        run: &RunId,
        owner: &Owner,
        session: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let mut tx = self.single(owner, StatementSize::Small).await?;
        self.record_run(&mut tx, run, owner, session.map(SessionId::as_str))
            .await
    }

    pub(super) async fn record_run(
        &self,
        tx: &mut Tx,
        run: &RunId,
        owner: &Owner,
        session: Option<&str>,
    ) -> Result<(), StoreError> {
        let replica = self.engine.replica();
        let values = values![run.as_str(), owner.as_str(), session, replica];
        let begun = tx.row(BEGIN_RUN, values).await?;
        begun.map(drop).ok_or(StoreError::Exists)
    }

    /// Stores the answer of a run. Without a record, or if there is already an answer, nothing is changed.
    ///
    /// The record of an answer of more than 64 MiB is deleted. If all answers together exceed their limit, the oldest
    /// ones of the owner with the most bytes are deleted first, with their records. Their idempotency keys stay.
    ///
    /// # Errors
    /// When the store fails; the record is not changed.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn end_run(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: RunAnswer,
    ) -> Result<(), StoreError> {
        let limits = self.shared.answers.limits();
        let (head, body) = NewAnswerHead::of(answer).await?;
        let bytes = head.bytes();
        let size = StatementSize::of_bytes(bytes as u64);
        if bytes > limits.answer {
            tracing::warn!(bytes, "the answer of a run is too large to be stored");
            let sql =
                "DELETE FROM runs WHERE id = $1 AND owner = $2 AND status <> 'ended' RETURNING 1";
            let mut tx = self.single(owner, StatementSize::Small).await?;
            let values = values![run.as_str(), owner.as_str()];
            return tx.rows(sql, values).await.map(drop);
        }
        let parts = AnswerParts::of(body);
        match size {
            StatementSize::Small => self.end(run, owner, &head, parts).await?,
            StatementSize::Large => {
                // The write continues if the future is dropped.
                let (store, run, owner) = (self.clone(), run.clone(), owner.clone());
                let writing = async move { store.end(&run, &owner, &head, parts).await };
                let written = self.engine.tasks().spawn(writing);
                written.await.map_err(StoreError::failed)??;
            }
        }
        if self.shared.answers.count_added(bytes, self.is_shared()) {
            self.evict_answers((owner, run), limits.total).await?;
        }
        Ok(())
    }

    async fn end(
        &self,
        run: &RunId,
        owner: &Owner,
        head: &NewAnswerHead,
        mut parts: AnswerParts,
    ) -> Result<(), StoreError> {
        let (id, key, bytes) = (run.as_str(), owner.as_str(), signed(head.bytes()));
        let status = i64::from(head.status);
        let headers = SqlValue::any(&head.headers);
        let size = StatementSize::of_bytes(head.bytes() as u64);
        if let (StatementSize::Small, Engine::Postgres(_)) = (size, &self.engine) {
            // One statement, as nearly all runs end.
            let sql = concat!(
                "WITH ended AS (",
                end_run!(),
                ") INSERT INTO run_bodies (run, seq, piece) SELECT num, 0, $7 FROM ended WHERE length($7) > 0"
            );
            let body = parts.next().await?.unwrap_or_default();
            let mut tx = self.single(owner, size).await?;
            let values = values![id, key, status, headers, bytes, head.kept, &body[..]];
            return tx.rows(sql, values).await.map(drop);
        }
        let mut part = parts.next().await?;
        let mut tx = self.begin(owner, size).await?;
        let values = values![id, key, status, headers, bytes, head.kept];
        let Some(mut row) = tx.row(end_run!(), values).await? else {
            return Ok(());
        };
        let (num, mut seq) = (row.column::<i64>(0)?, 0_i64);
        while let Some(piece) = part {
            let sql = "INSERT INTO run_bodies (run, seq, piece) VALUES ($1, $2, $3)";
            tx.rows(sql, values![num, seq, &piece[..]]).await?;
            seq += 1;
            part = parts.next().await?;
        }
        tx.commit().await
    }

    /// The record of a run, or `None` if the owner has no run with this id.
    ///
    /// # Errors
    /// When the store fails or the stored data is damaged.
    pub async fn run(&self, owner: &Owner, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let sql = "SELECT session_id, created_at, bytes,
                CASE WHEN status = 'running' AND replica = $3 THEN 'running'
                     WHEN status = 'running' AND is_alive_1(replica) THEN 'elsewhere'
                     WHEN status = 'running' THEN 'interrupted' ELSE status END,
                (coalesce(http_status, 200) < 400 OR http_status = 409) AND EXISTS (SELECT 1 FROM parked_turns t JOIN sessions s ON s.num = t.session
                    WHERE t.run_id = runs.id AND s.owner = runs.owner)
            FROM runs WHERE id = $1 AND owner = $2";
        let mut tx = self.read(owner, StatementSize::Small).await?;
        let values = values![run.as_str(), owner.as_str(), self.engine.replica()];
        let Some(mut row) = tx.row(sql, values).await? else {
            return Ok(None);
        };
        let bytes = row.unsigned(2)?;
        let state = match &*row.column::<String>(3)? {
            "running" => RunRecordState::Running,
            "elsewhere" => RunRecordState::RunningElsewhere,
            "interrupted" => RunRecordState::Interrupted,
            "ended" => RunRecordState::Ended { bytes },
            other => {
                let problem = format!("a stored run has the status {other:?}");
                return Err(StoreError::failed(problem));
            }
        };
        let session: Option<String> = row.column(0)?;
        Ok(Some(RunRecord {
            id: run.clone(),
            owner: owner.clone(),
            session_id: session.map(session_id).transpose()?,
            created_at: seconds(row.column(1)?),
            state,
            is_suspended: row.column(4)?,
        }))
    }

    /// The answer of a run that has ended, or `None` if there is none.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub async fn answer(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<RunAnswer>, StoreError> {
        // One statement, so that the pieces belong to the row. The row comes first.
        let sql = "WITH head AS MATERIALIZED (
                SELECT num, http_status, headers, bytes, kept
                FROM runs WHERE id = $1 AND owner = $2 AND status = 'ended')
            SELECT seq, piece, NULL, NULL, NULL, NULL FROM run_bodies WHERE run = (SELECT num FROM head)
            UNION ALL
            SELECT NULL, NULL, http_status, headers, bytes, kept FROM head
            ORDER BY seq NULLS FIRST";
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let mut read: Option<ReadAnswer> = None;
        let mut visit = |mut row: Row| match &mut read {
            None => ReadAnswer::of(row).map(|begun| read = Some(begun)),
            Some(read) => {
                read.body.extend_from_slice(&row.column::<Bytes>(1)?);
                Ok(())
            }
        };
        let values = values![run.as_str(), owner.as_str()];
        tx.for_each(sql, values, &mut visit).await?;
        read.map(ReadAnswer::finish).transpose()
    }

    /// Deletes the record of a run and its idempotency keys; returns whether there was a record.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// As [`Store::write`].
    pub async fn delete_run(&self, owner: &Owner, run: &RunId) -> Result<bool, StoreError> {
        self.engine.make_space_to_delete().await;
        retrying(|| async move {
            let values = values![owner.as_str(), run.as_str()];
            let mut tx = self.begin(owner, StatementSize::Large).await?;
            let keys = "DELETE FROM idempotency_keys WHERE owner = $1 AND run = $2";
            tx.rows(keys, values).await?;
            let record = "DELETE FROM runs WHERE owner = $1 AND id = $2 RETURNING 1";
            let deleted = tx.count(record, values).await?;
            tx.commit().await?;
            Ok(deleted > 0)
        })
        .await
    }

    /// Deletes the records of runs that ended, or were found interrupted, more than `age` ago; returns how many. Deletes
    /// expired idempotency keys too.
    ///
    /// # Errors
    /// When the store fails; some records may have been deleted.
    ///
    /// # Cancel safety
    /// As [`Store::expire`].
    pub async fn expire_runs(&self, age: Duration) -> Result<u64, StoreError> {
        let runs = "DELETE FROM runs WHERE num IN (
                SELECT num FROM (
                    SELECT num, sum(bytes) OVER (ORDER BY ended_at, num) - bytes AS before FROM (
                        SELECT num, bytes, ended_at FROM runs r
                        WHERE r.ended_at < expiry_time_4() - $1 AND NOT (r.kept AND EXISTS (
                            SELECT 1 FROM sessions s WHERE s.owner = r.owner AND s.session_id = r.session_id))
                            AND NOT EXISTS (SELECT 1 FROM parked_turns t WHERE t.run_id = r.id)
                        ORDER BY ended_at, num LIMIT $2) oldest) batch
                WHERE before < $3)
            RETURNING 1";
        let keys = "DELETE FROM idempotency_keys WHERE (owner, key) IN (
                SELECT owner, key FROM idempotency_keys WHERE created_at < expiry_time_4() - $1
                ORDER BY created_at LIMIT $2) AND $3 > 0
            RETURNING 1";
        self.engine.advance_expiry().await?;
        let expired = self.delete_older(runs, age).await?;
        self.delete_older(keys, KEY_TTL).await?;
        Ok(expired)
    }
}

/// An answer while its pieces are read.
struct ReadAnswer {
    status: u16,
    headers: String,
    kept: bool,
    length: usize,
    body: Vec<u8>,
}

impl ReadAnswer {
    fn of(mut head: Row) -> Result<Self, StoreError> {
        let headers: String = head.column(3)?;
        let length = usize::try_from(head.unsigned(4)?).unwrap_or(usize::MAX);
        let length = length.saturating_sub(headers.len());
        Ok(Self {
            status: u16::try_from(head.column::<i64>(2)?).map_err(StoreError::failed)?,
            headers,
            kept: head.column(5)?,
            length,
            body: Vec::with_capacity(length.min(AnswerLimits::ANSWER)),
        })
    }

    fn finish(self) -> Result<RunAnswer, StoreError> {
        let (stored, length) = (self.body.len(), self.length);
        if stored != length {
            let problem = format!("{stored} bytes of a stored answer of {length} bytes are there");
            return Err(StoreError::failed(problem));
        }
        RunAnswer::stored(self.status, &self.headers, self.body.into(), self.kept)
    }
}
