use super::*;

const BUDGET: u64 = 1024 * 1024;

fn put(folder: &Path, id: &WorkspaceId, bytes: usize, age: Duration) {
    let directory = folder.join("saved").join(id.as_str());
    fs::create_dir_all(directory.join(FILES).join("inner")).unwrap();
    fs::write(directory.join(FILES).join("inner/a"), vec![1; bytes]).unwrap();
    fs::write(directory.join(PLACED), "[]").unwrap();
    let placed = fs::File::open(directory.join(PLACED)).unwrap();
    placed.set_modified(SystemTime::now() - age).unwrap();
}

fn there(folder: &Path, ids: &[WorkspaceId]) -> Vec<bool> {
    let saved = folder.join("saved");
    ids.iter()
        .map(|id| saved.join(id.as_str()).exists())
        .collect()
}

#[test]
fn what_was_kept_longest_ago_is_deleted_where_all_is_too_much_and_that_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [(); 3].map(|()| WorkspaceId::fresh());
    for (id, age) in ids.iter().zip([20, 30, 10]) {
        put(folder.path(), id, 400 * 1024, Duration::from_secs(age));
    }
    let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
    assert_eq!(there(folder.path(), &ids), [true, false, true]);
    let notes = |saved: &SavedFiles| {
        ids.each_ref()
            .map(|id| saved.0.index.lock().note_of(id.as_str()))
    };
    assert_eq!(notes(&saved), [None, Some(FileLoss::Evicted), None]);
    drop(saved);
    // A restarted server still knows it, and deleting a workspace clears its note.
    let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
    assert_eq!(notes(&saved), [None, Some(FileLoss::Evicted), None]);
    ids.iter().for_each(|id| saved.delete(id).unwrap());
    assert_eq!(notes(&saved), [None; 3]);
    assert_eq!(
        fs::read_dir(folder.path().join("saved")).unwrap().count(),
        0
    );
}

#[test]
fn the_files_of_an_owner_with_few_stay() {
    let folder = tempfile::tempdir().unwrap();
    let [few, many] = ["few", "many"].map(Owner::key);
    let ids = [&few, &many, &many, &many].map(WorkspaceId::fresh_of);
    for (id, age) in ids.iter().zip([40, 30, 20, 10]) {
        put(folder.path(), id, 300 * 1024, Duration::from_secs(age));
        let directory = folder.path().join("saved").join(id.as_str());
        fs::write(directory.join(OWNER), id.owner().as_str()).unwrap();
    }
    SavedFiles::open(folder.path(), BUDGET).unwrap();
    assert_eq!(there(folder.path(), &ids), [true, false, true, true]);
    SavedFiles::open(folder.path(), BUDGET * 2 / 3).unwrap();
    assert_eq!(there(folder.path(), &ids), [true, false, false, true]);
}

#[test]
fn what_is_being_used_is_not_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [(); 2].map(|()| WorkspaceId::fresh());
    put(folder.path(), &ids[0], 400 * 1024, Duration::from_secs(30));
    let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
    let in_use = saved.mark_used(&ids[0]);
    put(folder.path(), &ids[1], 800 * 1024, Duration::ZERO);
    let much = size(&saved.directory(&ids[1]));
    saved
        .0
        .index
        .lock()
        .record(ids[1].as_str(), Owner::everybody(), much, SystemTime::now());
    saved.shrink();
    assert_eq!(there(folder.path(), &ids), [true, false]);
    saved.expire(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(there(folder.path(), &ids), [true, false]);
    drop(in_use);
    saved.expire(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(there(folder.path(), &ids), [false, false]);
}

#[test]
fn one_that_cannot_be_deleted_does_not_keep_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let ids = [(); 8].map(|()| WorkspaceId::fresh());
    for id in &ids {
        put(folder.path(), id, 1, Duration::from_secs(30));
    }
    // A file in place of a directory cannot be deleted as a directory.
    for number in 0..8 {
        let stray = folder.path().join("saved").join(format!("stray{number}"));
        fs::write(&stray, "").unwrap();
        let stray = fs::File::open(stray).unwrap();
        stray.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
    saved.expire(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(there(folder.path(), &ids), [false; 8]);
}
