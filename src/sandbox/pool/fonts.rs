//! The font list that matplotlib builds at its first import with an empty configuration directory.

use std::error::Error;

use tokio::sync::OwnedSemaphorePermit;

use super::{PlacedWorker, Pool};
use crate::{Cell, START_LIMIT};

/// Builds the list and copies it to the working directory.
const LISTING: &str = r#"
import glob, os, shutil
import matplotlib.font_manager
for path in glob.glob(os.path.join(matplotlib.get_cachedir(), "fontlist-*.json")):
    shutil.copy(path, ".")
"#;

/// Builds the list in an interpreter that no workspace gets. Gives up when the pool closes.
pub(super) async fn list(
    pool: &Pool,
    place: OwnedSemaphorePermit,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let PlacedWorker { mut worker, place } = pool.start(place).await?;
    let cell = Cell {
        code: LISTING,
        outputs: &[],
        inputs: &[],
        timeout: START_LIMIT,
    };
    let outcome = tokio::select! {
        (outcome, _) = worker.run(&cell, &|_, _| {}) => Some(outcome),
        () = pool.closing.cancelled() => None,
    };
    // Awaited even when the pool closes, so that nothing is left over.
    worker.end().await;
    drop(place);
    let Some(outcome) = outcome else {
        return Ok(());
    };
    let list = outcome
        .files
        .iter()
        .find(|file| file.name.starts_with("fontlist-") && !file.name.contains('/'));
    match list {
        Some(list) => Ok(pool.plan.keep_fonts(&list.name, &list.bytes)?),
        None => Err(outcome
            .error
            .map_or_else(|| "it made none".to_owned(), |error| error.message)
            .into()),
    }
}
