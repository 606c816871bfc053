//! Running turns. A run has an id, an owner, an event log and a control; connections only read it.
//!
//! A run does not depend on its readers: the connection of the first reader polls it while it can write, else a task of
//! its own does. A bounded buffer lies between the run and the reader that started it: a slow reader holds back the
//! model stream, and nothing else. When the last reader leaves, the run is aborted unless it was asked to finish. This
//! module does not depend on dialects: [`Runs::prepare`] gets the function that encodes events as lines and an answer.

mod blocked;
mod follow;
mod inline;
mod keys;
mod log;
mod reader;
mod records;
mod report;
mod servers;
pub mod settings;
mod state;
mod table;
mod task;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use self::blocked::BlockedRuns;
pub use self::follow::{Follow, FollowError, Followed};
use self::inline::InlineRun;
pub use self::inline::InlineRunSlot;
pub use self::keys::IdempotencyKey;
use self::log::Page;
pub use self::reader::{FirstReader, StreamHead};
pub use self::report::{Encode, RunReport};
use self::servers::SuspendedServers;
use self::settings::Settings;
use self::state::RunState;
use self::table::Table;
pub use self::task::panic_text;
use crate::Agent;
use crate::control::{AbortReason, TurnControl};
use crate::direct::CheckedCall;
use crate::event::AgentEvent;
use crate::metrics::Metrics;
use crate::turn::TurnRequest;
use protocol::ids::{Owner, RunId, SessionId};
use quota::{BudgetExceeded, RetainedMemory};
use store::Store;
pub use store::{KeyClaim, OtherReplica, RunAnswer, RunRecord, RunRecordState, SuspendedRun};

/// The runs of this process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    agent: Agent,
    store: Store,
    tasks: TaskTracker,
    metrics: Metrics,
    logs: RetainedMemory,
    table: Mutex<Table>,
    /// Suspended runs that cannot be resumed here.
    blocked: Mutex<BlockedRuns>,
    servers: Mutex<SuspendedServers>,
}

/// How a run is started.
#[expect(missing_debug_implementations, reason = "holds a function")]
pub struct RunStart {
    /// The id, by which the run can be found.
    pub id: RunId,
    /// Turns events into lines and the answer.
    pub encode: Encode,
    /// The run continues without readers.
    pub finish: bool,
    /// The reader takes lines while they are written. A reader that only waits for the answer does not hold back the
    /// run.
    pub streamed: bool,
    /// The run has a record in the store from its start. A run without one has it from the first write of its session.
    pub recorded: bool,
    /// The key under which the request may be sent again.
    pub key: Option<IdempotencyKey>,
    /// Nothing of the run may be written to the store.
    pub ephemeral: bool,
    /// The session that the request names.
    pub session_id: Option<SessionId>,
    /// What the run is shown as while it runs, where its dialect has an object for that.
    pub unfinished: Option<Bytes>,
    /// Permits and memory of the turn; given back when it has ended.
    pub held: Box<dyn Send>,
}

/// What a run carries out.
#[derive(Debug)]
pub enum Work {
    /// A turn.
    Turn(Box<TurnRequest>),
    /// A turn that has ended without being opened: the events of its answer.
    Replay(Vec<AgentEvent>),
    /// A call outside of a turn.
    Call(Box<CheckedCall>),
}

impl From<TurnRequest> for Work {
    fn from(turn: TurnRequest) -> Self {
        Self::Turn(Box::new(turn))
    }
}

impl From<CheckedCall> for Work {
    fn from(call: CheckedCall) -> Self {
        Self::Call(Box::new(call))
    }
}

impl Work {
    /// The session in which the work is stored, if the request names one.
    fn session_id(&self) -> Option<&SessionId> {
        match self {
            Self::Turn(turn) => {
                let session = turn.options.session_id.as_ref();
                session.filter(|_| !turn.options.ephemeral)
            }
            Self::Call(call) => call.session_id(),
            Self::Replay(_) => None,
        }
    }
}

/// A run that can be found and has not been started. Dropping it removes it.
#[expect(missing_debug_implementations, reason = "holds a function")]
pub struct PreparedRun {
    entry: TableEntry,
    encode: Encode,
    held: Box<dyn Send>,
    reader: FirstReader,
}

/// The entry of a run that has not been started. Dropping it removes the entry.
struct TableEntry {
    runs: Runs,
    state: Arc<RunState>,
    launched: bool,
}

/// Why no run was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the process is stopping and starts no runs")]
pub struct Closed;

/// What a running run is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStatus {
    /// The id.
    pub id: RunId,
    /// When it was started, in seconds since 1970.
    pub created: i64,
    /// The session, if the conversation is stored.
    pub session_id: Option<SessionId>,
    /// The round in progress, from 0.
    pub round: u32,
    /// What it is shown as, where its dialect has an object for that.
    pub unfinished: Option<Bytes>,
}

/// How a run is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CancelMode {
    /// Aborts the run immediately: the model stream and running calls end.
    #[default]
    Abort,
    /// Once the batch or the model call in progress has ended.
    AfterRound,
}

impl Runs {
    /// No runs yet. Sets the limit on the answers in the store.
    pub fn new(agent: Agent, store: Store, metrics: Metrics, settings: &Settings) -> Self {
        store.limit_answers(settings.max_total_answer_bytes);
        Self(Arc::new(Inner {
            agent,
            store,
            tasks: TaskTracker::new(),
            metrics,
            logs: RetainedMemory::new(settings.max_total_event_bytes),
            table: Mutex::default(),
            blocked: Mutex::default(),
            servers: Mutex::default(),
        }))
    }

