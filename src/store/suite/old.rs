use std::collections::HashSet;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::try_join_all;

use super::super::settings::StoreUrl;
use super::super::{StoredMessage, View};
use super::*;
use crate::openai::message::{Message, Role};

struct Fixture {
    store: SessionStore,
    /// Deleted when the test ends; `None` in memory.
    directory: Option<tempfile::TempDir>,
}

fn settings(store: StoreUrl) -> Settings {
    Settings {
        store,
        ttl: None,
        wait: Duration::from_secs(1),
        max_messages: 10_000,
        files_dir: None,
        max_file_bytes: 1 << 20,
        max_total_file_bytes: 1 << 30,
    }
}

fn file_settings(path: impl Into<PathBuf>) -> Settings {
    settings(StoreUrl::Sqlite(path.into()))
}

fn file_of(directory: &Path) -> PathBuf {
    directory.join("sessions.db")
}

async fn in_memory() -> SessionStore {
    SessionStore::open(&settings(StoreUrl::Memory))
        .await
        .unwrap()
}

async fn in_file() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let store = SessionStore::open(&file_settings(file_of(directory.path())))
        .await
        .unwrap();
    Fixture {
        store,
        directory: Some(directory),
    }
}

/// Both kinds of store; every behaviour holds for either.
async fn both() -> [Fixture; 2] {
    let memory = Fixture {
        store: in_memory().await,
        directory: None,
    };
    [memory, in_file().await]
}

fn owner() -> Owner {
    Owner::key("alice")
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn plain(message: Message) -> StoredMessage {
    StoredMessage {
        message,
        hidden: false,
        view: None,
        full_text: None,
        sources: Vec::new(),
    }
}

fn user(text: &str) -> StoredMessage {
    plain(Message::text(Role::User, text))
}

fn answer(text: &str) -> StoredMessage {
    StoredMessage {
        view: Some(View {
            text: text.to_owned(),
            final_text: text.to_owned(),
            call_ids: vec!["call_1".to_owned()],
        }),
        ..plain(Message::text(Role::Assistant, text))
    }
}

fn hidden_result(text: &str) -> StoredMessage {
    StoredMessage {
        hidden: true,
        full_text: Some(format!(
            "{text}, the whole of it\0with a NUL and \"quotes\""
        )),
        ..plain(Message::tool_result("call_1", text))
    }
}

fn system(text: &str) -> Message {
    Message::text(Role::System, text)
}

fn append(keep: usize, messages: &[StoredMessage]) -> Change {
    Change {
        keep,
        append: messages.to_vec(),
        ..Change::default()
    }
}

async fn loaded(store: &SessionStore, session: &SessionId) -> StoredSession {
    store.load(&owner(), session).await.unwrap().unwrap()
}

async fn summary_of(store: &SessionStore, session: &SessionId) -> SessionSummary {
    let page = store.list(&owner(), 1000, None).await.unwrap();
    page.data
        .into_iter()
        .find(|entry| entry.id == *session)
        .unwrap()
}

async fn set_updated_at(store: &SessionStore, session: &SessionId, seconds: i64) {
    let done = sqlx::query("UPDATE sessions SET updated_at = ? WHERE session_id = ?")
        .bind(seconds * 1_000_000)
        .bind(session.as_str())
        .execute(store.writer.take().await.unwrap().get().unwrap())
        .await
        .unwrap();
    assert_eq!(done.rows_affected(), 1);
}

async fn run(store: &SessionStore, sql: &'static str) {
    let mut held = store.writer.take().await.unwrap();
    sqlx::query(sql).execute(held.get().unwrap()).await.unwrap();
    held.done();
}

async fn rows_in(store: &SessionStore, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql)
        .fetch_one(store.writer.take().await.unwrap().get().unwrap())
        .await
        .unwrap()
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap().as_secs()).unwrap()
}

