//! Conformance tests for every kind of store. A store runs them with [`suite`] and a function that opens an empty
//! store. An attribute in brackets before it, such as `[ignore]`, is put on each test.

#![expect(
    clippy::cognitive_complexity,
    reason = "a test is a sequence of states, each with its assertions"
)]

pub(super) mod accounts;
pub(super) mod approval_events;
pub(super) mod approvals;
pub(super) mod decisions;
pub(super) mod expiry;
pub(super) mod files;
pub(super) mod forks;
pub(super) mod keys;
pub(super) mod large;
pub(super) mod leases;
pub(super) mod lists;
pub(super) mod properties;
pub(super) mod runs;
pub(super) mod sessions;
pub(super) mod sizes;
pub(super) mod suspended;
pub(super) mod waiting;

use super::run::AnswerLimits;
use super::*;
use protocol::ids::{FileId, RunId};
use protocol::openai::message::{Message, Role};

/// Longer than any test waits for a lease that it gets.
const LONG: Duration = Duration::from_secs(30);

/// An empty store.
pub(super) struct TestStore {
    pub(super) store: Store,
    /// The directory of the store, if it has one; deleted when the test ends.
    pub(super) directory: Option<tempfile::TempDir>,
}

/// Defines the conformance tests for a function that opens an empty store.
macro_rules! suite {
    ($open:path) => {
        $crate::suite::suite!([cfg(test)] $open);
    };
    ($attribute:tt $open:path) => {
        $crate::suite::cases! { $attribute $open;
            approval_events::each_event_of_an_approval_is_taken_once,
            approval_events::a_call_that_was_decided_early_has_both_events,
            approvals::questions_are_kept_with_their_turn,
            decisions::a_decision_is_made_once,
            decisions::of_several_deciders_one_decides,
            decisions::what_has_expired_is_not_decided,
            decisions::a_decision_needs_room,
            decisions::an_owner_with_many_questions_leaves_room_for_others,
            decisions::an_owner_decides_its_own_and_an_operator_all,
            approvals::the_end_of_a_turn_leaves_what_it_asked,
            approvals::a_changed_message_is_stored_with_its_turn,
            approvals::a_turn_that_is_too_large_changes_nothing,
            approvals::a_session_stays_while_something_can_be_decided,
            files::a_file_is_known_to_its_owner_until_it_is_deleted,
            files::a_file_that_is_known_takes_no_second_row,
            files::files_are_deleted_with_the_last_session_that_uses_them,
            files::a_bound_file_may_be_older_than_its_session,
            files::lists_come_in_pages_in_both_orders,
            files::files_of_large_owners_are_evicted_first,
            files::a_session_may_use_more_files_than_one_batch,
            files::unused_files_expire,
            forks::a_fork_copies_up_to_the_index,
            forks::forks_of_large_sessions_are_independent,
            forks::any_forks_have_the_effect_of_copies,
            forks::large_instructions_belong_to_each_fork,
            forks::a_refused_fork_has_a_specific_error,
            forks::a_replacement_replaces_everything,
            large::a_long_change_is_atomic,
            large::a_long_edit_keeps_the_messages_before_it,
            large::a_session_is_read_consistently_while_it_is_written,
            large::short_writes_are_made_beside_long_ones,
            large::long_sessions_are_replaced_copied_and_deleted,
            large::large_messages_and_any_text_are_stored_unchanged,
            large::a_write_dropped_at_any_point_is_atomic,
            leases::a_write_under_a_lease_that_ended_is_refused,
            leases::a_lease_waits_in_order_and_at_most_the_given_time,
            leases::leases_of_other_sessions_and_owners_do_not_wait,
            leases::a_lease_can_be_renewed_until_it_ends,
            leases::a_dropped_write_delays_the_next_lease,
            leases::the_list_says_which_sessions_are_leased,
            leases::turns_of_a_session_never_overlap,
            lists::pages_cover_all_sessions_once_last_written_first,
            lists::titles_follow_the_messages_that_give_them,
            keys::a_key_belongs_to_one_request_of_its_owner,
            keys::two_claims_at_once_give_one_key,
            keys::a_released_key_is_free,
            keys::a_key_passes_from_an_interrupted_run_to_the_next,
            keys::the_oldest_keys_of_the_largest_owner_go_after_its_answers,
            keys::keys_expire,
            lists::nameless_sessions_expire_after_their_own_time,
            lists::sessions_that_were_not_written_expire,
            suspended::a_turn_stays_with_its_session_until_it_is_dropped,
            suspended::a_turn_goes_with_its_session,
            suspended::a_turn_counts_for_the_size_of_its_session,
            suspended::a_replacement_ends_the_turn,
            suspended::a_refused_change_ends_no_turn,
            suspended::of_each_owner_a_run_goes_on,
            suspended::a_run_goes_on_with_its_turn_once_all_is_decided,
            suspended::a_turn_says_which_run_goes_on_at_its_beginning_only,
            runs::a_record_has_the_state_of_its_run,
            runs::an_answer_is_stored_once_and_unchanged,
            runs::an_owner_sees_and_changes_only_its_own_runs,
            runs::a_deleted_record_leaves_nothing,
            runs::a_write_records_its_run,
            runs::imports_and_forks_have_no_last_run,
            runs::ended_records_expire,
            runs::an_answer_that_is_too_large_is_not_stored,
            runs::the_oldest_answers_of_the_largest_owner_are_evicted,
            runs::a_large_answer_dropped_at_any_point_is_whole_or_absent,
            sessions::a_change_appends_and_keeps_messages_unchanged,
            sessions::a_head_says_how_large_a_session_is,
            sessions::a_change_deletes_messages_that_it_does_not_keep,
            sessions::a_change_that_keeps_more_than_is_stored_leaves_no_gap,
            sessions::an_empty_session_can_be_kept,
            sessions::an_owner_sees_and_changes_only_what_is_its_own,
            sessions::many_sessions_are_written_and_read_at_once,
            sessions::dropped_reads_have_no_effect,
            sessions::a_closed_store_refuses_everything,
            sizes::bytes_are_counted_through_every_operation,
            sizes::a_session_above_its_limit_is_refused_and_nothing_is_changed,
            sizes::sessions_without_a_clients_id_go_before_a_write_is_refused,
            accounts::no_more_is_reserved_than_the_limit,
            accounts::a_settled_amount_counts,
            accounts::a_dropped_reservation_ends,
            waiting::a_call_belongs_to_the_session_that_wrote_it_last,
            waiting::an_unstored_turn_waits_for_any_of_its_calls,
            waiting::unstored_turns_are_bounded_in_time_and_number,
            waiting::an_owner_with_few_unstored_turns_keeps_them,
            waiting::attachments_are_dropped_when_detached_or_expired,
        }

        #[test]
        # $attribute
        fn changes_have_the_effect_of_list_operations() {
            $crate::suite::properties::changes_have_the_effect_of_list_operations(|| {
                Box::pin($open())
            });
        }
    };
}

