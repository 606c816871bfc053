//! The owner on whose behalf a task searches or reads pages, which decides who is served next.
//!
//! What waits is deep below, behind caches and the HTTP client, whose resolver is given a name only.

use protocol::ids::Owner;

tokio::task_local! {
    static OWNER: Owner;
}

/// Does work on behalf of an owner.
pub(super) async fn on_behalf_of<T>(owner: &Owner, work: impl Future<Output = T>) -> T {
    OWNER.scope(owner.clone(), work).await
}

/// The owner on whose behalf the task works; everybody where nothing is known.
pub(super) fn owner() -> Owner {
    OWNER
        .try_with(Clone::clone)
        .unwrap_or_else(|_| Owner::everybody())
}
