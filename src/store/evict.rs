//! Which sessions, answers and idempotency keys go when all have too many bytes.

use std::time::Duration;

use super::approvals::session_waits;
use super::run::AnswerLimits;
use super::shares::StatementSize;
use super::tx::{Tx, session_id, signed, unsigned, values};
use super::{Store, StoreError, retrying};
use protocol::ids::{Owner, RunId, SessionId};

/// Longest wait for the eviction that another write has started. Then this write evicts as well.
const EVICTION_WAIT: Duration = Duration::from_secs(5);
/// Most sessions or answers of an owner that are looked up at once; others follow.
const EVICTION_BATCH: u64 = 64;

/// A session that may be evicted.
struct Candidate {
    owner: Owner,
    id: SessionId,
    bytes: u64,
}

impl Store {
    /// Removes answers and idempotency keys until their total is within the limit, except those of the run `written`.
    /// The oldest answers of the owner with the most bytes go first, then its oldest keys. A request whose key was
    /// evicted runs again if it is repeated. A key whose run has not ended stays.
    pub(super) async fn evict_answers(
        &self,
        (owner, written): (&Owner, &RunId),
        most: u64,
    ) -> Result<(), StoreError> {
        let _alone = self.shared.answers.evicting.lock().await;
        if self.answer_usage(owner).await? <= most {
            return Ok(());
        }
        loop {
            let evicted = retrying(|| self.evict_some_answers((owner, written), most));
            if !evicted.await? {
                return Ok(());
            }
        }
    }

    /// The bytes that all answers and keys count.
    async fn answer_usage(&self, owner: &Owner) -> Result<u64, StoreError> {
        let sql =
            "SELECT CAST(coalesce(sum(bytes) + sum(answers) * $1, 0) AS bigint) FROM run_usage";
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let mut row = tx.one(sql, values![signed(AnswerLimits::ROW)]).await?;
        let total = row.unsigned(0)?;
        self.shared.answers.measured(total);
        Ok(total)
    }

