//! Writes sessions in chunks: imports, and changes too large for one transaction.
//!
//! The new state is written to a hidden session in several short transactions. A last transaction replaces the old
//! session with it. Leftovers of a crash are removed at the next start.

mod chunk;
mod columns;

use std::sync::Arc;

use rusqlite::{Connection, params};

use self::chunk::{NewRows, add};
use self::columns::{NewColumns, SourceColumns};
use super::super::StoreError;
use super::super::clock::MICROS_PER_SECOND;
use super::super::lease::{Fence, LeaseHold};
use super::super::limits::Growth;
use super::super::record::{Change, Replaced, StoredMessage};
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::instructions::{self, INSTRUCTIONS_START};
use super::messages::{copy, kept_bytes, message_bytes};
use super::pieces::Place;
use super::quota::{Attempt, Quota};
use super::runs::begin_run;
use super::shared::{RowLayout, share};
use super::size::{CHUNK, unsigned};
use super::sweep::hide_session;
use super::transaction::begin;
use super::write::{HIDDEN, SessionRow, assign_calls, count, origin_column};
use crate::ids::{Owner, SessionId};

/// A session to be written in chunks; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Rewrite {
    /// The session that messages are copied from. Its lease is held.
    source: Fence,
    /// The session that is written.
    target: SessionId,
    kind: RewriteKind,
    change: Arc<Change>,
    /// The new instructions.
    instructions: Arc<[StoredMessage]>,
    quota: Arc<Quota>,
    attempt: Attempt,
    _hold: Arc<LeaseHold>,
}

/// The operation that writes the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteKind {
    /// A change of a session.
    Change,
    /// An import, which replaces the session.
    Import { created_at: i64 },
}

/// The hidden session, and the messages that are copied to it.
#[derive(Debug, Clone, Copy)]
struct HiddenSession {
    row: i64,
    /// The row that instructions and messages are copied from.
    source: Option<i64>,
    /// How many messages are kept.
    keep: i64,
    /// The first index and the end of the instructions and the messages that are copied. The hidden session shares the
    /// trunks of the others.
    copied: [[i64; 2]; 2],
    /// Bytes of what is in trunks.
    shared_bytes: i64,
}

impl Rewrite {
    pub(super) fn of(
        source: &Fence,
        kind: RewriteKind,
        change: Arc<Change>,
        quota: &Arc<Quota>,
        hold: Arc<LeaseHold>,
    ) -> Self {
        let instructions = change.instructions.as_deref().unwrap_or_default();
        Self {
            instructions: instructions::as_messages(instructions).into(),
            source: source.clone(),
            target: source.id.clone(),
            kind,
            change,
            quota: Arc::clone(quota),
            attempt: Attempt::First,
            _hold: hold,
        }
    }

    /// The same operation for another attempt.
    pub(super) fn attempt(&self, attempt: Attempt) -> Self {
        Self {
            attempt,
            ..self.clone()
        }
    }

    pub(super) fn target(&self) -> (&Owner, &SessionId) {
        (&self.source.owner, &self.target)
    }

    /// Writes the session chunk by chunk.
    pub(super) async fn run(self, store: &Sqlite) -> Result<Replaced, StoreError> {
        let rewrite = self.clone();
        let draft =
            self.in_transaction(store, move |connection, now| rewrite.begin(connection, now));
        let draft = draft.await?;
        let done = self.fill(store, draft).await;
        if done.is_err() {
            let hidden = self.in_transaction(store, move |connection, _| {
                hide_session(connection, draft.row)
            });
            if let Err(error) = hidden.await {
                tracing::warn!(%error, "an unfinished session stays until the next start");
            }
        }
        done
    }

