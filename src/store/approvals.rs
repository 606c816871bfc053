//! Calls that wait for a person's decision. They are inserted with the turn that waits for it, and stay with its session.

use super::approval::{
    Approval, ApprovalDecision, ApprovalQuestion, ApprovalState, Decided, Remember,
};
use super::clock::seconds;
use super::shares::StatementSize;
use super::tx::{Row, SqlValue, Tx, run_id, session_id, signed, unsigned, values};
use super::usage::Room;
use super::{Growth, Store, StoreError, retrying};
use protocol::ids::{ApprovalId, Owner, SessionId};

/// Inserts a question; one that is there stays as it is.
pub(super) const INSERT: &str =
    "INSERT INTO approvals (approval_id, session, run_id, round, tool_call_id, tool, arguments,
        digest, scope, reason, rule, created_at, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, micros_1(), $12)
    ON CONFLICT (approval_id) DO NOTHING RETURNING 1";

/// Closes the undecided questions of a session.
pub(super) const LEAVE: &str = "UPDATE approvals
    SET state = CASE WHEN expires_at <= micros_1() THEN 'expired' ELSE 'left' END
    WHERE session = $1 AND state = 'waiting'";

/// Whether a session has a question that can be decided.
macro_rules! session_waits {
    () => {
        "EXISTS (SELECT 1 FROM approvals a
            WHERE a.session = sessions.num AND a.state = 'waiting' AND a.expires_at > expiry_time_4())"
    };
}

pub(super) use session_waits;

/// Reads the approvals that a condition selects, the oldest first.
macro_rules! select {
    ($condition:expr) => {
        concat!(
            "SELECT s.owner, s.session_id, approval_id, run_id, round, tool_call_id, tool, arguments, digest, scope,
                reason, rule, expires_at, a.created_at,
                CASE WHEN state = 'waiting' AND expires_at <= micros_1() THEN 'expired' ELSE state END,
                message, edited, remember, decided_at
            FROM approvals a JOIN sessions s ON s.num = a.session
            WHERE ",
            $condition,
            " ORDER BY a.created_at, approval_id"
        )
    };
}

/// What can be decided in a session.
macro_rules! waits_in_session {
    () => {
        "s.owner = $1 AND s.session_id = $2 AND state = 'waiting' AND expires_at > micros_1()"
    };
}

/// The calls of a list: those that can be decided, of an owner or of all. Each owner's oldest come before the next ones of any,
/// up to a number of calls and of bytes of their arguments; the first one always.
macro_rules! listed {
    () => {
        "approval_id IN (SELECT approval_id FROM (
            SELECT approval_id, row_number() OVER turns AS number, sum(bytes) OVER turns AS bytes
            FROM (SELECT approval_id, w.created_at, octet_length(arguments) AS bytes,
                    row_number() OVER (PARTITION BY o.owner ORDER BY w.created_at, approval_id) AS place
                FROM approvals w JOIN sessions o ON o.num = w.session
                WHERE state = 'waiting' AND expires_at > micros_1() AND ($1 IS NULL OR o.owner = $1)) AS waiting
            WINDOW turns AS (ORDER BY place, created_at, approval_id)) AS counted
        WHERE number = 1 OR number <= $2 AND bytes <= $3)"
    };
}

/// One of an owner, or of any.
pub(super) const ONE: &str = select!("approval_id = $1 AND ($2 IS NULL OR s.owner = $2)");

