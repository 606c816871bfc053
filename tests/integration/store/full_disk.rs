//! A store on a disk that is full: what an operator deletes is deleted, and the process starts again.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;
use crate::files::uploaded;
use crate::support::eventually;
use crate::support::upstream::MODEL;

/// Mounts a disk where nobody else sees it, and keeps it until the standard input ends.
const WORLD: &str = r#"mount -t tmpfs -o size=96m small "$1" && touch "$1/mounted" && cat"#;

/// A disk of 96 MiB in a mount namespace of its own.
struct Disk {
    directory: TempDir,
    holder: Child,
}

impl Disk {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let holder = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", WORLD, "sh"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let disk = Self { directory, holder };
        let mounted = disk.seen("mounted");
        eventually("a small disk", async || mounted.exists().then_some(())).await;
        disk
    }

    /// Where a file of the disk is seen from outside.
    fn seen(&self, name: &str) -> PathBuf {
        let inside = self.directory.path().join(name);
        format!("/proc/{}/root{}", self.holder.id(), inside.display()).into()
    }

    /// Leaves no space.
    fn fill(&self) {
        let mut balloon = std::fs::File::create(self.seen("balloon")).unwrap();
        let piece = vec![0; 64 * 1024];
        while balloon.write_all(&piece).is_ok() {}
    }

    fn empty(&self) {
        std::fs::remove_file(self.seen("balloon")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}

async fn kept(reserve: &std::path::Path, app: &TestApp) {
    eventually("space that is kept for deletions", async || {
        // A write looks at the disk.
        app.post_chat(in_session("Hi")).await;
        reserve.exists().then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a mount namespace"]
async fn a_full_disk_lets_an_operator_delete_and_start_again() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let disk = Disk::new().await;
    let holder = disk.holder.id().to_string();
    let program = env!("CARGO_BIN_EXE_loopwright");
    let enter = [
        "--user",
        "--mount",
        "--preserve-credentials",
        "--target",
        &holder,
        "--",
        program,
    ];
    let database = disk.directory.path().join("sessions.db");
    let mut app = TestApp::builder()
        .upstream(&upstream)
        .program("nsenter", enter)
        .toml(&format!(
            "session_store = {:?}\nmin_free_disk = \"1MiB\"",
            format!("sqlite:{}", database.display())
        ))
        .start()
        .await;
    let session = |id: &str| {
        let mut body = in_session("Hi");
        body["session_id"] = json!(id);
        body
    };
    for id in ["first", "second", "third"] {
        app.post_chat(session(id)).await.completion();
    }
    let file = uploaded(app.client(), "notes.txt", b"Notes.").await["id"].clone();
    let asked = json!({"model": MODEL, "input": "Hi"});
    let run = app.post("/v1/responses", &asked).await.json()["id"].clone();
    let reserve = disk.seen("sessions.db.reserve");
    kept(&reserve, &app).await;

    // Turns do not get what is kept for deletions.
    disk.fill();
    app.post_chat(session("first")).await;
    assert!(reserve.exists());
    let deleted = app.client().delete("/v1/sessions/first").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(app.get("/v1/sessions/first").await.status, 404);
    assert!(!reserve.exists());
    for (path, id) in [("/v1/files", &file), ("/v1/responses", &run)] {
        let path = format!("{path}/{}", id.as_str().unwrap());
        let deleted = app.client().delete(&path).await;
        assert_eq!(deleted.status, 200, "{path}: {}", deleted.text());
        assert_eq!(app.get(&path).await.status, 404);
    }
    assert!(
        app.logs()
            .contains("the space that was kept for deletions is used")
    );

    // It is kept again once there is space, and lets a process start.
    disk.empty();
    kept(&reserve, &app).await;
    disk.fill();
    app.restart().await;
    assert_eq!(app.get("/v1/sessions/second").await.status, 200);
    let deleted = app.client().delete("/v1/sessions/second").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    disk.empty();
    assert_eq!(app.get("/v1/sessions/third").await.status, 200);
    app.post_chat(session("third")).await.completion();
}
