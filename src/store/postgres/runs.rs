//! Records of runs and idempotency keys.

use std::time::Duration;

use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::{Connection, query};

use super::super::StoreError;
use super::super::answer::{AnswerParts, NewAnswerHead};
use super::super::clock::seconds;
use super::super::run::{AnswerLimits, KEY_TTL, KeyClaim, RunRecord, RunRecordState, StoredAnswer};
use super::super::shares::StatementSize;
use super::Postgres;
use super::connect::{column, execute, failed, signed, text_of, unsigned};
use super::sessions::{run_id, session_id};
use super::sweep::BATCH;
use crate::ids::{Owner, RunId, SessionId};
use crate::parted::PartedText;

/// Most attempts to claim a key that expires or is released meanwhile. After them the request fails.
const CLAIMS: usize = 5;

impl Postgres {
    pub(in crate::store) fn share_connections(&self, shared: bool) {
        self.0.connections.share(shared);
    }

    pub(in crate::store) async fn begin_run(
        &self,
        run: &RunId,
        owner: &Owner,
        session: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let begin = || {
            query("SELECT begin_run_1($1, $2, $3, $4)")
                .bind(owner.as_str())
                .bind(run.as_str())
                .bind(session.map(SessionId::as_str))
                .bind(&*self.0.replica)
        };
        self.0.connections.small(owner).rows(begin).await.map(drop)
    }

    pub(in crate::store) async fn end_run(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        let limits = self.0.answers.limits();
        let (head, body) = NewAnswerHead::of(answer).await?;
        let bytes = head.bytes();
        if bytes > limits.answer {
            tracing::warn!(bytes, "the answer of a run is too large to be stored");
            let sql = "DELETE FROM runs WHERE id = $1 AND owner = $2 AND status <> 'ended'";
            let delete = || query(sql).bind(run.as_str()).bind(owner.as_str());
            return self.0.connections.small(owner).rows(delete).await.map(drop);
        }
        if StatementSize::of_bytes(bytes as u64) == StatementSize::Small {
            let body = body.whole().await.map_err(StoreError::failed)?;
            self.end_short(run, owner, &head, &body).await?;
        } else {
            // The write continues if the future is dropped.
            let (store, run, owner) = (self.clone(), run.clone(), owner.clone());
            let writing = async move { store.end_in_parts(&run, &owner, &head, body).await };
            let written = self.0.tasks.spawn(writing);
            written.await.map_err(StoreError::failed)??;
        }
        if self.0.answers.count_added(bytes) {
            self.evict_answers((owner, run), limits.total).await?;
        }
        Ok(())
    }