impl Store {
    /// What waits, or waited, for a decision in a session: the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn approvals(
        &self,
        owner: &Owner,
        session: &SessionId,
    ) -> Result<Vec<Approval>, StoreError> {
        let sql = select!("s.owner = $1 AND s.session_id = $2");
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let values = values![owner.as_str(), session.as_str()];
        tx.rows(sql, values)
            .await?
            .into_iter()
            .map(approval)
            .collect()
    }

    /// What can be decided, the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_approvals(
        &self,
        filter: WaitingFilter<'_>,
    ) -> Result<Vec<Approval>, StoreError> {
        let mut tx = self.read(&filter.reader(), StatementSize::Large).await?;
        tx.rows(select!(listed!()), &filter.values())
            .await?
            .into_iter()
            .map(approval)
            .collect()
    }

    /// What can be decided in a session, the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_in(
        &self,
        owner: &Owner,
        session: &SessionId,
    ) -> Result<Vec<Approval>, StoreError> {
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let values = values![owner.as_str(), session.as_str()];
        let rows = tx.rows(select!(waits_in_session!()), values).await?;
        rows.into_iter().map(approval).collect()
    }

    /// The bytes of the arguments of these calls.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_bytes_in(
        &self,
        owner: &Owner,
        session: &SessionId,
    ) -> Result<u64, StoreError> {
        let sql = concat!(
            "SELECT CAST(coalesce(sum(octet_length(arguments)), 0) AS bigint)
            FROM approvals a JOIN sessions s ON s.num = a.session WHERE ",
            waits_in_session!()
        );
        let mut tx = self.read(owner, StatementSize::Small).await?;
        let values = values![owner.as_str(), session.as_str()];
        tx.one(sql, values).await?.unsigned(0)
    }

    /// The bytes of the arguments of the calls of a list.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_bytes(&self, filter: WaitingFilter<'_>) -> Result<u64, StoreError> {
        let sql = concat!(
            "SELECT CAST(coalesce(sum(octet_length(arguments)), 0) AS bigint) FROM approvals WHERE ",
            listed!()
        );
        let mut tx = self.read(&filter.reader(), StatementSize::Small).await?;
        tx.one(sql, &filter.values()).await?.unsigned(0)
    }

    /// How many can be decided, of all owners.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn count_waiting_approvals(&self) -> Result<u64, StoreError> {
        let sql =
            "SELECT count(*) FROM approvals WHERE state = 'waiting' AND expires_at > micros_1()";
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        tx.one(sql, values![]).await?.unsigned(0)
    }

    /// One of an owner, or of any.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_approval(
        &self,
        owner: Option<&Owner>,
        id: &ApprovalId,
    ) -> Result<Option<Approval>, StoreError> {
        let server = Owner::server();
        let mut tx = self
            .read(owner.unwrap_or(&server), StatementSize::Small)
            .await?;
        let values = values![id.as_str(), owner.map(Owner::as_str)];
        tx.row(ONE, values).await?.map(approval).transpose()
    }

    /// Decides a waiting call of this owner, or of any owner. It needs no lease, and only the first of several
    /// decisions counts.
    ///
    /// The bytes of a decision count for its session.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the decision is made completely or not at all. It may be `Already` made by this call, if the
    /// connection to the database was lost meanwhile.
    pub async fn decide_approval(
        &self,
        owner: Option<&Owner>,
        id: &ApprovalId,
        decision: &ApprovalDecision,
    ) -> Result<Decided, StoreError> {
        let Some((session_owner, session)) = self.session_of_approval(owner, id).await? else {
            return Ok(Decided::NotFound);
        };
        self.with_room(&session_owner, &session, |room| {
            retrying(move || self.try_decide(owner, id, decision, room))
        })
        .await
    }

    async fn session_of_approval(
        &self,
        owner: Option<&Owner>,
        id: &ApprovalId,
    ) -> Result<Option<(Owner, SessionId)>, StoreError> {
        let sql =
            "SELECT s.owner, s.session_id FROM approvals a JOIN sessions s ON s.num = a.session
            WHERE approval_id = $1 AND ($2 IS NULL OR s.owner = $2)";
        let server = Owner::server();
        let reader = owner.unwrap_or(&server);
        let mut tx = self.read(reader, StatementSize::Small).await?;
        let values = values![id.as_str(), owner.map(Owner::as_str)];
        let found = tx.row(sql, values).await?;
        let session = |mut row: Row| {
            let owner: String = row.column(0)?;
            Ok((Owner::key(&owner), session_id(row.column(1)?)?))
        };
        found.map(session).transpose()
    }

    /// Decides within `room`. If the decision would add more, the inner error is the number of bytes.
    async fn try_decide(
        &self,
        owner: Option<&Owner>,
        id: &ApprovalId,
        decision: &ApprovalDecision,
        room: Room,
    ) -> Result<Result<Decided, u64>, StoreError> {
        let server = Owner::server();
        let size = StatementSize::of_bytes(decision.bytes() as u64);
        let mut tx = self.begin(owner.unwrap_or(&server), size).await?;
        let (decided, growth) = tx.decide(owner, id, decision).await?;
        if let Some(growth) = growth {
            self.check_session(growth)?;
            if !self.admit(room, growth.added()) {
                return Ok(Err(growth.added()));
            }
        }
        tx.commit().await?;
        Ok(Ok(decided))
    }
}

/// Which waiting calls a list has.
#[derive(Debug, Clone, Copy)]
pub struct WaitingFilter<'a> {
    /// Calls of this owner; `None` for the calls of all owners.
    pub owner: Option<&'a Owner>,
    /// Most calls. Each owner's oldest come before the next ones of any.
    pub calls: usize,
    /// Most bytes of arguments. The first call is included whatever its size.
    pub bytes: u64,
}