    /// Removes some answers or keys; returns whether there may be more to remove.
    async fn evict_some_answers(
        &self,
        (owner, written): (&Owner, &RunId),
        most: u64,
    ) -> Result<bool, StoreError> {
        let sql =
            "SELECT owner, bytes + answers * $1 AS weight FROM run_usage ORDER BY weight DESC";
        let mut tx = self.begin(owner, StatementSize::Large).await?;
        let rows = tx.rows(sql, values![signed(AnswerLimits::ROW)]).await?;
        let usages = rows
            .into_iter()
            .map(|mut row| Ok((row.column::<String>(0)?, unsigned(row.column(1)?))));
        let usages = usages.collect::<Result<Vec<_>, StoreError>>()?;
        let total = usages.iter().map(|(_, bytes)| bytes).sum();
        self.shared.answers.measured(total);
        if total <= most {
            tx.commit().await?;
            return Ok(false);
        }
        for (index, (heaviest, bytes)) in usages.iter().enumerate() {
            let next = usages.get(index + 1).map_or(0, |(_, bytes)| *bytes);
            // Evicts until the owner is no longer the heaviest, and in large steps, because each step reads the use of
            // all owners.
            let (excess, step) = (total - most, bytes.saturating_sub(next));
            let excess = excess.min(step.max(excess / 16).max(most / 1024).saturating_add(1));
            let mut evicted = evict_answers_of(&mut tx, heaviest, written, excess).await?;
            if evicted == 0 {
                evicted = evict_keys_of(&mut tx, heaviest, written, excess).await?;
            }
            if evicted > 0 {
                tx.commit().await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes sessions without a client's id until `added` more bytes fit the limit of all sessions: the least
    /// recently written first, of the owner with the most bytes, and only of owners above the equal share. Leased
    /// sessions, those in which something can be decided, and the session of the write stay.
    pub(super) async fn evict_sessions(
        &self,
        owner: &Owner,
        id: &SessionId,
        added: u64,
    ) -> Result<(), StoreError> {
        let total = self.shared.sessions.limits().total_bytes;
        // Concurrent evictions would delete more than necessary.
        let _alone =
            tokio::time::timeout(EVICTION_WAIT, self.shared.sessions.evicting.lock()).await;
        let mut evicted = 0_u64;
        let mut kept = vec![(owner.clone(), id.clone())];
        loop {
            let usage = self.session_usage(owner).await?;
            let excess = usage.total.saturating_add(added).saturating_sub(total);
            if excess == 0 {
                break;
            }
            let share = total / usage.owners.max(1);
            let (candidates, above) = self.candidates(owner, added, share, &kept).await?;
            if candidates.is_empty() {
                break;
            }
            let mut freed = 0;
            for Candidate { owner, id, bytes } in candidates {
                if freed >= excess.min(above) {
                    break;
                }
                let Ok(lease) = self.acquire(&owner, &id, Duration::ZERO).await else {
                    kept.push((owner, id));
                    continue;
                };
                let gone = self.delete(lease.fence()).await;
                self.release(lease).await;
                if gone? {
                    freed += bytes;
                    evicted += 1;
                }
            }
        }
        if evicted > 0 {
            tracing::info!(
                evicted,
                "sessions without a client's id were deleted to make space"
            );
        }
        Ok(())
    }

    /// The sessions that may be evicted next, all of one owner, and by how many bytes the owner exceeds its share.
    /// Sessions in `kept` are left out.
    async fn candidates(
        &self,
        writer: &Owner,
        added: u64,
        share: u64,
        kept: &[(Owner, SessionId)],
    ) -> Result<(Vec<Candidate>, u64), StoreError> {
        let owners = "SELECT owner, large FROM (
                SELECT owner, bytes + CASE WHEN owner = $1 THEN $2 ELSE 0 END AS large FROM session_usage) sized
            WHERE large > $3 ORDER BY large DESC, owner";
        let sessions = concat!(
            "SELECT session_id, bytes FROM sessions WHERE owner = $1 AND origin > 0 AND NOT ",
            session_waits!(),
            " ORDER BY updated_at, num LIMIT $2"
        );
        let mut tx = self.read(writer, StatementSize::Large).await?;
        let values = values![writer.as_str(), signed(added), signed(share)];
        for mut row in tx.rows(owners, values).await? {
            let owner: String = row.column(0)?;
            let above = row.unsigned(1)?.saturating_sub(share);
            let most = signed(EVICTION_BATCH + kept.len() as u64);
            let mut found = Vec::new();
            for mut row in tx.rows(sessions, values![&*owner, most]).await? {
                let candidate = Candidate {
                    owner: Owner::key(&owner),
                    id: session_id(row.column(0)?)?,
                    bytes: row.unsigned(1)?,
                };
                let mut kept = kept.iter();
                if !kept.any(|(owner, id)| *owner == candidate.owner && *id == candidate.id) {
                    found.push(candidate);
                }
            }
            if !found.is_empty() {
                return Ok((found, above));
            }
        }
        Ok((Vec::new(), 0))
    }
}

/// Removes the oldest answers of an owner until about `excess` bytes are free; returns how many.
async fn evict_answers_of(
    tx: &mut Tx,
    owner: &str,
    written: &RunId,
    excess: u64,
) -> Result<u64, StoreError> {
    let sql = "SELECT num, bytes FROM runs WHERE owner = $1 AND status = 'ended' AND id <> $2 ORDER BY ended_at LIMIT $3";
    let values = values![owner, written.as_str(), signed(EVICTION_BATCH)];
    let (mut freed, mut evicted) = (0_u64, 0);
    for mut row in tx.rows(sql, values).await? {
        if freed >= excess {
            break;
        }
        let sql = "DELETE FROM runs WHERE num = $1 RETURNING 1";
        evicted += tx.count(sql, values![row.column::<i64>(0)?]).await?;
        freed += row.unsigned(1)? + AnswerLimits::ROW;
    }
    Ok(evicted)
}

/// Removes the oldest keys of an owner until about `excess` bytes are free; returns how many.
async fn evict_keys_of(
    tx: &mut Tx,
    owner: &str,
    written: &RunId,
    excess: u64,
) -> Result<u64, StoreError> {
    let sql = "DELETE FROM idempotency_keys WHERE (owner, key) IN (
            SELECT k.owner, k.key FROM idempotency_keys k
            WHERE k.owner = $1 AND k.recorded AND k.run <> $2 AND NOT EXISTS (
                SELECT 1 FROM runs r WHERE r.id = k.run AND r.owner = k.owner AND r.status <> 'ended')
            ORDER BY k.created_at LIMIT $3)
        RETURNING 1";
    let keys = signed(excess / AnswerLimits::ROW + 1);
    tx.count(sql, values![owner, written.as_str(), keys]).await
}
