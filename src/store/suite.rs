//! The behaviour that every store has. A variant runs all of it with [`suite`] and a function that opens an empty store.

#![expect(
    clippy::cognitive_complexity,
    reason = "a behaviour is a sequence of states, each with its assertions"
)]

pub(super) mod files;
pub(super) mod forks;
pub(super) mod large;
pub(super) mod leases;
pub(super) mod lists;
pub(super) mod properties;
pub(super) mod sessions;
pub(super) mod waiting;

use super::*;
use crate::ids::FileId;
use crate::openai::message::{Message, Role};

/// Longer than any test waits for a lease that it gets.
const LONG: Duration = Duration::from_secs(30);

/// An empty store.
pub(super) struct Subject {
    pub(super) store: Store,
    /// Deleted when the test ends, where the store has one.
    pub(super) directory: Option<tempfile::TempDir>,
}

/// Makes one test of each behaviour.
macro_rules! suite {
    ($open:path) => {
        $crate::store::suite::cases! { $open;
            files::a_file_is_known_to_its_owner_until_it_is_deleted,
            files::a_file_that_is_known_takes_no_second_row,
            files::files_go_with_the_last_session_that_uses_them,
            files::lists_come_in_pages_in_both_orders,
            files::older_files_make_room_those_of_large_owners_first,
            files::a_session_may_use_more_files_than_one_look_shows,
            files::unused_files_expire,
            forks::a_fork_copies_up_to_the_index,
            forks::a_fork_says_why_it_cannot_be_made,
            forks::a_replacement_takes_the_place_of_everything,
            large::a_long_change_is_whole,
            large::a_long_edit_keeps_what_it_keeps,
            large::a_session_is_read_whole_while_it_is_written,
            large::long_work_lets_short_writes_in_between,
            large::long_sessions_are_replaced_copied_and_deleted,
            large::large_messages_and_any_text_survive,
            large::a_write_dropped_at_any_point_leaves_nothing_half_written,
            leases::a_write_under_a_lease_that_ended_is_refused,
            leases::a_lease_waits_for_the_one_before_and_no_longer_than_asked,
            leases::leases_of_other_sessions_and_owners_do_not_wait,
            leases::a_lease_can_be_renewed_until_it_ends,
            leases::a_write_that_nobody_waits_for_holds_off_the_next_lease,
            leases::the_list_says_which_sessions_are_leased,
            leases::turns_of_a_session_never_overlap,
            lists::pages_cover_all_sessions_once_last_written_first,
            lists::titles_follow_the_messages_that_give_them,
            lists::what_was_not_written_for_long_expires,
            sessions::a_change_appends_and_what_was_kept_comes_back_as_it_was,
            sessions::a_change_removes_what_it_does_not_keep,
            sessions::a_change_that_keeps_more_than_there_is_leaves_no_hole,
            sessions::an_empty_session_can_be_kept,
            sessions::an_owner_sees_and_changes_only_what_is_its_own,
            sessions::many_sessions_are_written_and_read_at_once,
            sessions::readers_that_give_up_do_no_harm,
            sessions::a_closed_store_refuses_everything,
            waiting::a_call_leads_to_the_session_that_named_it_last,
            waiting::an_unstored_turn_waits_for_any_of_its_calls,
            waiting::unstored_turns_are_bounded_in_time_and_number,
            waiting::what_is_attached_goes_when_it_is_detached_or_late,
        }

        #[test]
        fn changes_do_what_they_say() {
            $crate::store::suite::properties::changes_do_what_they_say(|| Box::pin($open()));
        }
    };
}

/// One test of each behaviour named.
macro_rules! cases {
    ($open:path; $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::store::suite::$module::$name($open().await).await;
            }
        )*
    };
}

pub(super) use {cases, suite};

impl Store {
    /// Makes a session last written at that time.
    async fn set_updated_at(&self, owner: &Owner, id: &SessionId, seconds: i64) {
        match self {
            Self::Sqlite(sqlite) => sqlite.set_updated_at(owner, id, seconds).await,
        }
    }

    /// Makes a file last used that long ago.
    pub(crate) async fn set_unused_for(&self, id: &FileId, seconds: i64) {
        match self {
            Self::Sqlite(sqlite) => sqlite.set_unused_for(id, seconds).await,
        }
    }
}

impl Subject {
    /// Makes a change under a lease of its own.
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
        self.store.fork(lease.fence(), before, new_id).await
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

fn answer(text: &str) -> StoredMessage {
    StoredMessage {
        view: Some(View {
            text: text.to_owned(),
            final_text: text.to_owned(),
            call_ids: vec!["call_1".to_owned()],
        }),
        ..StoredMessage::visible(Message::text(Role::Assistant, text))
    }
}

fn hidden_result(text: &str) -> StoredMessage {
    StoredMessage {
        full_text: Some(format!(
            "{text}, the whole of it\0with a NUL and \"quotes\""
        )),
        sources: vec![crate::openai::citation::CitedSource {
            number: 1,
            url: "https://example.com/".to_owned(),
            title: text.to_owned(),
        }],
        ..StoredMessage::hidden(Message::tool_result("call_1", text))
    }
}

fn system(text: &str) -> Message {
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