#[tokio::test]
async fn a_change_appends_and_what_was_kept_comes_back_as_it_was() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        assert!(store.load(&owner(), &session).await.unwrap().is_none());
        let first = Change {
            instructions: Some(vec![
                system("be brief"),
                Message::parse(
                    r#"{ "role":"developer","content":[{"type":"text","text":"x"}],"y":1.0 }"#,
                )
                .unwrap(),
            ]),
            append: vec![user("hi"), hidden_result("r")],
            ..Change::default()
        };
        store.change(&owner(), &session, &first).await.unwrap();
        store
            .change(&owner(), &session, &append(2, &[answer("hello")]))
            .await
            .unwrap();
        let stored = loaded(&store, &session).await;
        assert_eq!(
            stored.messages,
            [user("hi"), hidden_result("r"), answer("hello")]
        );
        assert_eq!(Some(stored.instructions), first.instructions);
        assert!((now() - stored.created_at).abs() < 5);
        assert!((now() - stored.updated_at).abs() < 5);
        assert_eq!(summary_of(&store, &session).await.message_count, 5);
    }
}

#[tokio::test]
async fn a_change_leaves_behind_what_it_does_not_keep() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        let all = [user("a"), answer("b"), user("c"), answer("d")];
        store
            .change(&owner(), &session, &append(0, &all))
            .await
            .unwrap();
        let edit = Change {
            instructions: Some(vec![system("new")]),
            keep: 2,
            append: vec![user("c2")],
            client_calls: Vec::new(),
        };
        store.change(&owner(), &session, &edit).await.unwrap();
        let stored = loaded(&store, &session).await;
        assert_eq!(stored.messages, [user("a"), answer("b"), user("c2")]);
        assert_eq!(stored.instructions, [system("new")]);
        assert_eq!(summary_of(&store, &session).await.message_count, 4);
        // Instructions can be taken away, and a change can only cut.
        let cut = Change {
            instructions: Some(Vec::new()),
            keep: 1,
            ..Change::default()
        };
        store.change(&owner(), &session, &cut).await.unwrap();
        let stored = loaded(&store, &session).await;
        assert_eq!(stored.messages, [user("a")]);
        assert_eq!(stored.instructions, []);
        assert_eq!(summary_of(&store, &session).await.message_count, 1);
    }
}

#[tokio::test]
async fn a_change_that_keeps_more_than_there_is_leaves_no_hole() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        for stored in [0, 2] {
            let session = id(&format!("s{stored}"));
            let there = vec![user("there"); stored];
            if stored > 0 {
                store
                    .change(&owner(), &session, &append(0, &there))
                    .await
                    .unwrap();
            }
            let new = [user("new"), answer("answer")];
            store
                .change(&owner(), &session, &append(usize::MAX, &new))
                .await
                .unwrap();
            let expected = [there.as_slice(), &new].concat();
            assert_eq!(loaded(&store, &session).await.messages, expected);
            let count = u64::try_from(stored + 2).unwrap();
            assert_eq!(summary_of(&store, &session).await.message_count, count);
            // The next change finds its place by the count.
            store
                .change(&owner(), &session, &append(stored + 2, &[user("next")]))
                .await
                .unwrap();
            assert_eq!(loaded(&store, &session).await.messages.len(), stored + 3);
        }
    }
}

#[tokio::test]
async fn messages_beyond_one_statement_keep_their_order() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("long");
        let many: Vec<_> = (0..333).map(|number| user(&number.to_string())).collect();
        store
            .change(&owner(), &session, &append(0, &many[..7]))
            .await
            .unwrap();
        store
            .change(&owner(), &session, &append(7, &many[7..]))
            .await
            .unwrap();
        assert_eq!(loaded(&store, &session).await.messages, many);
    }
}

#[tokio::test]
async fn an_empty_session_can_be_kept() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        store
            .change(&owner(), &session, &Change::default())
            .await
            .unwrap();
        let stored = loaded(&store, &session).await;
        assert_eq!((stored.instructions, stored.messages), (vec![], vec![]));
    }
}

#[tokio::test]
async fn large_messages_and_any_text_survive() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        let large = "🦀\"\\\u{0}\u{2028}ß".repeat(100_000);
        assert!(large.len() > 1024 * 1024);
        let messages = [
            user(&large),
            StoredMessage {
                full_text: Some(large.clone()),
                ..hidden_result("cut")
            },
            answer(&large),
        ];
        store
            .change(&owner(), &session, &append(0, &messages))
            .await
            .unwrap();
        assert!(loaded(&store, &session).await.messages == messages);
    }
}

