//! The files that messages name.

use std::collections::HashSet;

use super::super::contents::named_in;
use crate::session::StoredMessage;
use crate::session::files::{FileError, FileStore};
use protocol::ids::{Owner, SessionId};

/// Most files of an import's messages that are attached; others are left out.
const MAX_NAMED_FILES: usize = 1000;

/// Attaches the files that a session's messages name and that exist. They are stored at least as long as the session.
pub async fn use_named_files(
    files: &FileStore,
    owner: &Owner,
    session: &SessionId,
    messages: &[StoredMessage],
) {
    let mut seen = HashSet::new();
    for id in messages.iter().flat_map(|stored| named_in(&stored.message)) {
        if seen.len() == MAX_NAMED_FILES {
            return;
        }
        if !seen.insert(id.as_str().to_owned()) {
            continue;
        }
        match files.attach(owner, &id, session).await {
            Ok(_) | Err(FileError::NotFound) => {}
            Err(error) => {
                tracing::error!(error = %error, "a file could not be attached to a session");
                return;
            }
        }
    }
}
