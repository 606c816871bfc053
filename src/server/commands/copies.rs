//! `loopwright store backup` and `loopwright store copy`: their output, and the progress of a copy.

use std::io::{IsTerminal, Write};

use futures_util::future::LocalBoxFuture;

use crate::config::{BackupConfig, CopyConfig};
use agent::session::backup::{self, BackupError, CopiedFiles};
use store::{CopyError, CopyProgress};

/// Backs up a store; returns the text to print, which lists the contents of the backup.
///
/// # Errors
/// When the store cannot be read, or the backup cannot be written.
pub fn back_up(config: &BackupConfig) -> LocalBoxFuture<'_, Result<String, BackupError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(async {
        let report = backup::back_up(&config.store, config.files.as_ref(), &config.to).await?;
        let mut text = format!(
            "copied the session store to {}, and checked the copy\nsessions: {}\nrows: {}\nbytes: {}\n",
            config.to.display(),
            report.counts.sessions,
            report.counts.rows,
            report.bytes
        );
        text.push_str(&describe_files(&report.files));
        Ok(text)
    })
}

/// Copies a store, and shows the progress; returns the text to print, which lists what was copied.
///
/// # Errors
/// When one of the stores cannot be opened, or the copy differs.
pub fn copy(config: &CopyConfig) -> LocalBoxFuture<'_, Result<String, CopyError>> {
    Box::pin(async {
        let mut last = None;
        let mut report = |progress| show_progress(progress, &mut last);
        let copied = store::copy(&config.from, &config.to, &mut report).await;
        if last.is_some() && std::io::stderr().is_terminal() {
            let _stderr_may_be_closed = writeln!(std::io::stderr());
        }
        let mut text = format!(
            "copied {} to {}, and compared both\n",
            config.from, config.to
        );
        for table in copied? {
            let sha256: String = table
                .sha256
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let (name, rows, bytes) = (table.table, table.rows, table.bytes);
            text.push_str(&format!(
                "{name}: {rows} rows, {bytes} bytes, sha256 {sha256}\n"
            ));
        }
        Ok(text)
    })
}

/// The text about the contents of files.
fn describe_files(files: &CopiedFiles) -> String {
    match files {
        CopiedFiles::LeftOut(0) => String::new(),
        CopiedFiles::LeftOut(count) => {
            format!("files: {count}, whose contents are not copied; --files copies them\n")
        }
        CopiedFiles::Copied(files) => {
            let directory = files.directory.display();
            let mut text = format!(
                "files: {}, {} bytes, in {directory}\n",
                files.copied, files.bytes
            );
            if files.missing > 0 {
                text.push_str(&format!(
                    "files without content: {}; they were deleted meanwhile, or their contents were lost before\n",
                    files.missing
                ));
            }
            text
        }
    }
}

/// Shows the progress of a copy: in a terminal as a bar in one line, else as a line per table and per `ROWS_PER_LINE`
/// rows.
fn show_progress(progress: CopyProgress, last: &mut Option<CopyProgress>) {
    /// Number of rows after which a line tells the progress of a copy.
    const ROWS_PER_LINE: u64 = 10_000;
    /// Size of the progress bar, in characters.
    const WIDTH: u64 = 30;
    let CopyProgress {
        table,
        compares,
        done,
        total,
    } = progress;
    let doing = if compares { "comparing" } else { "copying" };
    let text = format!("{doing} {table}: {done} of {total} rows");
    let mut stderr = std::io::stderr();
    let _stderr_may_be_closed = if stderr.is_terminal() {
        *last = Some(progress);
        let filled = (done * WIDTH)
            .checked_div(total)
            .unwrap_or(WIDTH)
            .min(WIDTH);
        let (filled, width) = (
            usize::try_from(filled).unwrap_or(0),
            usize::try_from(WIDTH).unwrap_or(0),
        );
        write!(stderr, "\r\x1b[K[{:<width$}] {text}", "#".repeat(filled))
    } else {
        let is_news = last.is_none_or(|last| {
            (last.table, last.compares) != (table, compares) || done >= last.done + ROWS_PER_LINE
        });
        if !is_news {
            return;
        }
        *last = Some(progress);
        writeln!(stderr, "{text}")
    };
}