    async fn fill(&self, store: &Sqlite, draft: HiddenSession) -> Result<Replaced, StoreError> {
        let mut bytes = draft.shared_bytes;
        for [first, end] in draft.copied {
            let mut from = Place::before(first);
            while let Some(source) = draft.source.filter(|_| from.message < end) {
                let copied = self.in_transaction(store, move |connection, _| {
                    copy(connection, [source, draft.row], from, end)
                });
                let copied = copied.await?;
                (from, bytes) = (copied.0, bytes + copied.1);
            }
        }
        for part in [NewRows::Instructions, NewRows::Messages] {
            let first = part.first(draft);
            let end = first + count(self.new_rows(part).len());
            let mut from = Place::before(first);
            let mut texts = Arc::default();
            while from.message < end {
                let next = from.message - first;
                if from.pieces == 0 {
                    // Before the transaction, which other writes wait for.
                    let rewrite = self.clone();
                    let encoded = tokio::task::spawn_blocking(move || rewrite.encode(part, next));
                    texts = Arc::new(encoded.await.map_err(StoreError::failed)??);
                }
                let (rewrite, texts) = (self.clone(), Arc::clone(&texts));
                let added = self.in_transaction(store, move |connection, _| {
                    let chunk = rewrite.chunk(part, next, &texts);
                    add(connection, draft.row, from, &chunk)
                });
                let added = added.await?;
                (from, bytes) = (added.0, bytes + added.1);
            }
        }
        let rewrite = self.clone();
        let finish = self.in_transaction(store, move |connection, now| {
            rewrite.finish(connection, draft, bytes, now)
        });
        finish.await
    }