    /// Makes a run known by its id. It is started by [`PreparedRun::launch`]; requests that come again under its key find
    /// it from now on.
    ///
    /// # Errors
    /// When the process is stopping.
    pub fn prepare(&self, owner: &Owner, start: RunStart) -> Result<PreparedRun, Closed> {
        let charge = self.0.logs.charge(owner);
        let state = Arc::new(RunState::new(&start, owner.clone(), charge));
        if !self.0.table.lock().insert(state.clone()) {
            return Err(Closed);
        }
        Ok(PreparedRun {
            reader: FirstReader::new(state.clone()),
            encode: start.encode,
            held: start.held,
            entry: TableEntry {
                runs: self.clone(),
                state,
                launched: false,
            },
        })
    }

    /// The status of a running run of this owner; `None` if it has ended or does not exist.
    pub fn status(&self, owner: &Owner, id: &RunId) -> Option<RunStatus> {
        self.find(owner, id)?.status()
    }

    /// The run of a session that is running.
    pub fn of_session(&self, owner: &Owner, session: &SessionId) -> Option<RunId> {
        let table = self.0.table.lock();
        let running = table.running_of(owner);
        let found = running.filter_map(|run| run.status());
        let of_session = found.filter(|status| status.session_id.as_ref() == Some(session));
        // Ids are ordered by time, and the oldest has the lease.
        of_session.map(|status| status.id).min()
    }

    /// Cancels a run. Returns whether it runs and ends as cancelled; a run that is about to be suspended does not.
    pub fn cancel(&self, owner: &Owner, id: &RunId, mode: CancelMode) -> bool {
        let Some(run) = self.find(owner, id).filter(|run| run.status().is_some()) else {
            return false;
        };
        run.control.request_cancel(mode == CancelMode::AfterRound)
    }

    /// Reads the lines of a run after the first `after` ones.
    ///
    /// # Errors
    /// When memory has no such run, its lines were dropped, or `after` is more than its number of lines.
    pub fn follow(&self, owner: &Owner, id: &RunId, after: u64) -> Result<Follow, FollowError> {
        let run = self.find(owner, id).ok_or(FollowError::NotFound)?;
        Follow::new(run, after)
    }

    /// Reads the lines of a run that are still to come.
    ///
    /// # Errors
    /// When there is no such run in memory.
    pub fn follow_on(&self, owner: &Owner, id: &RunId) -> Result<Follow, FollowError> {
        let run = self.find(owner, id).ok_or(FollowError::NotFound)?;
        Ok(Follow::from_now(run))
    }

    /// Aborts every run; no other is started.
    pub fn close(&self) {
        let running: Vec<TurnControl> = {
            let mut table = self.0.table.lock();
            table.close();
            table.runs().map(|run| run.control.clone()).collect()
        };
        for control in running {
            control.abort(AbortReason::Shutdown);
        }
    }

    /// Waits for the end of all runs. No run should be started any more.
    pub async fn ended_all(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Forgets ended runs whose time is up.
    pub fn expire(&self) {
        self.0.table.lock().expire();
    }

    fn find(&self, owner: &Owner, id: &RunId) -> Option<Arc<RunState>> {
        self.0.table.lock().find(owner, id)
    }

    /// Records that a run has ended. Its answer is charged if only memory has it, and dropped if it exceeds the budget.
    fn ended(&self, state: &RunState) {
        let kept = self.0.table.lock().ended(state);
        while kept && let Err(limit) = state.charge_answer(self.0.logs.charge(&state.owner)) {
            if !self.drop_oldest(&state.owner, limit) {
                state.release();
                return;
            }
        }
    }

    /// Drops the log and answer of the oldest ended run in memory, to make space for one of this owner; returns whether
    /// there was one.
    fn drop_oldest(&self, owner: &Owner, limit: BudgetExceeded) -> bool {
        let logs = &self.0.logs;
        let oldest = self.0.table.lock().take_oldest(owner, limit, logs);
        if let Some(run) = &oldest {
            run.clear();
        }
        oldest.is_some()
    }
}

/// The status of a run of another process, from its record.
impl From<RunRecord> for RunStatus {
    fn from(record: RunRecord) -> Self {
        Self {
            id: record.id,
            created: record.created_at,
            session_id: record.session_id,
            round: 0,
            unfinished: None,
        }
    }
}

impl PreparedRun {
    /// Starts the run with its work. It is polled by its reader, until the connection hands it over or the reader is dropped.
    /// Has to be called within a runtime.
    pub fn launch(self, work: Work, connection: &InlineRunSlot) -> FirstReader {
        let Self {
            mut entry,
            encode,
            held,
            mut reader,
        } = self;
        entry.launched = true;
        let (runs, state) = (entry.runs.clone(), entry.state.clone());
        state.reached(work.session_id(), 0);
        let running = runs.0.metrics.run_started();
        let tasks = runs.0.tasks.clone();
        let run = task::run(runs, state, work, encode, (running, held));
        let run = InlineRun::new(run, &tasks);
        connection.set(&run);
        reader.poll_run(run);
        reader
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        if !self.launched {
            self.state.end(&mut Page::default(), None);
            self.runs.0.table.lock().cancel(&self.state);
        }
    }
}