#[tokio::test]
async fn a_file_that_is_opened_again_holds_everything() {
    let fixture = in_file().await;
    let path = file_of(fixture.directory.as_ref().unwrap().path());
    let session = id("s");
    let change = Change {
        instructions: Some(vec![system("i")]),
        append: vec![user("a"), hidden_result("b"), answer("c")],
        client_calls: vec!["call_9".to_owned()],
        ..Change::default()
    };
    fixture
        .store
        .change(&owner(), &session, &change)
        .await
        .unwrap();
    let before = loaded(&fixture.store, &session).await;
    // Not closed in order: what is committed is in the log beside the file.
    let second = SessionStore::open(&file_settings(&path)).await.unwrap();
    assert_eq!(loaded(&second, &session).await, before);
    second.close().await;
    fixture.store.close().await;
    assert!(fixture.store.ping().await.is_err());
    assert!(
        fixture
            .store
            .change(&owner(), &session, &change)
            .await
            .is_err()
    );
    let log = path.with_extension("db-wal");
    assert!(log.metadata().map_or(0, |log| log.len()) == 0);
    let third = SessionStore::open(&file_settings(&path)).await.unwrap();
    assert_eq!(loaded(&third, &session).await, before);
    let found = third.find_by_call(&owner(), "call_9").await.unwrap();
    assert_eq!(found, Some(session));
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_readable_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = in_file().await;
    let directory = fixture.directory.as_ref().unwrap().path();
    fixture
        .store
        .change(&owner(), &id("s"), &append(0, &[user("a")]))
        .await
        .unwrap();
    let mut names = Vec::new();
    for entry in directory.read_dir().unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{:?}", entry.file_name());
        names.push(entry.file_name());
    }
    assert!(names.len() >= 3, "the log is looked at too: {names:?}");
}

#[tokio::test]
async fn what_is_no_database_is_an_error_that_names_no_path() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.db");
    std::fs::write(
        &text,
        "no database, but long enough to have a header. ".repeat(10),
    )
    .unwrap();
    for path in [
        directory.path().join("missing/secret/sessions.db"),
        directory.path().to_owned(),
        text,
        PathBuf::new(),
    ] {
        let error = SessionStore::open(&file_settings(&path)).await.unwrap_err();
        assert_eq!(error.to_string(), "session store failed", "{path:?}");
        assert!(error.source().is_some());
    }
}

