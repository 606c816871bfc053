//! Notifications of a webhook about calls that wait: each event once, by one of the processes that share the store.

use super::approval::Approval;
use super::approvals::{ONE, approval};
use super::clock::MICROS_PER_SECOND;
use super::shares::StatementSize;
use super::tx::{signed, values};
use super::{Store, StoreError, retrying};
use protocol::ids::Owner;

/// What has become of a call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalEvent {
    /// A person is asked about it.
    Requested,
    /// A person has decided.
    Decided,
    /// No decision is possible any more: the question has expired, or the conversation has continued without the call.
    Expired,
}

/// The events that were not sent. A call that was asked about before `$1` is included only if it still waits.
const PENDING: &str = "SELECT approval_id, 'requested' FROM approvals WHERE announced IS NULL AND created_at >= $1
    UNION
    SELECT approval_id, 'requested' FROM approvals
        WHERE state = 'waiting' AND announced IS NULL AND expires_at > micros_1()
    UNION
    SELECT approval_id, CASE WHEN state IN ('approved', 'denied') THEN 'decided' ELSE 'expired' END FROM approvals
        WHERE announced = 'requested' AND (state <> 'waiting' OR expires_at <= micros_1())
    ORDER BY 1 LIMIT $2";

impl Store {
    /// Claims up to `limit` unsent events, oldest first, one per call. A claimed event is not returned again. `since`
    /// is when the process began to notify, in seconds since 1970.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// See [`Store::write`]. Events that a dropped call has claimed are not sent.
    pub async fn take_approval_events(
        &self,
        since: i64,
        limit: usize,
    ) -> Result<Vec<(ApprovalEvent, Approval)>, StoreError> {
        let since = since.saturating_mul(MICROS_PER_SECOND);
        let server = Owner::server();
        let mut tx = self.read(&server, StatementSize::Small).await?;
        let pending = tx.rows(PENDING, values![since, signed(limit)]).await?;
        drop(tx);
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for mut row in pending {
            let (id, event): (String, String) = (row.column(0)?, row.column(1)?);
            let (event, take) = match &*event {
                "requested" => (
                    ApprovalEvent::Requested,
                    "UPDATE approvals SET announced = 'requested' WHERE approval_id = $1 AND announced IS NULL RETURNING 1",
                ),
                other => (
                    match other {
                        "decided" => ApprovalEvent::Decided,
                        _ => ApprovalEvent::Expired,
                    },
                    "UPDATE approvals SET announced = 'over' WHERE approval_id = $1 AND announced = 'requested' RETURNING 1",
                ),
            };
            let id = id.as_str();
            let taken = retrying(|| async {
                let mut tx = self.begin(&Owner::server(), StatementSize::Small).await?;
                if tx.count(take, values![id]).await? == 0 {
                    return Ok(None);
                }
                let row = tx.row(ONE, values![id, None::<&str>]).await?;
                tx.commit().await?;
                row.map(approval).transpose()
            });
            found.extend(taken.await?.map(|approval| (event, approval)));
        }
        Ok(found)
    }
}
