//! The sessions of a store, with their files: leases, changes with their titles, and imports.

use std::sync::Arc;
use std::time::Duration;

use super::files::{FileError, FileStore};
use super::settings::Settings;
use super::title;
use protocol::ids::{ChatId, ChatKey, Owner, SessionId};
use protocol::openai::message::Message;
use store::{
    Change, Growth, Lease, Replaced, Store, StoreError, StoredMessage, StoredSession, WaitingTurn,
};

/// The sessions and their files; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    /// The files of sessions and of owners.
    pub files: FileStore,
    /// Most messages of a session.
    pub max_messages: usize,
    /// The records of sessions and of runs.
    pub store: Store,
    chat_key: ChatKey,
    wait: Duration,
}

/// A change that was not written. It is returned so that the caller can include it in the next change.
#[derive(Debug)]
pub struct UnwrittenChange {
    /// The cause.
    pub error: StoreError,
    pub(crate) change: Change,
}

impl Sessions {
    /// Opens the directory for the files of the store.
    ///
    /// # Errors
    /// When the directory cannot be used, or the store fails.
    pub async fn open(store: Store, settings: &Settings) -> Result<Self, FileError> {
        store.limit_sessions(settings.limits).await;
        Ok(Self {
            files: FileStore::open(store.clone(), settings).await?,
            chat_key: ChatKey::new(store.secret().await.map_err(FileError::from)?),
            store,
            wait: settings.wait,
            max_messages: settings.max_messages,
        })
    }

    /// The session of a chat of a front end: that whose first message, instructions apart, is the first of these.
    pub(crate) fn of_chat(&self, owner: &Owner, chat: &ChatId, messages: &[Message]) -> SessionId {
        let first = messages.iter().find(|message| !message.is_instruction());
        // The same key with which the messages of a replay are compared.
        let key = first.map(|first| format!("{} {}", first.role().as_str(), first.content_key()));
        self.chat_key.session(owner, chat, &key.unwrap_or_default())
    }

    /// Acquires the lease of a session. Waits at most the configured time.
    ///
    /// # Errors
    /// `Busy` after that time.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue for the lease.
    pub async fn lease(&self, owner: &Owner, id: &SessionId) -> Result<Lease, StoreError> {
        self.store.acquire(owner, id, self.wait).await
    }

    /// Checks whether a change of a session would be refused for its size. `stored` is the session; `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails.
    pub(crate) async fn check_size(
        &self,
        owner: &Owner,
        id: &SessionId,
        stored: Option<&StoredSession>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let before = stored.map(|stored| stored.stored_bytes() as u64);
        let kept = stored.map_or(0, |stored| {
            let messages = stored.messages.iter().take(change.keep);
            let messages = messages.map(StoredMessage::stored_bytes).sum::<usize>();
            messages + bytes_of(&stored.instructions) * usize::from(change.instructions.is_none())
        });
        let instructions = change.instructions.as_deref().map_or(0, bytes_of);
        let new = change.append.iter().map(StoredMessage::stored_bytes);
        let stored = stored.and_then(|stored| stored.metadata.as_ref());
        let metadata = change.metadata.as_ref().or(stored).map_or(0, String::len);
        let after = (kept + instructions + metadata + new.sum::<usize>()) as u64;
        let growth = Growth { before, after };
        self.store.check_growth(owner, id, growth).await
    }

    /// Applies a change atomically; creates the session if it does not exist. Then the files of the change are attached.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails or the lease is lost. Nothing is changed then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the change is applied completely or not at all; some files may not be attached.
    pub async fn write(&self, lease: &Lease, change: Change) -> Result<(), Box<UnwrittenChange>> {
        let change = Arc::new(Change {
            title: title::of(&change.append),
            ..change
        });
        match self.store.write(lease.fence(), &change).await {
            Ok(()) => {
                for id in &change.files {
                    let attached = self.files.attach(lease.owner(), id, lease.session());
                    match attached.await {
                        Ok(()) | Err(FileError::NotFound) => {}
                        Err(error) => {
                            tracing::error!(%error, "a file was not attached to its session");
                        }
                    }
                }
                Ok(())
            }
            Err(error) => Err(Box::new(UnwrittenChange {
                error,
                change: Arc::unwrap_or_clone(change),
            })),
        }
    }