#[tokio::test]
async fn odd_file_names_are_file_names() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["file:x?mode=memory", ":memory:", "ä b%20.db"] {
        let path = directory.path().join(name);
        let store = SessionStore::open(&file_settings(&path)).await.unwrap();
        store
            .change(&owner(), &id("s"), &Change::default())
            .await
            .unwrap();
        store.close().await;
        assert!(path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn an_owner_sees_and_changes_only_what_is_its_own() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("same");
        let other = Owner::key("bob");
        let with_call = |text: &str| Change {
            append: vec![user(text)],
            client_calls: vec!["call_x".to_owned()],
            ..Change::default()
        };
        store
            .change(&owner(), &session, &with_call("alice's"))
            .await
            .unwrap();
        assert!(store.load(&other, &session).await.unwrap().is_none());
        assert_eq!(store.find_by_call(&other, "call_x").await.unwrap(), None);
        assert!(store.list(&other, 10, None).await.unwrap().data.is_empty());
        assert!(!store.delete(&other, &session).await.unwrap());
        for error in [
            store.fork(&other, &session, None, None).await.map(drop),
            store.list(&other, 10, Some(&session)).await.map(drop),
        ] {
            assert!(matches!(error, Err(SessionError::NotFound)));
        }
        // The same names for another owner are other things.
        let replaced = store
            .replace(&other, &session, &StoredSession::default())
            .await;
        assert_eq!(replaced.unwrap(), Replaced::Created);
        store
            .change(&other, &id("bobs"), &with_call("bob's"))
            .await
            .unwrap();
        assert_eq!(loaded(&store, &session).await.messages, [user("alice's")]);
        let found = store.find_by_call(&owner(), "call_x").await.unwrap();
        assert_eq!(found, Some(session.clone()));
        let found = store.find_by_call(&other, "call_x").await.unwrap();
        assert_eq!(found, Some(id("bobs")));
        let everybody = Owner::everybody();
        assert!(store.load(&everybody, &session).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_call_leads_to_the_session_that_named_it_last_until_that_is_deleted() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let change = Change {
            append: vec![user("a")],
            client_calls: vec!["c1".to_owned(), "c2".to_owned(), "c1".to_owned()],
            ..Change::default()
        };
        store.change(&owner(), &id("one"), &change).await.unwrap();
        store.change(&owner(), &id("two"), &change).await.unwrap();
        assert_eq!(
            store.find_by_call(&owner(), "c2").await.unwrap(),
            Some(id("two"))
        );
        assert_eq!(store.find_by_call(&owner(), "c3").await.unwrap(), None);
        assert!(store.delete(&owner(), &id("two")).await.unwrap());
        assert!(!store.delete(&owner(), &id("two")).await.unwrap());
        assert_eq!(store.find_by_call(&owner(), "c2").await.unwrap(), None);
        assert!(store.load(&owner(), &id("two")).await.unwrap().is_none());
        // Nothing of it is left in the other tables.
        assert_eq!(
            rows_in(&store, "SELECT count(*) FROM client_calls").await,
            0
        );
        assert_eq!(rows_in(&store, "SELECT count(*) FROM messages").await, 1);
    }
}

#[tokio::test]
async fn pages_cover_all_sessions_once_last_written_first() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let names: Vec<SessionId> = (0..25).map(|number| id(&format!("s{number}"))).collect();
        for name in &names {
            store
                .change(&owner(), name, &append(0, &[user("t")]))
                .await
                .unwrap();
        }
        // Half of them at one and the same moment.
        for name in &names[..12] {
            set_updated_at(&store, name, 1_000).await;
        }
        let mut seen = Vec::new();
        let mut pages = 0;
        let mut after: Option<SessionId> = None;
        loop {
            let page = store.list(&owner(), 4, after.as_ref()).await.unwrap();
            pages += 1;
            assert_eq!(page.has_more, pages < 7);
            after = page.data.last().map(|entry| entry.id.clone());
            seen.extend(page.data.into_iter().map(|entry| entry.id));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(pages, 7);
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 25);
        let expected: Vec<SessionId> = names.iter().rev().cloned().collect();
        assert_eq!(seen, expected);
        // A write moves a session to the front.
        store
            .change(&owner(), &names[3], &append(1, &[]))
            .await
            .unwrap();
        let page = store.list(&owner(), 1, None).await.unwrap();
        assert_eq!(page.data[0].id, names[3]);
        assert!(matches!(
            store.list(&owner(), 4, Some(&id("none"))).await,
            Err(SessionError::NotFound)
        ));
        let last = store.list(&owner(), 4, seen.last()).await.unwrap();
        assert!(last.data.is_empty() && !last.has_more);
        assert!(
            !store
                .list(&owner(), usize::MAX, None)
                .await
                .unwrap()
                .has_more
        );
    }
}

#[tokio::test]
async fn the_title_is_the_beginning_of_the_first_user_message() {
    let store = in_memory().await;
    let session = id("s");
    let title = async || summary_of(&store, &session).await.title;
    let change = async |keep: usize, messages: &[StoredMessage]| {
        store
            .change(&owner(), &session, &append(keep, messages))
            .await
            .unwrap();
    };
    change(0, &[answer("no user yet")]).await;
    assert_eq!(title().await, None);
    let long = "ä🦀漢".repeat(40);
    change(1, &[user(&long), user("second")]).await;
    assert_eq!(title().await, Some(long.chars().take(50).collect()));
    // Later messages do not change it, a new first one does.
    change(2, &[user("third")]).await;
    assert_eq!(title().await.unwrap().chars().count(), 50);
    change(1, &[user("edited")]).await;
    assert_eq!(title().await.as_deref(), Some("edited"));
    change(1, &[]).await;
    assert_eq!(title().await, None);
    let parts = r#"[{"type":"text","text":"pa"},{"type":"text","text":"rts"}]"#;
    change(1, &[plain(Message::user_parts(parts))]).await;
    assert_eq!(title().await.as_deref(), Some("parts"));
    let image = r#"[{"type":"image_url","image_url":{"url":"data:,"}}]"#;
    change(0, &[plain(Message::user_parts(image)), user("text")]).await;
    assert_eq!(title().await, None);
}

