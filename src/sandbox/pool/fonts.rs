//! The list of fonts that matplotlib makes at its first import in an empty configuration directory.

use std::error::Error;
use std::time::Duration;

use super::super::Cell;
use super::super::selftest::Silent;
use super::super::worker::Worker;
use super::turns::Room;
use super::{Counted, Pool};

/// Makes the list and leaves it in the working directory.
const LISTING: &str = r#"
import glob, os, shutil
import matplotlib.font_manager
for path in glob.glob(os.path.join(matplotlib.get_cachedir(), "fontlist-*.json")):
    shutil.copy(path, ".")
"#;
/// Longest time for it; a host may have thousands of fonts.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Lists the fonts in an interpreter of its own, which no workspace gets; gives up when the pool closes.
pub(super) async fn list(
    pool: &Pool,
    room: Room<Worker>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let Counted { mut worker, room } = pool.start(room).await?;
    let cell = Cell {
        code: LISTING,
        outputs: &[],
        inputs: &[],
        timeout: TIME_LIMIT,
    };
    let outcome = tokio::select! {
        (outcome, _) = worker.run(&cell, &Silent) => Some(outcome),
        () = pool.closing.cancelled() => None,
    };
    // To its end even then, so that nothing of it is left when the pool has closed.
    worker.end().await;
    drop(room);
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
