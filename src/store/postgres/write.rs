//! Writes of sessions.

use sqlx::postgres::PgRow;
use sqlx::query;

use super::super::StoreError;
use super::super::clock::MICROS_PER_SECOND;
use super::super::leases::Fence;
use super::super::record::{Change, Replaced, StoredMessage, TurnChange};
use super::super::shares::StatementSize;
use super::super::tx::{signed, unsigned};
use super::Postgres;
use super::connect::column;
use super::turns::TurnColumns;
use protocol::ids::RunId;

/// Calls a function that writes a session, with its own arguments after the arguments of all writes.
macro_rules! call {
    ($function:literal, $more:literal) => {
        concat!(
            "SELECT outcome, after_bytes, added, existed FROM ",
            $function,
            "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22",
            $more,
            ")"
        )
    };
}

const WRITE: &str = call!("write_session_1", "");
/// Also ends or replaces the suspended turn of the session.
const WRITE_TURN: &str = call!(
    "write_turn_9",
    ", $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35"
);

/// The arguments of a write that are made once for all attempts.
struct EncodedChange<'a> {
    change: &'a Change,
    instructions: Option<Vec<&'a [u8]>>,
    views: Vec<Option<Vec<u8>>>,
    sources: Vec<Option<Vec<u8>>>,
    instruction_bytes: i64,
    bytes: i64,
}

/// Columns of the appended messages.
struct MessageColumns<'a> {
    json: Vec<&'a [u8]>,
    hidden: Vec<bool>,
    full_texts: Vec<Option<&'a [u8]>>,
}

impl<'a> EncodedChange<'a> {
    fn of(change: &'a Change) -> Result<Self, StoreError> {
        let (mut views, mut sources) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for message in &change.append {
            let view = message.view.as_ref().map(serde_json::to_vec).transpose();
            let view = view.map_err(StoreError::failed)?;
            let found = match &*message.sources {
                [] => None,
                sources => Some(serde_json::to_vec(sources).map_err(StoreError::failed)?),
            };
            let texts = [
                Some(message.message.json_str().len()),
                view.as_ref().map(Vec::len),
                message.full_text.as_ref().map(String::len),
                found.as_ref().map(Vec::len),
            ];
            bytes += texts.into_iter().flatten().sum::<usize>();
            views.push(view);
            sources.push(found);
        }
        let instructions: Option<Vec<&[u8]>> = change.instructions.as_ref().map(|list| {
            list.iter()
                .map(|message| message.json_str().as_bytes())
                .collect()
        });
        let of_instructions = instructions.iter().flatten().map(|json| json.len());
        Ok(Self {
            change,
            instruction_bytes: signed(of_instructions.sum::<usize>()),
            bytes: signed(bytes),
            instructions,
            views,
            sources,
        })
    }

    fn size(&self) -> StatementSize {
        StatementSize::of_bytes(unsigned(self.bytes + self.instruction_bytes))
    }

    /// Whether nothing but messages is written.
    fn only_appends(&self) -> bool {
        let change = self.change;
        let has_more = change.instructions.is_some()
            || change.metadata.is_some()
            || change.turn != TurnChange::Leave;
        !has_more && change.client_calls.is_empty() && change.run.is_none()
    }

    fn rows(&self) -> MessageColumns<'_> {
        let messages = &self.change.append;
        let full_text = |stored: &'a StoredMessage| Some(stored.full_text.as_ref()?.as_bytes());
        MessageColumns {
            json: messages
                .iter()
                .map(|stored| stored.message.json_str().as_bytes())
                .collect(),
            hidden: messages.iter().map(|stored| stored.hidden).collect(),
            full_texts: messages.iter().map(full_text).collect(),
        }
    }
}

impl Postgres {
    /// Changes a session, or replaces it if a time of creation is given; returns whether it existed and the bytes that
    /// were added. `most` has the most bytes of the session and the most bytes that may be added. If a limit would be
    /// exceeded, nothing is changed, and the inner error says by how many bytes it would grow.
    pub(crate) async fn write(
        &self,
        fence: &Fence,
        (change, created_at): (&Change, Option<i64>),
        most: (u64, u64),
    ) -> Result<Result<(Replaced, u64), u64>, StoreError> {
        let encoded = &EncodedChange::of(change)?;
        let is_append = created_at.is_none() && encoded.only_appends();
        if is_append && self.append(fence, encoded, most).await? {
            return Ok(Ok((Replaced::Replaced, unsigned(encoded.bytes))));
        }
        let created_at = created_at.map(|seconds| seconds.saturating_mul(MICROS_PER_SECOND));
        let row = self.attempt(fence, created_at, encoded, most).await?;
        let number =
            |index| column::<Option<i64>>(&row, index).map(|number| unsigned(number.unwrap_or(0)));
        let (bytes, added) = (number(1)?, number(2)?);
        let replaced = match column::<Option<bool>>(&row, 3)? {
            Some(true) => Replaced::Replaced,
            Some(false) | None => Replaced::Created,
        };
        match column(&row, 0)? {
            "done" => Ok(Ok((replaced, added))),
            "full" => Ok(Err(added)),
            "lost" => Err(StoreError::LeaseLost),
            "too_large" => Err(StoreError::SessionTooLarge {
                bytes,
                limit: most.0,
            }),
            other => Err(StoreError::failed(format!(
                "a write had the outcome {other:?}"
            ))),
        }
    }