#[tokio::test]
async fn a_fork_copies_up_to_the_index_that_an_export_counts() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let instructions = vec![system("i0"), system("i1")];
        let messages = [user("m2"), hidden_result("m3"), answer("m4"), user("m5")];
        let source = Change {
            instructions: Some(instructions.clone()),
            append: messages.to_vec(),
            client_calls: vec!["call_x".to_owned()],
            ..Change::default()
        };
        store
            .change(&owner(), &id("source"), &source)
            .await
            .unwrap();
        let before = loaded(&store, &id("source")).await;
        for index in [None, Some(6), Some(5), Some(3), Some(2), Some(1), Some(0)] {
            let fork = store
                .fork(&owner(), &id("source"), index, None)
                .await
                .unwrap();
            assert!(fork.as_str().starts_with("sess_"));
            let copied = loaded(&store, &fork).await;
            let total = index.unwrap_or(6);
            assert_eq!(copied.instructions, instructions[..total.min(2)]);
            assert_eq!(copied.messages, messages[..total.saturating_sub(2)]);
            let entry = summary_of(&store, &fork).await;
            assert_eq!(entry.message_count, u64::try_from(total).unwrap());
            let title = (total > 2).then(|| "m2".to_owned());
            assert_eq!(entry.title, title);
            // The copy goes on by itself.
            let keep = copied.messages.len();
            store
                .change(&owner(), &fork, &append(keep, &[user("on")]))
                .await
                .unwrap();
            assert_eq!(loaded(&store, &fork).await.messages.len(), keep + 1);
        }
        assert_eq!(loaded(&store, &id("source")).await, before);
        let found = store.find_by_call(&owner(), "call_x").await.unwrap();
        assert_eq!(found, Some(id("source")));
    }
}

#[tokio::test]
async fn a_fork_says_why_it_cannot_be_made() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let source = id("source");
        store
            .change(&owner(), &source, &append(0, &[user("a")]))
            .await
            .unwrap();
        let named = store.fork(&owner(), &source, None, Some(id("named"))).await;
        assert_eq!(named.unwrap(), id("named"));
        for taken in ["named", "source"] {
            let error = store.fork(&owner(), &source, None, Some(id(taken))).await;
            assert!(matches!(error, Err(SessionError::Exists)), "{error:?}");
        }
        assert_eq!(loaded(&store, &id("named")).await.messages, [user("a")]);
        let error = store.fork(&owner(), &id("none"), None, None).await;
        assert!(matches!(error, Err(SessionError::NotFound)));
        for index in [2, usize::MAX] {
            match store.fork(&owner(), &source, Some(index), None).await {
                Err(SessionError::Invalid { param, message }) => {
                    assert_eq!(param, "before_message");
                    assert!(message.contains("holds 1 messages"), "{message}");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(store.list(&owner(), 10, None).await.unwrap().data.len(), 2);
    }
}

#[tokio::test]
async fn a_replacement_takes_the_place_of_everything() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        let new = StoredSession {
            instructions: vec![system("i")],
            messages: vec![user("new"), answer("n")],
            created_at: 1_234,
            updated_at: 5_678,
        };
        let first = store.replace(&owner(), &session, &new).await.unwrap();
        assert_eq!(first, Replaced::Created);
        let change = Change {
            keep: 2,
            append: vec![user("more"); 5],
            client_calls: vec!["c".to_owned()],
            ..Change::default()
        };
        store.change(&owner(), &session, &change).await.unwrap();
        let second = store.replace(&owner(), &session, &new).await.unwrap();
        assert_eq!(second, Replaced::Replaced);
        let stored = loaded(&store, &session).await;
        assert_eq!(stored.messages, new.messages);
        assert_eq!(stored.instructions, new.instructions);
        assert_eq!(stored.created_at, 1_234);
        assert!((now() - stored.updated_at).abs() < 5);
        let entry = summary_of(&store, &session).await;
        assert_eq!(
            (entry.message_count, entry.title.as_deref()),
            (3, Some("new"))
        );
        assert_eq!(store.find_by_call(&owner(), "c").await.unwrap(), None);
        let undated = StoredSession {
            created_at: 0,
            ..new
        };
        store.replace(&owner(), &session, &undated).await.unwrap();
        assert!((now() - loaded(&store, &session).await.created_at).abs() < 5);
    }
}