/// Defines one test for each function.
macro_rules! cases {
    ($attribute:tt $open:path; $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            # $attribute
            async fn $name() {
                $crate::suite::$module::$name($open().await).await;
            }
        )*
    };
}

pub(super) use {cases, suite};

impl Store {
    /// Runs a statement that changes rows; returns how many.
    pub(super) async fn change_rows(&self, sql: &str) -> usize {
        let mut tx = self
            .single(&Owner::server(), StatementSize::Large)
            .await
            .unwrap();
        let returning = format!("{sql} RETURNING 1");
        tx.dynamic(&returning, &[]).await.unwrap().len()
    }

    /// Runs a query; returns its first number.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        let mut tx = self
            .single(&Owner::server(), StatementSize::Large)
            .await
            .unwrap();
        let mut rows = tx.dynamic(sql, &[]).await.unwrap();
        rows.first_mut().unwrap().column(0).unwrap()
    }

    async fn rows_of<const N: usize>(&self, tables: [&str; N]) -> [i64; N] {
        let mut rows = [0; N];
        for (rows, table) in rows.iter_mut().zip(tables) {
            *rows = self.number(&format!("SELECT count(*) FROM {table}")).await;
        }
        rows
    }

    /// Sets the time of the last write of a session.
    pub(super) async fn set_updated_at(&self, owner: &Owner, id: &SessionId, seconds: i64) {
        let (owner, id, micros) = (owner.as_str(), id.as_str(), seconds * 1_000_000);
        let sql = format!(
            "UPDATE sessions SET updated_at = {micros}, written_at = 0 WHERE owner = '{owner}' AND session_id = '{id}'"
        );
        assert_eq!(self.change_rows(&sql).await, 1);
    }

    /// Moves the times of all records of runs and of all idempotency keys into the past.
    pub(super) async fn age_runs(&self, seconds: i64) {
        let micros = seconds * 1_000_000;
        for (table, column) in [("runs", "ended_at"), ("idempotency_keys", "created_at")] {
            let sql = format!("UPDATE {table} SET {column} = {column} - CAST({micros} AS bigint)");
            self.change_rows(&sql).await;
        }
    }

    /// Stores an answer under limits that differ from the limits of the store.
    async fn end_run_within(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: RunAnswer,
        limits: AnswerLimits,
    ) {
        self.shared.answers.limit(limits);
        self.end_run(run, owner, answer).await.unwrap();
    }

    /// The number of rows of records, pieces of answers and idempotency keys.
    pub(super) async fn run_rows(&self) -> [i64; 3] {
        self.rows_of(["runs", "run_bodies", "idempotency_keys"])
            .await
    }

    /// The number of rows of sessions, messages and pending calls.
    async fn stored_rows(&self) -> [i64; 3] {
        self.rows_of(["sessions", "messages", "client_calls"]).await
    }

    /// Makes the clock of the store wrong.
    pub(super) async fn shift_clock(&self, seconds: i64) {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.shift_clock(seconds),
            Engine::Postgres(postgres) => postgres.shift_clock(seconds).await,
        }
    }
}