    async fn end_short(
        &self,
        run: &RunId,
        owner: &Owner,
        head: &NewAnswerHead,
        body: &Bytes,
    ) -> Result<(), StoreError> {
        let sql = "WITH ended AS (
                UPDATE runs SET status = 'ended', ended_at = micros_1(), http_status = $3, headers = $4, bytes = $5, kept = $6
                WHERE id = $1 AND owner = $2 AND status <> 'ended' RETURNING num)
            INSERT INTO run_bodies (run, seq, piece) SELECT num, 0, $7 FROM ended WHERE length($7) > 0";
        let end = || {
            query(sql)
                .bind(run.as_str())
                .bind(owner.as_str())
                .bind(i32::from(head.status))
                .bind(head.headers.as_bytes())
                .bind(signed(head.bytes()))
                .bind(head.kept)
                .bind(&body[..])
        };
        self.0.connections.small(owner).rows(end).await.map(drop)
    }

    async fn end_in_parts(
        &self,
        run: &RunId,
        owner: &Owner,
        head: &NewAnswerHead,
        body: PartedText,
    ) -> Result<(), StoreError> {
        let (mut connection, _share) = self.0.connections.large(owner).connection().await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        let sql = "UPDATE runs SET status = 'ended', ended_at = micros_1(), http_status = $3, headers = $4, bytes = $5,
                kept = $6
            WHERE id = $1 AND owner = $2 AND status <> 'ended' RETURNING num";
        let end = query(sql).bind(run.as_str()).bind(owner.as_str());
        let end = end
            .bind(i32::from(head.status))
            .bind(head.headers.as_bytes());
        let end = end.bind(signed(head.bytes())).bind(head.kept);
        let ended = execute(&mut transaction, end).await?;
        let Some(row) = ended.first() else {
            return Ok(());
        };
        let num: i64 = column(row, 0)?;
        let mut parts = AnswerParts::of(body);
        let mut seq = 0_i64;
        while let Some(part) = parts.next().await? {
            let sql = "INSERT INTO run_bodies (run, seq, piece) VALUES ($1, $2, $3)";
            let insert = query(sql).bind(num).bind(seq).bind(&part[..]);
            execute(&mut transaction, insert).await?;
            seq += 1;
        }
        transaction.commit().await.map_err(failed)
    }

    pub(in crate::store) async fn run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<RunRecord>, StoreError> {
        let sql = "SELECT session_id, created_at, bytes,
                CASE WHEN status <> 'running' THEN status WHEN replica = $3 THEN 'running'
                     WHEN is_alive_1(replica) THEN 'elsewhere' ELSE 'interrupted' END
            FROM runs WHERE id = $1 AND owner = $2";
        let select = || {
            let statement = query(sql).bind(run.as_str()).bind(owner.as_str());
            statement.bind(&*self.0.replica)
        };
        let Some(row) = self.0.connections.small(owner).row(select).await? else {
            return Ok(None);
        };
        let state = match column(&row, 3)? {
            "running" => RunRecordState::Running,
            "elsewhere" => RunRecordState::RunningElsewhere,
            "interrupted" => RunRecordState::Interrupted,
            "ended" => RunRecordState::Ended {
                bytes: u64::try_from(column::<i64>(&row, 2)?).unwrap_or_default(),
            },
            other => {
                let problem = format!("a stored run has the status {other:?}");
                return Err(StoreError::failed(problem));
            }
        };
        Ok(Some(RunRecord {
            id: run.clone(),
            owner: owner.clone(),
            session_id: column::<Option<String>>(&row, 0)?
                .map(session_id)
                .transpose()?,
            created_at: seconds(column(&row, 1)?),
            state,
        }))
    }

    pub(in crate::store) async fn answer(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<StoredAnswer>, StoreError> {
        // One statement, so that the pieces belong to the row. The row comes first.
        let sql = "WITH head AS MATERIALIZED (
                SELECT num, http_status, headers, bytes, kept
                FROM runs WHERE id = $1 AND owner = $2 AND status = 'ended')
            SELECT NULL::bigint AS seq, NULL::bytea, http_status, headers, bytes, kept FROM head
            UNION ALL
            SELECT seq, piece, NULL, NULL, NULL, NULL FROM run_bodies
            WHERE run = (SELECT num FROM head)
            ORDER BY seq NULLS FIRST";
        let select = || query(sql).bind(run.as_str()).bind(owner.as_str());
        let rows = self.0.connections.large(owner).rows(select).await?;
        match rows.split_first() {
            Some((head, pieces)) => answer(head, pieces).map(Some),
            None => Ok(None),
        }
    }

    pub(in crate::store) async fn delete_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<bool, StoreError> {
        let sql = "WITH keys AS (DELETE FROM idempotency_keys WHERE owner = $1 AND run = $2)
            DELETE FROM runs WHERE owner = $1 AND id = $2 RETURNING 1";
        let delete = || query(sql).bind(owner.as_str()).bind(run.as_str());
        Ok(self.0.connections.large(owner).row(delete).await?.is_some())
    }

    pub(in crate::store) async fn claim_key(
        &self,
        owner: &Owner,
        key: &str,
        fingerprint: &[u8; 32],
        run: &RunId,
    ) -> Result<KeyClaim, StoreError> {
        let claim_sql = "INSERT INTO idempotency_keys AS k (owner, key, fingerprint, run, created_at, recorded, replica)
            SELECT $1, $2, $3, $4, micros_1(), EXISTS (SELECT 1 FROM runs WHERE id = $4 AND owner = $1), $5
            ON CONFLICT (owner, key) DO UPDATE SET fingerprint = excluded.fingerprint, run = excluded.run,
                created_at = excluded.created_at, recorded = excluded.recorded, replica = excluded.replica
            WHERE k.created_at < expiry_time_4() - $6 OR k.run = excluded.run
            RETURNING 1";
        let find_sql =
            "SELECT fingerprint, run FROM idempotency_keys WHERE owner = $1 AND key = $2";
        let ttl = micros(KEY_TTL);
        for _ in 0..CLAIMS {
            let claim = || {
                let statement = query(claim_sql).bind(owner.as_str()).bind(key.as_bytes());
                let statement = statement.bind(&fingerprint[..]).bind(run.as_str());
                statement.bind(&*self.0.replica).bind(ttl)
            };
            if self.0.connections.small(owner).row(claim).await?.is_some() {
                // The end of its run looks whether that is too much.
                let _full = self.0.answers.count_added(key.len());
                return Ok(KeyClaim::New);
            }
            let find = || query(find_sql).bind(owner.as_str()).bind(key.as_bytes());
            if let Some(held) = self.0.connections.small(owner).row(find).await? {
                if column::<&[u8]>(&held, 0)? != fingerprint {
                    return Ok(KeyClaim::Reused);
                }
                let run = run_id(column(&held, 1)?)?;
                return Ok(KeyClaim::Held { run });
            }
        }
        Err(StoreError::failed(
            "an idempotency key changed its holder again and again",
        ))
    }

    pub(in crate::store) async fn release_key(
        &self,
        owner: &Owner,
        key: &str,
        run: &RunId,
    ) -> Result<(), StoreError> {
        let sql = "DELETE FROM idempotency_keys WHERE owner = $1 AND key = $2 AND run = $3";
        let delete = || {
            query(sql)
                .bind(owner.as_str())
                .bind(key.as_bytes())
                .bind(run.as_str())
        };
        self.0.connections.small(owner).rows(delete).await.map(drop)
    }

    pub(in crate::store) async fn reclaim_key(
        &self,
        owner: &Owner,
        key: &str,
        from: &RunId,
        to: &RunId,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT reclaim_key_1($1, $2, $3, $4, expiry_time_4() - $5, $6)";
        let reclaim = || {
            let statement = query(sql).bind(owner.as_str()).bind(key.as_bytes());
            let statement = statement.bind(from.as_str()).bind(to.as_str());
            statement.bind(micros(KEY_TTL)).bind(&*self.0.replica)
        };
        column(&self.0.connections.small(owner).one(reclaim).await?, 0)
    }

    pub(in crate::store) async fn expire_runs(&self, age: Duration) -> Result<u64, StoreError> {
        let sql = "DELETE FROM runs WHERE num IN (
                SELECT r.num FROM runs r WHERE r.ended_at < expiry_time_4() - $1 AND NOT (r.kept AND EXISTS (
                    SELECT 1 FROM sessions s WHERE s.owner = r.owner AND s.session_id = r.session_id))
                ORDER BY r.ended_at LIMIT $2)
            RETURNING 1";
        self.advance_expiry().await?;
        let expired = self
            .in_batches(|| query(sql).bind(micros(age)).bind(BATCH))
            .await?;
        let sql = "DELETE FROM idempotency_keys WHERE (owner, key) IN (
                SELECT owner, key FROM idempotency_keys WHERE created_at < expiry_time_4() - $1
                ORDER BY created_at LIMIT $2)
            RETURNING 1";
        self.in_batches(|| query(sql).bind(micros(KEY_TTL)).bind(BATCH))
            .await?;
        Ok(expired)
    }

    /// Removes answers and idempotency keys until their total is within the limit, but not those of `written`. The oldest
    /// answers of the owner with the most bytes go first, and keys when it has none: a request that is repeated with a lost
    /// key runs again. A key whose run has not ended stays.
    async fn evict_answers(
        &self,
        (owner, written): (&Owner, &RunId),
        most: u64,
    ) -> Result<(), StoreError> {
        let sum_sql = "SELECT coalesce(sum(bytes), 0)::bigint + $1 * count(*) FROM (
            SELECT bytes FROM runs WHERE status = 'ended' UNION ALL SELECT length(key) FROM idempotency_keys) parts";
        let evict_sql = "WITH usage AS (
                SELECT owner, sum(bytes) + $2 * count(*) AS bytes FROM (
                    SELECT owner, bytes FROM runs WHERE status = 'ended'
                    UNION ALL SELECT owner, length(key) FROM idempotency_keys) parts
                GROUP BY owner),
            ended AS NOT MATERIALIZED (
                SELECT owner, key, created_at FROM idempotency_keys k WHERE k.recorded AND k.run <> $1 AND NOT EXISTS (
                    SELECT 1 FROM runs r WHERE r.id = k.run AND r.owner = k.owner AND r.status <> 'ended')),
            next AS (
                SELECT usage.owner, answer.num FROM usage
                LEFT JOIN LATERAL (
                    SELECT num FROM runs r WHERE r.owner = usage.owner AND r.status = 'ended' AND r.id <> $1
                    ORDER BY r.ended_at LIMIT 1) answer ON true
                WHERE answer.num IS NOT NULL OR EXISTS (SELECT 1 FROM ended WHERE ended.owner = usage.owner)
                ORDER BY usage.bytes DESC LIMIT 1),
            answers AS (DELETE FROM runs WHERE num = (SELECT num FROM next) RETURNING 1),
            keys AS (
                DELETE FROM idempotency_keys WHERE (owner, key) IN (
                    SELECT owner, key FROM ended WHERE owner = (SELECT owner FROM next WHERE num IS NULL)
                    ORDER BY created_at LIMIT $3)
                RETURNING 1)
            SELECT 1 FROM answers UNION ALL SELECT 1 FROM keys";
        let row_bytes = signed(AnswerLimits::ROW);
        let _alone = self.0.answers.evicting.lock().await;
        loop {
            let sum = self
                .0
                .connections
                .large(owner)
                .one(|| query(sum_sql).bind(row_bytes))
                .await?;
            let total = unsigned(column(&sum, 0)?);
            self.0.answers.measured(total);
            if total <= most {
                return Ok(());
            }
            // A few more keys than need be: each measurement reads all.
            let keys = signed((total - most + most / 64) / AnswerLimits::ROW + 1);
            let evict = || {
                let statement = query(evict_sql).bind(written.as_str()).bind(row_bytes);
                statement.bind(keys)
            };
            if self.0.connections.large(owner).row(evict).await?.is_none() {
                return Ok(());
            }
        }
    }
}

/// A time in microseconds, within what the database can subtract from a time.
pub(super) fn micros(time: Duration) -> i64 {
    signed(time.as_micros()).min(i64::MAX / 4)
}

fn answer(head: &PgRow, pieces: &[PgRow]) -> Result<StoredAnswer, StoreError> {
    let headers = text_of(head, 3)?;
    let length = usize::try_from(column::<i64>(head, 4)?).unwrap_or_default();
    let length = length.saturating_sub(headers.len());
    let mut body = Vec::with_capacity(length.min(AnswerLimits::ANSWER));
    for piece in pieces {
        body.extend_from_slice(column(piece, 1)?);
    }
    if body.len() != length {
        let stored = body.len();
        let problem = format!("{stored} bytes of a stored answer of {length} bytes are there");
        return Err(StoreError::failed(problem));
    }
    let status: i32 = column(head, 2)?;
    Ok(StoredAnswer {
        kept: column(head, 5)?,
        status: u16::try_from(status).map_err(StoreError::failed)?,
        headers: serde_json::from_str(&headers).map_err(StoreError::failed)?,
        body: body.into(),
    })
}
