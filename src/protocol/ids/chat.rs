//! Ids of the chats of front ends, and of the sessions of a chat.

use std::sync::Arc;

use hmac_sha256::HMAC;

use super::{IdError, Owner, SessionId, hex};

/// Number of bytes of each part of the id of a chat's session; enough that it cannot be guessed.
const PART_BYTES: usize = 16;
/// The beginning of the id of a chat's session.
const PREFIX: &str = "chat_";

/// The id by which a front end names a chat in a header.
///
/// A chat is not a session: a front end sends the same id with requests for titles and tags, and with an edited first
/// message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChatId(Arc<str>);

/// The secret key from which the session ids of chats are derived, so that others cannot compute them.
#[derive(Clone)]
pub struct ChatKey([u8; 32]);

impl ChatId {
    /// Reads an id that the client chose. It has the form of a [`SessionId`].
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        SessionId::parse(text).map(|id| Self(id.0))
    }
}

impl ChatKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id of the session of a chat whose first message has this text. It is the same each time.
    ///
    /// The first part of the id depends on the owner and the chat only: see [`WorkspaceId::of`].
    ///
    /// [`WorkspaceId::of`]: super::WorkspaceId::of
    pub fn session(&self, owner: &Owner, chat: &ChatId, first_message: &str) -> SessionId {
        let chat = [owner.as_str(), &chat.0];
        let session = [chat[0], chat[1], first_message];
        SessionId(format!("{PREFIX}{}_{}", self.digest(&chat), self.digest(&session)).into())
    }

    /// Hexadecimal digits that depend on the key and the texts.
    fn digest(&self, texts: &[&str]) -> String {
        let mut mac = HMAC::new(self.0);
        for text in texts {
            // The lengths distinguish lists whose joined texts are equal.
            mac.update((text.len() as u64).to_le_bytes());
            mac.update(text);
        }
        hex(mac
            .finalize()
            .first_chunk::<PART_BYTES>()
            .unwrap_or(&[0; PART_BYTES]))
    }
}

impl std::fmt::Debug for ChatKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ChatKey(..)")
    }
}

/// What the sessions of one chat have in common; the whole id for other sessions.
pub(super) fn scope(session: &SessionId) -> &str {
    let text = session.as_str();
    let is_part = |part: &str| {
        part.len() == 2 * PART_BYTES && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match text
        .strip_prefix(PREFIX)
        .and_then(|parts| parts.split_once('_'))
    {
        Some((chat, first)) if is_part(chat) && is_part(first) => chat,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::WorkspaceId;
    use super::*;

    #[test]
    fn a_chat_has_a_session_for_each_first_message_and_one_workspace() {
        let key = |byte| ChatKey::new([byte; 32]);
        let id = |key: &ChatKey, owner: &str, chat: &str, first: &str| {
            let chat = ChatId::parse(chat).unwrap();
            key.session(&Owner::key(owner), &chat, first)
        };
        let first = key(1);
        let ids = [
            id(&first, "a", "c", "one"),
            id(&first, "a", "c", "two"),
            id(&first, "a", "cone", ""),
            id(&first, "b", "c", "one"),
            id(&first, "ac", "o", "ne"),
            id(&key(2), "a", "c", "one"),
        ];
        assert_eq!(ids[0], id(&first, "a", "c", "one"));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in &ids {
            assert_eq!(SessionId::parse(id.as_str()).as_ref(), Ok(id));
            assert_eq!(scope(id).len(), 32);
        }
        let workspace = |owner: &str, id: &SessionId| WorkspaceId::of(&Owner::key(owner), id);
        assert_eq!(workspace("a", &ids[0]), workspace("a", &ids[1]));
        for other in [&ids[2], &ids[4], &ids[5]] {
            assert_ne!(workspace("a", &ids[0]), workspace("a", other));
        }
        assert_ne!(workspace("a", &ids[0]), workspace("b", &ids[3]));
    }

    #[test]
    fn only_ids_of_chats_share_a_workspace() {
        let part = "0123456789abcdef".repeat(2);
        for text in [
            "s".to_owned(),
            "chat_1".to_owned(),
            "chat_1_2".to_owned(),
            format!("chat_{part}"),
            format!("chat_{part}_x"),
            format!("x_{part}_{part}"),
        ] {
            assert_eq!(scope(&SessionId::parse(&text).unwrap()), text);
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", ChatKey::new([7; 32])), "ChatKey(..)");
    }
}