impl WaitingFilter<'_> {
    fn reader(&self) -> Owner {
        self.owner.cloned().unwrap_or_else(Owner::server)
    }

    fn values(&self) -> [SqlValue<'_>; 3] {
        [
            self.owner.map(Owner::as_str).into(),
            signed(self.calls).into(),
            i64::try_from(self.bytes).unwrap_or(i64::MAX).into(),
        ]
    }
}

impl ApprovalQuestion {
    /// The arguments of [`INSERT`].
    pub(super) fn values(&self, session: i64) -> [SqlValue<'_>; 12] {
        [
            self.id.as_str().into(),
            session.into(),
            self.run.as_str().into(),
            i64::from(self.round).into(),
            SqlValue::any(&self.tool_call_id),
            SqlValue::any(&self.tool),
            SqlValue::any(&self.arguments),
            (&*self.digest).into(),
            SqlValue::any(&self.scope),
            SqlValue::AnyText(self.reason.as_deref()),
            SqlValue::AnyText(self.rule.as_deref()),
            self.expires_micros().into(),
        ]
    }
}

impl Tx {
    /// Inserts the questions of a session that are not there yet; returns the bytes that they count.
    pub(super) async fn ask(
        &mut self,
        session: i64,
        questions: &[ApprovalQuestion],
    ) -> Result<i64, StoreError> {
        let mut bytes = 0;
        for question in questions {
            if self.count(INSERT, &question.values(session)).await? > 0 {
                bytes += signed(question.bytes());
            }
        }
        Ok(bytes)
    }

    async fn decide(
        &mut self,
        owner: Option<&Owner>,
        id: &ApprovalId,
        decision: &ApprovalDecision,
    ) -> Result<(Decided, Option<Growth>), StoreError> {
        let owner = owner.map(Owner::as_str);
        // Locks the session first, as its writes do.
        let lock = "UPDATE sessions SET bytes = bytes
            WHERE num = (SELECT session FROM approvals WHERE approval_id = $1) AND ($2 IS NULL OR owner = $2)
            RETURNING num, bytes";
        let Some(mut row) = self.row(lock, values![id.as_str(), owner]).await? else {
            return Ok((Decided::NotFound, None));
        };
        let (session, before): (i64, i64) = (row.column(0)?, row.column(1)?);
        let decide = "UPDATE approvals SET state = $2, message = $3, edited = $4, remember = $5, decided_at = micros_1()
            WHERE approval_id = $1 AND state = 'waiting' AND expires_at > micros_1() RETURNING 1";
        let decided = values![
            id.as_str(),
            decision.verdict.state().as_str(),
            SqlValue::AnyText(decision.message.as_deref()),
            SqlValue::AnyText(decision.verdict.edited()),
            decision.remember.map(Remember::as_str),
        ];
        if self.count(decide, decided).await? == 0 {
            return Ok((Decided::Already, None));
        }
        let after = before + signed(decision.bytes());
        let count = "UPDATE sessions SET bytes = $2 WHERE num = $1";
        self.rows(count, values![session, after]).await?;
        let decided = approval(self.one(ONE, values![id.as_str(), owner]).await?)?;
        let growth = Growth {
            before: Some(unsigned(before)),
            after: unsigned(after),
        };
        Ok((Decided::Now(Box::new(decided)), Some(growth)))
    }
}

/// A row that [`select`] reads.
pub(super) fn approval(mut row: Row) -> Result<Approval, StoreError> {
    let wrong = |name: &str| StoreError::failed(format!("a stored approval has {name:?}"));
    let (id, state): (String, String) = (row.column(2)?, row.column(14)?);
    let remember: Option<String> = row.column(17)?;
    let remember = remember.map(|name| Remember::parse(&name).ok_or_else(|| wrong(&name)));
    let (run, decided_at): (String, Option<i64>) = (row.column(3)?, row.column(18)?);
    Ok(Approval {
        owner: Owner::key(&row.column::<String>(0)?),
        session: session_id(row.column(1)?)?,
        question: ApprovalQuestion {
            id: ApprovalId::parse(&id).ok_or_else(|| wrong(&id))?,
            run: run_id(&run)?,
            round: u32::try_from(row.unsigned(4)?).unwrap_or(u32::MAX),
            tool_call_id: row.column(5)?,
            tool: row.column(6)?,
            arguments: row.column(7)?,
            digest: row.column(8)?,
            scope: row.column(9)?,
            reason: row.column(10)?,
            rule: row.column(11)?,
            expires_at: seconds(row.column(12)?),
        },
        created_at: seconds(row.column(13)?),
        state: ApprovalState::parse(&state).ok_or_else(|| wrong(&state))?,
        message: row.column(15)?,
        edited: row.column(16)?,
        remember: remember.transpose()?,
        decided_at: decided_at.map(seconds),
    })
}