    /// Runs work in one transaction.
    async fn in_transaction<T: Send + 'static>(
        &self,
        store: &Sqlite,
        work: impl Fn(&Connection, i64) -> Result<T, StatementError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = Arc::clone(&store.0.clock);
        let owner = self.source.owner.clone();
        let done = store
            .0
            .writer
            .run(owner, Executor::Thread, move |connection, _| {
                let transaction = begin(connection)?;
                let done = work(&transaction, clock.stamp())?;
                transaction.commit()?;
                Ok(done)
            });
        let done = done.await;
        store.count_written(CHUNK);
        done
    }

    /// Creates the hidden session.
    fn begin(&self, connection: &Connection, now: i64) -> Result<HiddenSession, StatementError> {
        let head = SessionRow::find(connection, &self.source.owner, &self.source.id)?;
        let before = head.as_ref().map(|head| unsigned(head.bytes));
        let content = match self.kind {
            RewriteKind::Change => self.changed(connection, head.as_ref(), now)?,
            RewriteKind::Import { created_at } => self.imported(created_at, now),
        };
        let added = self
            .change
            .append
            .iter()
            .map(|message| message.stored_bytes() as u64);
        let growth = Growth {
            before,
            after: unsigned(
                content.instruction_bytes + content.kept_bytes + content.metadata_bytes(),
            ) + added.sum::<u64>(),
        };
        // An early check, before anything is written. The exact bytes are known at the end.
        self.quota
            .check(connection, self.source.owner.as_str(), growth, self.attempt)?;
        if let (RewriteKind::Change, Some(source)) = (self.kind, content.source) {
            // The source must not expire during the write.
            connection.execute(
                "UPDATE sessions SET updated_at = ?2 WHERE id = ?1",
                [source, now],
            )?;
        }
        connection.execute(
            "INSERT INTO sessions (owner, session_id, instruction_bytes, instruction_count, message_count, title_seq,
                                   title, created_at, updated_at, last_run, nameless, shared, shared_instructions,
                                   metadata)
             VALUES (?1, 'draft-' || ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?2, ?9, ?10, ?11, ?12, ?13)",
            params![
                HIDDEN,
                now,
                content.instruction_bytes,
                content.instruction_count,
                content.instruction_count + content.keep + count(self.change.append.len()),
                content.title_seq,
                content.title,
                content.created_at,
                content.last_run,
                content.nameless,
                content.shared,
                content.shared_instructions,
                content.metadata,
            ],
        )?;
        let layout = RowLayout {
            row: connection.last_insert_rowid(),
            shared_instructions: content.shared_instructions,
            shared: content.shared,
        };
        let kept_instructions = match content.keeps_instructions {
            true => content.instruction_count,
            false => 0,
        };
        let ends = [INSTRUCTIONS_START + kept_instructions, content.keep];
        // They are copied with the row, as what is shared.
        let mut shared_bytes = content.metadata_bytes();
        if let Some(source) = content.source {
            share(connection, [source, layout.row], ends)?;
            let segments = layout.segments(connection, INSTRUCTIONS_START)?;
            shared_bytes += message_bytes(connection, &segments, content.shared)?;
        }
        Ok(HiddenSession {
            row: layout.row,
            source: content.source,
            keep: content.keep,
            copied: layout.own_before(ends),
            shared_bytes,
        })
    }

    fn imported(&self, created_at: i64, now: i64) -> NewColumns {
        let title = self.change.title.clone();
        NewColumns {
            source: None,
            instruction_bytes: self.instruction_bytes(),
            instruction_count: count(self.instructions.len()),
            keeps_instructions: false,
            keep: 0,
            kept_bytes: 0,
            shared_instructions: false,
            shared: 0,
            title_seq: title.as_ref().map(|title| count(title.index)),
            title: title.and_then(|title| title.text),
            created_at: match created_at {
                0 => now,
                seconds => seconds.saturating_mul(MICROS_PER_SECOND),
            },
            last_run: self.run_text(),
            nameless: origin_column(self.change.id_origin),
            metadata: self.change.metadata.clone(),
        }
    }

    fn changed(
        &self,
        connection: &Connection,
        head: Option<&SessionRow>,
        now: i64,
    ) -> Result<NewColumns, StatementError> {
        let Some(head) = head else {
            return Ok(self.imported(0, now));
        };
        let stored = SourceColumns::of(connection, head.layout.row)?;
        let keep = head.messages.min(count(self.change.keep));
        let title_stays = head.title_seq.is_some_and(|seq| seq < keep);
        let title = self.change.title.clone();
        let keeps_instructions = self.change.instructions.is_none();
        let (instruction_bytes, instruction_count) = match keeps_instructions {
            true => (head.instruction_bytes, head.instruction_count),
            false => (self.instruction_bytes(), count(self.instructions.len())),
        };
        Ok(NewColumns {
            source: Some(head.layout.row),
            instruction_bytes,
            instruction_count,
            keeps_instructions,
            keep,
            kept_bytes: kept_bytes(connection, head, keep)?,
            shared_instructions: keeps_instructions && head.layout.shared_instructions,
            shared: head.layout.shared.min(keep),
            title_seq: match title_stays {
                true => head.title_seq,
                false => title.as_ref().map(|title| keep + count(title.index)),
            },
            title: match title_stays {
                true => stored.title,
                false => title.and_then(|title| title.text),
            },
            created_at: stored.created_at,
            last_run: self.run_text().or(stored.last_run),
            nameless: stored.nameless,
            metadata: self.change.metadata.clone().or(stored.metadata),
        })
    }

    /// The bytes of the new instructions.
    fn instruction_bytes(&self) -> i64 {
        let bytes = self.instructions.iter().map(StoredMessage::stored_bytes);
        count(bytes.sum())
    }

    /// The id of the run that makes the change.
    fn run_text(&self) -> Option<String> {
        let run = self.change.run.as_ref();
        run.map(|run| run.as_str().to_owned())
    }

    /// Replaces the target session with the hidden session.
    fn finish(
        &self,
        connection: &Connection,
        draft: HiddenSession,
        bytes: i64,
        now: i64,
    ) -> Result<Replaced, StatementError> {
        let owner = &self.source.owner;
        let there = SessionRow::find(connection, owner, &self.target)?;
        let growth = Growth {
            before: there.as_ref().map(|head| unsigned(head.bytes)),
            after: unsigned(bytes),
        };
        let there = there.map(|head| head.layout.row);
        match self.kind {
            RewriteKind::Change if draft.source.is_some() && there != draft.source => {
                return Err(StoreError::failed("the session was deleted meanwhile").into());
            }
            RewriteKind::Change | RewriteKind::Import { .. } => {}
        }
        self.quota
            .check(connection, owner.as_str(), growth, Attempt::AfterEviction)?;
        if let Some(there) = there {
            // Files, and for a change the client calls, are kept.
            let moved = [there, draft.row];
            connection.execute(
                "UPDATE session_files SET session = ?2 WHERE session = ?1",
                moved,
            )?;
            match self.kind {
                RewriteKind::Change => connection.execute(
                    "UPDATE client_calls SET session = ?2 WHERE session = ?1",
                    moved,
                )?,
                RewriteKind::Import { .. } => {
                    connection.execute("DELETE FROM client_calls WHERE session = ?1", [there])?
                }
            };
            hide_session(connection, there)?;
        }
        connection.execute(
            "UPDATE sessions SET owner = ?2, session_id = ?3, bytes = ?4, updated_at = ?5 WHERE id = ?1",
            params![draft.row, owner.as_str(), self.target.as_str(), bytes, now],
        )?;
        assign_calls(connection, draft.row, owner, &self.change.client_calls)?;
        if let Some(run) = &self.change.run {
            begin_run(connection, now, run, owner, Some(&self.target))?;
        }
        Ok(match there {
            Some(_) => Replaced::Replaced,
            None => Replaced::Created,
        })
    }
}