#[tokio::test]
async fn what_was_not_written_for_long_expires() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let change = |call: String| Change {
            append: vec![user("a")],
            client_calls: vec![call],
            ..Change::default()
        };
        // More than one batch.
        for number in 0..250 {
            let session = id(&format!("old{number}"));
            let change = change(format!("call_{number}"));
            store.change(&owner(), &session, &change).await.unwrap();
            set_updated_at(&store, &session, now() - 100).await;
        }
        store
            .change(&owner(), &id("new"), &change("call_new".to_owned()))
            .await
            .unwrap();
        assert_eq!(store.expire(Duration::from_secs(1_000)).await.unwrap(), 0);
        assert_eq!(store.expire(Duration::MAX).await.unwrap(), 0);
        assert_eq!(store.expire(Duration::from_secs(50)).await.unwrap(), 250);
        assert_eq!(rows_in(&store, "SELECT count(*) FROM messages").await, 1);
        assert_eq!(
            rows_in(&store, "SELECT count(*) FROM client_calls").await,
            1
        );
        assert!(store.load(&owner(), &id("new")).await.unwrap().is_some());
        assert_eq!(store.expire(Duration::ZERO).await.unwrap(), 1);
        assert!(store.load(&owner(), &id("new")).await.unwrap().is_none());
    }
}

/// Drops the future at its poll of that number, at once or when it is woken the next time; `None` then.
async fn dropped_at<T>(
    polls: usize,
    when_woken: bool,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls && !when_woken => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn check_dropped_changes(store: &SessionStore, when_woken: bool, count_of_new: u64) {
    let owner = owner();
    let session = id("s");
    let before = StoredSession {
        messages: vec![user("a"), answer("b")],
        ..StoredSession::default()
    };
    store.replace(&owner, &session, &before).await.unwrap();
    let new: Vec<_> = (0..count_of_new)
        .map(|number| user(&number.to_string()))
        .collect();
    let change = Change {
        instructions: Some(vec![system("i")]),
        client_calls: vec!["c".to_owned()],
        ..append(1, &new)
    };
    let mut undone = 0;
    for polls in 1.. {
        let finished = dropped_at(polls, when_woken, store.change(&owner, &session, &change)).await;
        // The connection comes back once a roll-back or commit under way is done.
        rows_in(store, "SELECT 1").await;
        let stored = loaded(store, &session).await;
        let count = summary_of(store, &session).await.message_count;
        let found = store.find_by_call(&owner, "c").await.unwrap();
        if stored.messages.len() == 2 {
            assert_eq!(stored.messages, before.messages);
            assert_eq!((stored.instructions, count, found), (vec![], 2, None));
            assert!(finished.is_none());
            undone += 1;
        } else {
            assert_eq!(stored.messages, [&before.messages[..1], &new].concat());
            let whole = (vec![system("i")], count_of_new + 2, Some(session.clone()));
            assert_eq!((stored.instructions, count, found), whole);
            store.replace(&owner, &session, &before).await.unwrap();
        }
        if let Some(result) = finished {
            result.unwrap();
            break;
        }
    }
    // What is one statement may be done before it can be dropped.
    assert!(undone > 0 || count_of_new < 10);
}

#[tokio::test]
async fn a_change_dropped_at_any_point_leaves_nothing_half_written() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        for count_of_new in [2, 200] {
            check_dropped_changes(&store, false, count_of_new).await;
            check_dropped_changes(&store, true, count_of_new).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_are_written_and_read_at_once() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let turns = (0..20).map(|number| {
            let store = store.clone();
            async move {
                let session = id(&format!("s{number}"));
                for turn in 0..10 {
                    let change =
                        append(turn * 2, &[user(&format!("{number}.{turn}")), answer("ok")]);
                    store.change(&owner(), &session, &change).await?;
                    let stored = store.load(&owner(), &session).await?.unwrap();
                    assert_eq!(stored.messages.len(), turn * 2 + 2);
                }
                Ok::<_, SessionError>(())
            }
        });
        try_join_all(turns).await.unwrap();
        let page = store.list(&owner(), 100, None).await.unwrap();
        assert_eq!(page.data.len(), 20);
        assert!(page.data.iter().all(|entry| entry.message_count == 20));
    }
}