impl TestStore {
    /// Writes a change under a new lease.
    async fn write(&self, session: &SessionId, change: Change) {
        self.write_as(&owner(), session, change).await;
    }

    async fn write_as(&self, owner: &Owner, session: &SessionId, change: Change) {
        let lease = self.store.acquire(owner, session, LONG).await.unwrap();
        let change = Arc::new(change);
        self.store.write(lease.fence(), &change).await.unwrap();
        self.store.release(lease).await;
    }

    async fn replace(&self, session: &SessionId, created_at: i64, change: Change) -> Replaced {
        let lease = self.lease(session).await;
        let change = Arc::new(change);
        let replaced = self.store.replace(lease.fence(), created_at, &change);
        replaced.await.unwrap()
    }

    async fn fork(
        &self,
        session: &SessionId,
        before: Option<usize>,
        new_id: &SessionId,
    ) -> Result<(), StoreError> {
        let lease = self.lease(session).await;
        let forked = self.store.fork(lease.fence(), before, new_id).await?;
        let listed = self.summary(new_id).await;
        assert_eq!(forked, listed);
        Ok(())
    }

    async fn delete(&self, session: &SessionId) -> bool {
        let lease = self.lease(session).await;
        self.store.delete(lease.fence()).await.unwrap()
    }

    async fn lease(&self, session: &SessionId) -> Lease {
        self.store.acquire(&owner(), session, LONG).await.unwrap()
    }

    async fn loaded(&self, session: &SessionId) -> StoredSession {
        self.store.load(&owner(), session).await.unwrap().unwrap()
    }

    async fn is_gone(&self, session: &SessionId) -> bool {
        self.store.load(&owner(), session).await.unwrap().is_none()
    }

    async fn summary(&self, session: &SessionId) -> SessionSummary {
        let page = self.store.list(&owner(), 1000, None).await.unwrap();
        let mut entries = page.data.into_iter();
        entries.find(|entry| entry.id == *session).unwrap()
    }

    async fn session_of_call(&self, call: &str) -> Option<SessionId> {
        match self.store.waiting_turn(&owner(), call).await.unwrap()? {
            WaitingTurn::Stored(id) => Some(id),
            WaitingTurn::Unstored(_) => None,
        }
    }
}

pub(super) fn owner() -> Owner {
    Owner::key("alice")
}

pub(super) fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(super) fn user(text: &str) -> StoredMessage {
    StoredMessage::visible(Message::text(Role::User, text))
}

pub(super) fn answer(text: &str) -> StoredMessage {
    StoredMessage {
        view: Some(View {
            run: None,
            completion: Some("0123456789abcdef0123456789abcdef".to_owned()),
            removed: Vec::new(),
            text: text.to_owned(),
            final_text: text.to_owned(),
            behind_wait: None,
            call_ids: vec!["call_1".to_owned()],
        }),
        ..StoredMessage::visible(Message::text(Role::Assistant, text))
    }
}

pub(super) fn hidden_result(text: &str) -> StoredMessage {
    StoredMessage {
        full_text: Some(format!(
            "{text}, the whole of it\0with a NUL and \"quotes\""
        )),
        sources: vec![protocol::openai::citation::CitedSource {
            number: 1,
            url: "https://example.com/".to_owned(),
            title: text.to_owned(),
        }],
        ..StoredMessage::hidden(Message::tool_result("call_1", text))
    }
}

pub(super) fn system(text: &str) -> Message {
    Message::text(Role::System, text)
}

pub(super) fn append(keep: usize, messages: &[StoredMessage]) -> Change {
    Change {
        keep,
        append: messages.to_vec(),
        ..Change::default()
    }
}

fn many(count: usize) -> Vec<StoredMessage> {
    (0..count).map(|number| user(&number.to_string())).collect()
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_secs()).unwrap()
}
