//! Files of a session that came as a whole.

use std::collections::HashSet;

use super::part::{FilePart, file_parts};
use crate::ids::{Owner, SessionId};
use crate::session::StoredMessage;
use crate::session::files::{FileError, FileStore};

/// Most files that are looked for in the messages of an import.
const MAX_NAMED_FILES: usize = 1000;

/// Makes a session use the files that its messages name, as far as they exist, so that they stay as long as it does.
pub async fn use_named_files(
    files: &FileStore,
    owner: &Owner,
    session: &SessionId,
    messages: &[StoredMessage],
) {
    let mut seen = HashSet::new();
    let parts_of = |stored: &StoredMessage| file_parts(&stored.message).unwrap_or_default();
    for part in messages.iter().flat_map(parts_of) {
        let FilePart::Stored { id, .. } = FilePart::read(&part) else {
            continue;
        };
        if seen.len() == MAX_NAMED_FILES {
            return;
        }
        if !seen.insert(id.as_str().to_owned()) {
            continue;
        }
        match files.attach(owner, &id, session).await {
            Ok(_) | Err(FileError::NotFound) => {}
            Err(error) => {
                tracing::error!(error = %error, "a file could not be made part of a session");
                return;
            }
        }
    }
}
