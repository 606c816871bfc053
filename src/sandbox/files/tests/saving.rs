//! Saving, restoring, measuring and reading files.

use super::*;

/// A user to whom this test may give files.
fn owner() -> (u32, u32) {
    if rustix::process::geteuid().is_root() {
        (60_123, 60_124)
    } else {
        let user = rustix::process::geteuid().as_raw();
        (user, rustix::process::getegid().as_raw())
    }
}

#[test]
fn files_outlive_their_interpreter() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        fixture.write("a.txt", "a");
        fixture.write("sub/deep/b.txt", "b");
        fixture.write(".config/c", "c");
        fixture.write("__pycache__/m.pyc", "not kept");
        fs::create_dir(fixture.at("empty")).unwrap();
        symlink(fixture.outside().join("secret"), fixture.at("link")).unwrap();
        symlink(fixture.outside(), fixture.at("sub/linked")).unwrap();
        let sparse = File::create(fixture.at("sparse")).unwrap();
        sparse.set_len(32 << 20).unwrap();
        sparse.write_at(b"middle", 16 << 20).unwrap();
        let limits = InterpreterLimits {
            disk: 1 << 20,
            ..InterpreterLimits::default()
        };
        let saved = fixture.folder.path().join("kept/saved");
        let counts = SaveCounts {
            files: 4,
            skipped: 2,
        };
        assert_eq!(fixture.dir.save_to(&saved, &limits).unwrap(), counts);
        // Saving again replaces the former content.
        fs::write(saved.join("left over"), "x").unwrap();
        assert_eq!(fixture.dir.save_to(&saved, &limits).unwrap(), counts);
        assert!(!saved.join("left over").exists());
        let beside = fs::read_dir(fixture.folder.path().join("kept")).unwrap();
        assert_eq!(beside.count(), 1);
        assert_eq!(fs::metadata(&saved).unwrap().mode() & 0o7777, 0o700);
        assert!(fs::metadata(saved.join("sparse")).unwrap().blocks() * 512 < 1 << 20);

        let other = Fixture::new(resolution);
        other.write("a.txt", "not overwritten");
        symlink(other.outside(), other.at("sub")).unwrap();
        assert_eq!(other.dir.restore_from(&saved, Some(owner())).unwrap(), 2);
        assert_eq!(other.read("a.txt").unwrap(), "not overwritten");
        assert_eq!(fs::read_dir(other.outside()).unwrap().count(), 1);
        assert_eq!(other.read(".config/c").unwrap(), "c");
        for (name, mode) in [(".config", 0o700), (".config/c", 0o600), ("sparse", 0o600)] {
            let meta = fs::metadata(other.at(name)).unwrap();
            assert_eq!((meta.uid(), meta.gid()), owner(), "{name}");
            assert_eq!(meta.mode() & 0o7777, mode, "{name}");
        }
        let restored = fs::metadata(other.at("sparse")).unwrap();
        let original = fs::metadata(fixture.at("sparse")).unwrap();
        assert_eq!(restored.mtime_nsec(), original.mtime_nsec());
        assert_eq!(
            fs::read(other.at("sparse")).unwrap(),
            fs::read(fixture.at("sparse")).unwrap()
        );
        assert!(other.at("empty").is_dir());
    }
}

#[test]
fn what_is_saved_is_limited() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("large", [b'x'; 200_000]);
    fixture.write("one", [b'x'; 60_000]);
    fixture.write("two", [b'x'; 60_000]);
    let saved = fixture.folder.path().join("saved");
    let limits = InterpreterLimits {
        disk: 100_000,
        file_size: 150_000,
        ..InterpreterLimits::default()
    };
    let counts = fixture.dir.save_to(&saved, &limits).unwrap();
    assert_eq!(
        counts,
        SaveCounts {
            files: 1,
            skipped: 2
        }
    );
    let sizes: u64 = fs::read_dir(&saved)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(sizes, 60_000);
    let limits = InterpreterLimits {
        inodes: 2,
        ..InterpreterLimits::default()
    };
    let counts = fixture.dir.save_to(&saved, &limits).unwrap();
    assert_eq!(
        counts,
        SaveCounts {
            files: 2,
            skipped: 1
        }
    );
}

#[test]
fn a_save_that_fails_leaves_the_former_one() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("file", "content");
    let kept = fixture.folder.path().join("kept");
    let saved = kept.join("saved");
    fixture
        .dir
        .save_to(&saved, &InterpreterLimits::default())
        .unwrap();
    fs::remove_dir_all(fixture.at("")).unwrap();
    assert!(
        fixture
            .dir
            .save_to(&saved, &InterpreterLimits::default())
            .is_err()
    );
    assert_eq!(fs::read_to_string(saved.join("file")).unwrap(), "content");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    assert!(fixture.dir.list().is_empty());
    assert!(
        fixture
            .dir
            .restore_from(&kept.join("absent"), None)
            .is_err()
    );
}

#[test]
fn use_is_counted_by_what_is_stored() {
    let fixture = Fixture::new(PathResolution::Kernel);
    let empty = fixture.dir.usage().unwrap();
    assert_eq!(
        empty,
        DiskUsage {
            bytes: 0,
            inodes: 0
        }
    );
    fixture.write(".hidden/data", [b'x'; 100_000]);
    let sparse = File::create(fixture.at("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let usage = fixture.dir.usage().unwrap();
    assert_eq!(usage.inodes, 3);
    assert!((100_000..1 << 20).contains(&usage.bytes), "{usage:?}");
}

#[test]
fn a_file_that_is_renamed_meanwhile_counts_once_or_not_at_all() {
    const FILES: u64 = 100;
    let fixture = Fixture::new(PathResolution::Kernel);
    for number in 0..FILES {
        fixture.write(format!("{number}"), [b'x'; 10_000]);
    }
    fs::hard_link(fixture.at("0"), fixture.at("again")).unwrap();
    let stored = fixture.dir.usage().unwrap();
    assert_eq!(stored.inodes, FILES);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u64.. {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                for number in 0..FILES {
                    let name =
                        |round: u64| format!("{number}{}", ".".repeat((round % 30) as usize));
                    fs::rename(fixture.at(name(round)), fixture.at(name(round + 1))).unwrap();
                }
            }
        });
        let counted: Vec<_> = (0..500).map(|_| fixture.dir.usage()).collect();
        ended.store(true, Ordering::Relaxed);
        for usage in counted {
            let usage = usage.unwrap();
            let is_within = usage.inodes <= FILES && usage.bytes <= stored.bytes;
            assert!(is_within, "{usage:?} of {stored:?}");
        }
    });
}

#[test]
fn a_part_of_a_file_is_read() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("file", "0123456789");
    for (offset, max_bytes, expected) in [
        (0, 4, "0123"),
        (8, 4, "89"),
        (10, 4, ""),
        (u64::MAX, u64::MAX, ""),
        (0, u64::MAX, "0123456789"),
    ] {
        let part = FileRange {
            name: "file",
            offset,
            max_bytes,
        };
        let content = fixture.dir.read(part).unwrap();
        assert_eq!(&content.bytes[..], expected.as_bytes());
        assert_eq!(content.size, 10);
    }
    let elsewhere = Fixture::open(&fixture.at(""), PathResolution::Kernel).seen_as("/work/x");
    let part = FileRange {
        name: "/work/x/file",
        offset: 9,
        max_bytes: 1,
    };
    assert_eq!(&elsewhere.read(part).unwrap().bytes[..], b"9");
}