    /// Appends messages to a session that holds the messages before them, as nearly all writes do. This plain statement
    /// takes half the time of the function for all changes. Returns false if that function has to work out the change.
    async fn append(
        &self,
        fence: &Fence,
        encoded: &EncodedChange<'_>,
        (most, room): (u64, u64),
    ) -> Result<bool, StoreError> {
        let sql = "WITH lease AS MATERIALIZED (
                SELECT 1 FROM leases l
                WHERE l.owner = $1 AND l.session_id = $2 AND l.token = $3
                    AND EXISTS (SELECT 1 FROM replicas r WHERE r.id = l.replica AND r.expires_at > now())
                FOR SHARE OF l
            ),
            head AS (
                UPDATE sessions s SET
                    message_count = s.message_count + cardinality($5),
                    bytes = s.bytes + $10,
                    updated_at = CASE WHEN s.last_run IS NULL OR micros_1() - s.updated_at >= 10000000 THEN micros_1()
                        ELSE s.updated_at END,
                    written_at = micros_1()
                WHERE s.owner = $1 AND s.session_id = $2 AND EXISTS (SELECT 1 FROM lease)
                    AND s.message_count - s.instruction_count = $4
                    AND (s.title_seq < $4 OR s.title_seq IS NULL AND $13)
                    AND s.bytes + $10 <= $11 AND $10 <= $12
                RETURNING s.num
            ),
            added AS (
                INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
                SELECT head.num, $4 + m.n - 1, m.json, m.hidden, m.view, m.full_text, m.sources
                FROM head, unnest($5, $6, $7, $8, $9) WITH ORDINALITY
                    AS m (json, hidden, view, full_text, sources, n)
            )
            SELECT 1 FROM head";
        let rows = encoded.rows();
        let append = || {
            query(sql)
                .bind(fence.owner.as_str())
                .bind(fence.id.as_str())
                .bind(signed(fence.token))
                .bind(signed(encoded.change.keep))
                .bind(&rows.json)
                .bind(&rows.hidden)
                .bind(&encoded.views)
                .bind(&rows.full_texts)
                .bind(&encoded.sources)
                .bind(encoded.bytes)
                .bind(signed(most))
                .bind(signed(room))
                .bind(encoded.change.title.is_none())
        };
        let pool = self.0.connections.sized(&fence.owner, encoded.size());
        Ok(pool.row(append).await?.is_some())
    }

    async fn attempt(
        &self,
        fence: &Fence,
        created_at: Option<i64>,
        encoded: &EncodedChange<'_>,
        (most, room): (u64, u64),
    ) -> Result<PgRow, StoreError> {
        let EncodedChange {
            change,
            instructions,
            views,
            sources,
            ..
        } = encoded;
        let rows = encoded.rows();
        let calls: Vec<&[u8]> = change.client_calls.iter().map(String::as_bytes).collect();
        let title = change.title.as_ref();
        let title_text = title.and_then(|title| title.text.as_ref());
        let write = |sql| {
            query(sql)
                .bind(fence.owner.as_str())
                .bind(fence.id.as_str())
                .bind(signed(fence.token))
                .bind(&*self.0.replica)
                .bind(created_at)
                .bind(signed(change.keep))
                .bind(instructions)
                .bind(&rows.json)
                .bind(&rows.hidden)
                .bind(views)
                .bind(&rows.full_texts)
                .bind(sources)
                .bind(&calls)
                .bind(title.map(|title| signed(title.index)))
                .bind(title_text.map(String::as_bytes))
                .bind(change.run.as_ref().map(RunId::as_str))
                .bind(i16::try_from(change.id_origin.as_number()).unwrap_or_default())
                .bind(change.metadata.as_deref())
                .bind(encoded.instruction_bytes)
                .bind(encoded.bytes)
                .bind(signed(most))
                .bind(signed(room))
        };
        let pool = |size| self.0.connections.sized(&fence.owner, size);
        if created_at.is_none() && change.turn == TurnChange::Leave {
            return pool(encoded.size()).one(|| write(WRITE)).await;
        }
        // A replacement deletes the earlier turn.
        let turn = TurnColumns::of(&change.turn);
        let write = || turn.bind(write(WRITE_TURN));
        pool(StatementSize::Large).one(write).await
    }
}
