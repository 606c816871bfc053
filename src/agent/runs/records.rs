//! Records of runs in the store: their answers after the end, and the idempotency keys that lead to them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::keys::{IdempotencyKey, KEY_BYTES};
use super::state::{Progress, RunState};
use super::{Follow, FollowError, Runs};
use crate::control::AbortReason;
use protocol::ids::{Owner, RunId, SessionId};
use store::{
    KeyClaim, OtherReplica, RunAnswer, RunRecord, RunRecordState, StoreError, SuspendedRun,
};

/// Longest wait for the end of a run whose answer is deleted. Then the record is deleted all the same.
const END_WAIT: Duration = Duration::from_secs(5);

impl Runs {
    /// The record of a run of this owner; none if there is no such run.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look_up(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<RunRecord>, StoreError> {
        if let Some(record) = self.find(owner, id).and_then(|run| run.record()) {
            return Ok(Some(record));
        }
        let mut found = self.0.store.run(owner, id).await?;
        if let Some(record) = &mut found {
            record.state = match record.state {
                RunRecordState::RunningElsewhere => RunRecordState::RunningElsewhere,
                _ if record.is_suspended => RunRecordState::Suspended,
                // A run of this process that is not in memory does not run.
                RunRecordState::Running => RunRecordState::Interrupted,
                state => state,
            };
        }
        Ok(found)
    }

    /// What a suspended run resumes with; none if it is not suspended any more, or runs.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn suspended(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<SuspendedRun>, StoreError> {
        if self.0.table.lock().runs_now(owner, id) {
            return Ok(None);
        }
        self.0.store.suspended_run(owner, id).await
    }

    /// Takes a run that waits, to start it again; none if it waits no longer, or runs.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take_suspended(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<SuspendedRun>, StoreError> {
        if self.0.table.lock().runs_now(owner, id) {
            return Ok(None);
        }
        self.0.store.take_suspended_run(owner, id).await
    }

    /// The answer of an ended run of this owner; `None` if it was dropped.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn answer(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<Arc<RunAnswer>>, StoreError> {
        if let Some(answer) = self.find(owner, id).and_then(|run| run.answer()) {
            return Ok(Some(answer));
        }
        Ok(self.0.store.answer(owner, id).await?.map(Arc::new))
    }

    /// The other process that runs a run of this owner, or has run it and may have its events still. A run of this process
    /// is looked for in no other.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn replica_of(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<OtherReplica>, StoreError> {
        match self.find(owner, id) {
            Some(_) => Ok(None),
            None => self.0.store.replica_of_run(owner, id).await,
        }
    }

    /// What the owner is shown of a run: nothing of one that has ended and is not stored.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn look_up_shown(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<RunRecord>, StoreError> {
        match self.find(owner, id) {
            Some(run) if run.is_hidden() => Ok(None),
            Some(_) | None => self.look_up(owner, id).await,
        }
    }

    /// The session of a run of this owner, if the run has one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn session_of(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<SessionId>, StoreError> {
        if let Some(session) = self.find(owner, id).and_then(|run| run.session_id()) {
            return Ok(Some(session));
        }
        let record = self.0.store.run(owner, id).await?;
        Ok(record.and_then(|record| record.session_id))
    }

    /// Cancels a run that has not ended and forgets its answer; says whether there was such a run.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, owner: &Owner, id: &RunId) -> Result<bool, StoreError> {
        let in_memory = self.find(owner, id);
        if let Some(run) = &in_memory {
            run.forget();
            run.control.abort(AbortReason::Requested);
            // Its last write would bring the record back.
            let ended = Follow::from_now(run.clone());
            let _ended_or_stuck = timeout(END_WAIT, ended.answer()).await;
            self.0.table.lock().remove(id);
        }
        let stored = self.0.store.delete_run(owner, id).await?;
        Ok(stored || in_memory.is_some())
    }

    /// Claims an idempotency key for a run.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
        run: &RunId,
    ) -> Result<KeyClaim, StoreError> {
        if key.in_memory {
            return Ok(self.claim_in_memory(owner, key, run));
        }
        let store = &self.0.store;
        store
            .claim_key(owner, &key.text, &key.fingerprint, run)
            .await
    }

    /// Claims the key of a run that is not stored. If memory is scarce, first drops the owner's ended runs, then its
    /// oldest keys.
    fn claim_in_memory(&self, owner: &Owner, key: &IdempotencyKey, run: &RunId) -> KeyClaim {
        let mut charge = self.0.logs.charge(owner);
        while let Err(limit) = charge.grow_to(KEY_BYTES) {
            if !self.drop_oldest(owner, limit) && !self.0.table.lock().keys.forget_oldest(owner) {
                break;
            }
        }
        let mut table = self.0.table.lock();
        table.keys.claim(owner, key, run, charge)
    }

    /// Hands a key over from a run that has no answer to a new one; says whether it was still that run's.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn reclaim(
        &self,
        owner: &Owner,
        key: &IdempotencyKey,
        from: &RunId,
        to: &RunId,
    ) -> Result<bool, StoreError> {
        if key.in_memory {
            return Ok(self.0.table.lock().keys.reclaim(owner, key, from, to));
        }
        self.0.store.reclaim_key(owner, &key.text, from, to).await
    }

    /// Waits until the store has the record of a run in memory; says whether it has.
    pub async fn record_stored(&self, owner: &Owner, id: &RunId) -> bool {
        match self.find(owner, id) {
            Some(run) => run.wait_for(Progress::record_stored).await,
            None => false,
        }
    }

    /// Waits until a run in memory is over and the store has what it has left.
    pub async fn settled(&self, owner: &Owner, id: &RunId) {
        if let Some(run) = self.find(owner, id) {
            run.wait_for(|progress| progress.is_settled().then_some(()))
                .await;
        }
    }

    /// Waits for the end of a run in memory.
    ///
    /// # Errors
    /// When it is not in memory.
    pub async fn wait_for(
        &self,
        owner: &Owner,
        id: &RunId,
    ) -> Result<Option<Arc<RunAnswer>>, FollowError> {
        Ok(self.follow_on(owner, id)?.answer().await)
    }

    /// Writes down that a run has started.
    pub(super) async fn record_start(&self, state: &RunState) -> Result<(), StoreError> {
        let session = state.session_id();
        self.0
            .store
            .begin_run(&state.id, &state.owner, session.as_ref())
            .await
    }

    /// Writes down the answer of a run that has ended. An error that came before any server-side call leaves no trace: a
    /// retry starts anew.
    pub(super) async fn record_end(&self, state: &RunState) {
        let Some(answer) = state.kept_answer() else {
            return;
        };
        // A run that the end of the process breaks off has no answer: its record says so after the next start.
        let aborted = state.control.abort_reason() == Some(AbortReason::Shutdown);
        if aborted && !answer.status.is_success() {
            return;
        }
        if !state.is_recorded() {
            return;
        }
        let store = &self.0.store;
        let written = match state.leaves_no_trace(&answer) {
            true => store.delete_run(&state.owner, &state.id).await.map(drop),
            false => {
                let answer = (*answer).clone();
                store.end_run(&state.id, &state.owner, answer).await
            }
        };
        match written {
            Ok(()) => state.release(),
            Err(error) => {
                tracing::error!(%error, cause = ?std::error::Error::source(&error), "the answer of a run was not stored");
            }
        }
    }

    /// Gives back the key of a run.
    pub(super) async fn release_key(&self, state: &RunState) {
        let Some(key) = &state.key else { return };
        if key.in_memory {
            self.0
                .table
                .lock()
                .keys
                .release(&state.owner, key, &state.id);
            return;
        }
        let released = self.0.store.release_key(&state.owner, &key.text, &state.id);
        if let Err(error) = released.await {
            tracing::error!(%error, "an idempotency key was not released");
        }
    }
}
