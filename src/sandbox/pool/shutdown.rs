//! Shutdown: the working files of all workspaces are saved and their interpreters ended, within a time limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Pool;
use super::saved_files::FileLoss;
use super::workspace::Workspace;
use crate::remove::remove_tree;
use protocol::ids::WorkspaceId;

/// Most workspaces whose files are copied at the same time; the others wait.
const PARALLEL_SAVES: usize = 8;
/// Longest time for notes and the deletion of a temporary directory after the time limit. After it they are left.
const CLEANUP_LIMIT: Duration = Duration::from_millis(400);

impl Pool {
    /// Rejects later calls, saves the files of every interpreter and ends it. Calls that run are not waited for beyond
    /// `limit`: their interpreters end with the process, and a note records that their files are not saved. Returns
    /// shortly after the limit at the latest.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) {
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or(now);
        self.closing.cancel();
        let mut ending = JoinSet::new();
        for spare in self.spares.close() {
            let ended = async move { spare.worker.end().await };
            ending.spawn(self.tasks.track_future(ended));
        }
        let all: Vec<_> = self.workspaces.lock().drain().collect();
        let copies = Arc::new(Semaphore::new(PARALLEL_SAVES));
        let mut unsaved = HashMap::new();
        for (id, workspace) in all {
            let retiring = self.clone().retire(id.clone(), workspace, copies.clone());
            let task = ending.spawn(self.tasks.track_future(retiring));
            unsaved.insert(task.id(), id);
        }
        while let Ok(Some(ended)) = timeout_at(deadline, ending.join_next_with_id()).await {
            let task = match ended {
                Ok((task, ())) => task,
                Err(failed) => failed.id(),
            };
            unsaved.remove(&task);
        }
        // What still runs may complete until the process ends.
        ending.detach_all();
        if !unsaved.is_empty() {
            tracing::error!(
                sessions = unsaved.len(),
                "the working files of some sessions could not be saved in time"
            );
        }
        let cleanup = self.clean_up(unsaved.into_values().collect());
        let deadline = deadline.max(Instant::now()) + CLEANUP_LIMIT;
        if timeout_at(deadline, cleanup).await.is_err() {
            tracing::warn!("the directory for working files could not be cleaned up in time");
        }
    }

    /// Waits for the workspace's call, saves its files and ends its interpreter.
    async fn retire(
        self: Arc<Self>,
        id: WorkspaceId,
        workspace: Arc<Workspace>,
        copies: Arc<Semaphore>,
    ) {
        let mut slot = workspace.slot.clone().lock_owned().await;
        slot.retire_if(|_| true);
        let _copy = copies.acquire().await;
        self.save(&id, &mut slot).await;
    }

    /// Deletes a temporary directory, or notes in a lasting one which workspaces are not saved.
    async fn clean_up(&self, unsaved: Vec<WorkspaceId>) {
        let (saved, settings) = (self.saved.clone(), &self.plan.settings);
        let (temporary, work_dir) = (settings.temporary, settings.work_dir.clone());
        let cleaning = tokio::task::spawn_blocking(move || match temporary {
            true => remove_tree(&work_dir),
            false => {
                for id in &unsaved {
                    saved.note(id.as_str(), Some(FileLoss::NotSaved));
                }
                Ok(())
            }
        });
        if let Ok(Err(error)) = cleaning.await {
            tracing::warn!(%error, "the temporary directory for working files could not be deleted");
        }
    }
}
