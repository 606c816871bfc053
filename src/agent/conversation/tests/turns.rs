//! Turns that are kept with their messages.

use super::super::*;
use crate::session::settings::Settings;
use protocol::openai::message::{Message, Role};
use store::{SessionLimits, Store, StoreUrl};

async fn sessions() -> Sessions {
    let settings = Settings {
        store: StoreUrl::Memory,
        ttl: None,
        nameless_ttl: None,
        wait: Duration::from_secs(1),
        max_messages: 100,
        limits: SessionLimits::default(),
        files_dir: None,
        max_file_bytes: 1024,
        max_total_file_bytes: 1024,
    };
    let store = Store::open(&settings.store).await.unwrap();
    Sessions::open(store, &settings).await.unwrap()
}

async fn conversation(sessions: &Sessions, owner: &Owner, id: &SessionId) -> Conversation {
    let lease = sessions.lease(owner, id).await.unwrap();
    Conversation {
        sessions: sessions.clone(),
        tasks: TaskTracker::new(),
        run: Some(RunId::fresh()),
        owner: owner.clone(),
        session: RunSession::Stored {
            id: id.clone(),
            lease: Arc::new(lease),
            deferred: false,
        },
        id_origin: IdOrigin::Client,
        unsaved: Change::default(),
        writing: None,
        attachment: None,
        answered_call: None,
        sources: Vec::new(),
        stored_calls: None,
        has_suspended_turn: false,
        is_unused_fork: false,
    }
}

fn says(text: &str) -> StoredMessage {
    StoredMessage::hidden(Message::text(Role::Assistant, text))
}

#[tokio::test]
async fn a_turn_and_the_message_that_it_goes_on_from_are_stored_together() {
    let (sessions, owner, id) = (sessions().await, Owner::key("alice"), SessionId::fresh());
    let mut conversation = conversation(&sessions, &owner, &id).await;
    let user = StoredMessage::visible(Message::text(Role::User, "a"));
    conversation.unsaved.append.push(user.clone());
    let stored = async || sessions.store.load(&owner, &id).await.unwrap().unwrap();
    // A message that is new, one that is stored, and one that has changed.
    for (text, turn) in [("b", "1"), ("b", "2"), ("changed", "3")] {
        let kept = conversation.suspend_turn(says(text), turn.to_owned(), Vec::new());
        kept.await.unwrap();
        let stored = stored().await;
        assert_eq!(stored.messages, [user.clone(), says(text)]);
        assert_eq!(stored.turn.as_deref(), Some(turn));
    }
    // One that cannot be stored leaves both as they are, and the next write ends the turn.
    let before = stored().await;
    let limits = SessionLimits {
        session_bytes: before.stored_bytes() as u64 + 100,
        ..SessionLimits::default()
    };
    sessions.store.limit_sessions(limits).await;
    let large = says(&"x".repeat(1_000));
    let kept = conversation.suspend_turn(large, "4".to_owned(), Vec::new());
    assert_eq!(kept.await, Err(WriteFailure::TooLarge));
    assert_eq!(stored().await, before);
    conversation.push_round(vec![says("small"), says("result")]);
    conversation.save(Vec::new());
    conversation.finish_write().await.unwrap();
    let ended = stored().await;
    assert_eq!(ended.messages, [user, says("small"), says("result")]);
    assert_eq!(ended.turn, None);
}