#[tokio::test]
async fn a_read_sees_the_last_commit_while_a_write_is_under_way() {
    let fixture = in_file().await;
    let store = &fixture.store;
    store
        .change(&owner(), &id("s"), &append(0, &[user("a")]))
        .await
        .unwrap();
    let mut transaction = store.begin().await.unwrap();
    let stamp = store.clock.stamp();
    put::put(
        transaction.get().unwrap(),
        stamp,
        &Put::change(&owner(), &id("s"), &append(1, &[user("b")])),
    )
    .await
    .unwrap();
    assert_eq!(loaded(store, &id("s")).await.messages, [user("a")]);
    drop(transaction);
    assert_eq!(loaded(store, &id("s")).await.messages, [user("a")]);
    // Not part of a transaction that was left open: the other connection sees it.
    store
        .change(&owner(), &id("s"), &append(1, &[user("c")]))
        .await
        .unwrap();
    let stored = loaded(store, &id("s")).await;
    assert_eq!(stored.messages, [user("a"), user("c")]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Any row of changes leaves what the same changes leave of a list.
    #[test]
    fn changes_do_what_they_say(
        changes in proptest::collection::vec(
            (
                proptest::option::of(0..3_usize),
                0..12_usize,
                proptest::collection::vec(proptest::bool::weighted(0.2), 0..10),
            ),
            1..12,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = in_memory().await;
            let other = append(0, &[user("other")]);
            store.change(&owner(), &id("other"), &other).await.unwrap();
            let mut expected = StoredSession::default();
            for (number, (instructions, keep, append)) in changes.into_iter().enumerate() {
                let message = |(place, by_user): (usize, bool)| {
                    let text = format!("{number}.{place}");
                    if by_user { user(&text) } else { answer(&text) }
                };
                let change = Change {
                    instructions: instructions.map(|count| vec![system(&number.to_string()); count]),
                    keep,
                    append: append.into_iter().enumerate().map(message).collect(),
                    client_calls: Vec::new(),
                };
                store.change(&owner(), &id("s"), &change).await.unwrap();
                expected.messages.truncate(keep);
                expected.messages.extend(change.append);
                expected.instructions = change.instructions.unwrap_or(expected.instructions);
                let stored = loaded(&store, &id("s")).await;
                assert_eq!(stored.messages, expected.messages);
                assert_eq!(stored.instructions, expected.instructions);
                let summary = summary_of(&store, &id("s")).await;
                let first = expected.messages.iter().find(|stored| *stored.message.role() == Role::User);
                assert_eq!(summary.title, first.map(|stored| stored.message.content_text()));
                let count = expected.messages.len() + expected.instructions.len();
                assert_eq!(summary.message_count, u64::try_from(count).unwrap());
                assert_eq!(loaded(&store, &id("other")).await.messages, other.append);
            }
        });
    }
}

#[tokio::test]
async fn a_store_without_a_free_connection_is_an_error() {
    let store = in_memory().await;
    let transaction = store.begin().await.unwrap();
    // After the database's own thread is no longer needed: paused time runs ahead of it.
    tokio::time::pause();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, SessionError::Store(_)));
    tokio::time::resume();
    drop(transaction);
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_store_in_memory_outlives_callers_that_give_up() {
    let store = in_memory().await;
    let session = id("s");
    store
        .change(&owner(), &session, &append(0, &[user("a")]))
        .await
        .unwrap();
    for _ in 0..50 {
        drop(store.load(&owner(), &session).now_or_never());
        drop(store.list(&owner(), 1, None).now_or_never());
        tokio::task::yield_now().await;
    }
    assert_eq!(loaded(&store, &session).await.messages, [user("a")]);
}

#[tokio::test]
async fn writing_goes_on_once_a_full_disk_has_room_again() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        let session = id("s");
        let small = append(0, &[user("a")]);
        store.change(&owner(), &session, &small).await.unwrap();
        let before = loaded(&store, &session).await;
        let one = vec![user(&"x".repeat(1_000_000))];
        // One statement, and a transaction of several that fails in a later one for all the room that the first left.
        let many = [vec![user("y"); 70], vec![user(&"x".repeat(2_000_000))]].concat();
        for new in [one, many] {
            run(&store, "PRAGMA max_page_count = 1").await;
            let large = append(1, &new);
            for _ in 0..2 {
                let error = store.change(&owner(), &session, &large).await.unwrap_err();
                assert!(
                    error.source().unwrap().to_string().contains("full"),
                    "{error:?}"
                );
                assert_eq!(loaded(&store, &session).await, before);
            }
            run(&store, "PRAGMA max_page_count = 1000000").await;
            store.change(&owner(), &session, &large).await.unwrap();
            assert_eq!(loaded(&store, &session).await.messages.len(), 1 + new.len());
            store.replace(&owner(), &session, &before).await.unwrap();
            set_updated_at(&store, &session, before.updated_at).await;
        }
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_an_error() {
    for Fixture {
        store,
        directory: _,
    } in both().await
    {
        store
            .change(&owner(), &id("s"), &append(0, &[user("a")]))
            .await
            .unwrap();
        for sql in [
            "UPDATE messages SET json = '[]'",
            "UPDATE messages SET json = '{\"role\":\"user\"}', view = 'x'",
            "UPDATE sessions SET instructions = 'x'",
            "UPDATE messages SET seq = 1",
        ] {
            run(&store, sql).await;
            let error = store.load(&owner(), &id("s")).await.unwrap_err();
            assert!(matches!(error, SessionError::Store(_)), "{sql}");
        }
    }
}

