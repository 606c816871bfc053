//! Limits that have to fit each other.

use super::*;

#[test]
fn the_limits_of_files_go_together() {
    let limits = |lines: &str| {
        let session = load(&format!("{UPSTREAM}{lines}")).unwrap().session;
        (session.max_file_bytes, session.max_total_file_bytes)
    };
    assert_eq!(limits(""), (64 << 20, 10 << 30));
    assert_eq!(limits("max_file_bytes = \"20GiB\""), (20 << 30, 20 << 30));
    let both = "max_file_bytes = 5\nmax_total_file_bytes = \"1KiB\"";
    assert_eq!(limits(both), (5, 1024));
}

#[test]
fn the_limits_of_sessions_go_together() {
    let limits = |lines: &str| {
        let session = load(&format!("{UPSTREAM}{lines}")).unwrap().session;
        let limits = session.limits;
        (
            limits.session_bytes,
            limits.total_bytes,
            limits.min_free_disk,
        )
    };
    assert_eq!(limits(""), (64 << 20, 20 << 30, 1 << 30));
    let larger = "session_max_bytes = \"30GiB\"\nmin_free_disk = 0";
    assert_eq!(limits(larger), (30 << 30, 30 << 30, 0));
    let both = "session_max_bytes = 2048\nmax_total_session_bytes = \"3KiB\"";
    assert_eq!(limits(both), (2048, 3072, 1 << 30));
}