    /// Replaces the session of the lease; its files stay. A `created_at` of 0 is replaced by the current time.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails or the lease is lost. Nothing is changed then.
    pub async fn replace(
        &self,
        lease: &Lease,
        session: StoredSession,
    ) -> Result<Replaced, StoreError> {
        let change = Arc::new(Change {
            title: title::of(&session.messages),
            instructions: Some(session.instructions),
            append: session.messages,
            metadata: session.metadata,
            ..Change::default()
        });
        self.store
            .replace(lease.fence(), session.created_at, &change)
            .await
    }

    /// Deletes a session and the files that only it uses; returns whether it existed.
    ///
    /// # Errors
    /// When the store fails or the lease is lost.
    pub async fn delete(&self, lease: &Lease) -> Result<bool, StoreError> {
        let deleted = self.store.delete(lease.fence()).await?;
        if deleted {
            self.files.clean_up().await;
        }
        Ok(deleted)
    }

    /// Deletes the sessions that were last written more than `ttl` ago, for nameless ones `nameless_ttl`; returns how
    /// many. `None` keeps the sessions.
    ///
    /// # Errors
    /// When the store fails; some sessions may have been deleted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call deletes the rest.
    pub async fn expire(
        &self,
        ttl: Option<Duration>,
        nameless_ttl: Option<Duration>,
    ) -> Result<u64, StoreError> {
        let deleted = self.store.expire(ttl, nameless_ttl).await?;
        if deleted > 0 {
            self.files.clean_up().await;
        }
        Ok(deleted)
    }

    /// The turn that waits for the result of this call. A failure of the store is logged and treated as `None`.
    pub(crate) async fn waiting_turn(&self, owner: &Owner, call_id: &str) -> Option<WaitingTurn> {
        match self.store.waiting_turn(owner, call_id).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, cause = ?std::error::Error::source(&error), "session look-up failed");
                None
            }
        }
    }

    /// Completes pending writes and closes the store. Every later call fails.
    pub async fn close(&self) {
        self.store.close().await;
        self.files.close().await;
    }
}

fn bytes_of(messages: &[Message]) -> usize {
    messages.iter().map(|message| message.json().len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::openai::message::Role;
    use store::StoreUrl;

    #[tokio::test]
    async fn a_session_and_its_fork_have_a_title() {
        let settings = Settings {
            store: StoreUrl::Memory,
            ttl: None,
            nameless_ttl: None,
            wait: Duration::from_secs(1),
            max_messages: 100,
            limits: store::SessionLimits::default(),
            files_dir: None,
            max_file_bytes: 1024,
            max_total_file_bytes: 1024,
        };
        let store = Store::open(&settings.store).await.unwrap();
        let sessions = Sessions::open(store, &settings).await.unwrap();
        let (owner, id) = (Owner::key("alice"), SessionId::fresh());
        let lease = sessions.lease(&owner, &id).await.unwrap();
        let change = Change {
            append: vec![StoredMessage::visible(Message::text(Role::User, "hello"))],
            ..Change::default()
        };
        sessions.write(&lease, change).await.unwrap();
        let fork = SessionId::fresh();
        let forked = sessions.store.fork(lease.fence(), None, &fork).await;
        let forked = forked.unwrap();
        assert_eq!(
            (forked.message_count, forked.title.as_deref()),
            (1, Some("hello"))
        );
        let page = sessions.store.list(&owner, 10, None).await.unwrap();
        let titles = page.data.iter().map(|entry| entry.title.as_deref());
        assert_eq!(titles.collect::<Vec<_>>(), [Some("hello"); 2]);
    }
}