#[tokio::test]
async fn any_of_its_calls_leads_to_a_parked_conversation_and_may_do_so_again() {
    let store = in_memory().await;
    let calls = ["c1".to_owned(), "c2".to_owned()];
    let session = StoredSession {
        messages: vec![user("a")],
        ..StoredSession::default()
    };
    let until = Instant::now() + Duration::from_secs(60);
    // A conversation that nothing leads to is not kept.
    store.park(&owner(), &[], waiting(session.clone()), until);
    assert!(store.parked.lock().is_empty());
    store.park(&owner(), &calls, waiting(session.clone()), until);
    assert_eq!(parked(&store, &Owner::key("bob"), "c1"), None);
    assert_eq!(parked(&store, &owner(), "c3"), None);
    for call in ["c2", "c1", "c1"] {
        assert_eq!(parked(&store, &owner(), call), Some(session.clone()));
    }
    // A later one that waits for the same call takes the place of the earlier one.
    store.park(&owner(), &calls[..1], Waiting::default(), until);
    assert_eq!(parked(&store, &owner(), "c2"), None);
    assert_eq!(
        parked(&store, &owner(), "c1"),
        Some(StoredSession::default())
    );
    // Time is up.
    store.park(&owner(), &calls[..1], waiting(session), Instant::now());
    assert_eq!(parked(&store, &owner(), "c1"), None);
    assert!(store.parked.lock().is_empty());
}

#[tokio::test]
async fn parked_conversations_are_bounded_in_time_and_number() {
    let store = in_memory().await;
    let park = |call: String, until: Instant| {
        store.park(&owner(), &[call], Waiting::default(), until);
    };
    park("late".to_owned(), Instant::now());
    assert_eq!(parked(&store, &owner(), "late"), None);
    assert!(store.parked.lock().is_empty());
    let until = Instant::now() + Duration::from_secs(60);
    for number in 0..=park::MAX_PARKED_OF_OWNER {
        park(format!("c{number}"), until);
    }
    assert_eq!(parked(&store, &owner(), "c0"), None);
    assert!(parked(&store, &owner(), "c1").is_some());
    let last = format!("c{}", park::MAX_PARKED_OF_OWNER);
    assert!(store.parked(&owner(), &last).is_some());
}

#[tokio::test]
async fn what_is_held_for_a_parked_conversation_goes_when_it_is_released_or_late() {
    let store = in_memory().await;
    let until = Instant::now() + Duration::from_secs(60);
    let park = |call: &str, until: Instant| {
        let held: Attached = Arc::new(());
        let weak = Arc::downgrade(&held);
        let waiting = Waiting {
            session: StoredSession::default(),
            held: Some(held),
        };
        store.park(&owner(), &[call.to_owned()], waiting, until);
        weak
    };
    let released = park("c1", until);
    let kept = park("c2", until);
    assert!(store.parked(&owner(), "c1").unwrap().held.is_some());
    store.release(&Owner::key("bob"), "c1");
    store.release(&owner(), "c3");
    assert_eq!(released.strong_count(), 1);
    store.release(&owner(), "c1");
    assert_eq!(released.strong_count(), 0);
    // The conversation itself can still be asked for again.
    assert!(store.parked(&owner(), "c1").is_some());
    assert_eq!(kept.strong_count(), 1);
    let late = park("c4", Instant::now());
    store.drop_expired_parked();
    assert_eq!((late.strong_count(), kept.strong_count()), (0, 1));
}

fn waiting(session: StoredSession) -> Waiting {
    Waiting {
        session,
        held: None,
    }
}

fn parked(store: &SessionStore, owner: &Owner, call: &str) -> Option<StoredSession> {
    store.parked(owner, call).map(|waiting| waiting.session)
}
