//! Which files of a cell are returned.

use super::*;

#[test]
fn an_enormous_sparse_file_is_refused_by_its_size() {
    let fixture = Fixture::new(PathResolution::Kernel);
    let file = File::create(fixture.at("huge.bin")).unwrap();
    file.set_len(1 << 40).unwrap();
    let capture = fixture
        .dir
        .capture(&Snapshot::default(), &[], &InterpreterLimits::default());
    assert_eq!(
        capture.notices,
        [
            "'huge.bin' is not returned: it has 1099511627776 bytes, most of it holes; the limit is 33554432"
        ]
    );
    let part = FileRange {
        name: "huge.bin",
        offset: (1 << 40) - 3,
        max_bytes: 10,
    };
    let content = fixture.dir.read(part).unwrap();
    assert_eq!((&content.bytes[..], content.size), (&[0; 3][..], 1 << 40));
    let target = fixture.folder.path().join("saved");
    let saved = fixture
        .dir
        .save_to(&target, &InterpreterLimits::default())
        .unwrap();
    assert_eq!(
        saved,
        SaveCounts {
            files: 0,
            skipped: 1
        }
    );
}

#[test]
fn a_hundred_thousand_files_are_not_all_looked_at() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("first", "x");
    for number in 0..100_000 {
        // Links cost less than files.
        if number % 10_000 == 0 {
            fixture.write(number.to_string(), "");
        } else {
            let of = number - number % 10_000;
            fs::hard_link(fixture.at(of.to_string()), fixture.at(number.to_string())).unwrap();
        }
    }
    let snapshot = fixture.dir.snapshot();
    assert!(!snapshot.complete);
    assert_eq!(snapshot.files.len(), LISTED.entries);
    let capture = fixture.declared(&["first"]);
    assert_eq!(names(&capture), ["first"]);
    assert!(capture.notices[0].contains("5000 entries"), "{capture:?}");
    let usage = fixture.dir.usage().unwrap();
    assert_eq!(usage.inodes, u64::MAX);
}

#[test]
fn deep_directories_are_not_descended_into() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("a/b/c/seen", "x");
    fixture.write("a/b/c/d/unseen", "x");
    let deepest = ["d"; 1000].join("/");
    fs::create_dir_all(fixture.at(&deepest)).unwrap();
    fixture.write(format!("{deepest}/file"), "deep");
    let snapshot = fixture.dir.snapshot();
    assert!(!snapshot.complete);
    assert_eq!(snapshot.files.keys().collect::<Vec<_>>(), ["a/b/c/seen"]);
    assert_eq!(fixture.dir.usage().unwrap().inodes, u64::MAX);
    // A requested file is returned from any depth.
    let name = format!("{deepest}/file");
    let capture = fixture.declared(&[&name, "a/b/c/d/unseen"]);
    assert_eq!(names(&capture), [name.as_str(), "a/b/c/d/unseen"]);
    let saved = fixture.folder.path().join("saved");
    let saved = fixture
        .dir
        .save_to(&saved, &InterpreterLimits::default())
        .unwrap();
    assert_eq!(
        saved,
        SaveCounts {
            files: 2,
            skipped: 1
        }
    );
    fs::remove_file(fixture.at(&name)).unwrap();
    for depth in (1..=1000).rev() {
        fs::remove_dir(fixture.at(["d"].repeat(depth).join("/"))).unwrap();
    }
}

#[test]
fn odd_names_are_told_once_and_others_kept_as_they_are() {
    let fixture = Fixture::new(PathResolution::Kernel);
    let long = "é".repeat(127) + "x";
    for name in [
        b"a\nb".as_slice(),
        b"\xff\xfe",
        b"tab\tbed",
        b"\x1b[31mred",
        b"\xc2\x9b31m",
        b"-rf",
        b" spaced name ",
        "zoë.txt".as_bytes(),
        long.as_bytes(),
    ] {
        fixture.write(OsStr::from_bytes(name), "x");
    }
    fixture.write(OsStr::from_bytes(b"bad\n/inner"), "x");
    let capture = fixture
        .dir
        .capture(&Snapshot::default(), &[], &InterpreterLimits::default());
    assert_eq!(names(&capture), [" spaced name ", "-rf", "zoë.txt", &long]);
    assert_eq!(capture.notices.len(), 1, "{capture:?}");
    assert!(capture.notices[0].contains("not UTF-8 or hold control"));
    assert!(fixture.declared(&[]).notices.is_empty());
}

#[test]
fn hidden_names_and_caches_are_left_out_unless_asked_for() {
    let fixture = Fixture::new(PathResolution::Kernel);
    for name in [
        ".hidden",
        "__pycache__/m.pyc",
        "node_modules/p/index.js",
        ".ipynb_checkpoints/n",
        "sub/.git/config",
        "shown",
    ] {
        fixture.write(name, name);
    }
    let listed = fixture.dir.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let capture = fixture.declared(&["sub/.git/config", ".hidden", "__pycache__/m.pyc", "shown"]);
    assert_eq!(
        names(&capture),
        ["sub/.git/config", ".hidden", "__pycache__/m.pyc", "shown"]
    );
    assert_eq!(&capture.files[0].bytes[..], b"sub/.git/config");
}

#[test]
fn new_and_changed_files_are_taken() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("same", "same");
    fixture.write("rewritten", "old");
    fixture.write("replaced", "old");
    fixture.write("gone", "old");
    let before = fixture.dir.snapshot();
    fixture.write("rewritten", "new");
    fixture.write("other", "new");
    fs::rename(fixture.at("other"), fixture.at("replaced")).unwrap();
    fs::remove_file(fixture.at("gone")).unwrap();
    fixture.write("sub/new", "new");
    let declared = [
        "gone".to_owned(),
        "same".to_owned(),
        "/mnt/data/same".to_owned(),
    ];
    let capture = fixture
        .dir
        .capture(&before, &declared, &InterpreterLimits::default());
    assert_eq!(
        names(&capture),
        ["same", "replaced", "rewritten", "sub/new"]
    );
    assert_eq!(capture.missing, ["gone"]);
    assert_eq!(capture.notices, [""; 0]);
    assert!(
        capture.files[1..]
            .iter()
            .all(|file| &file.bytes[..] == b"new")
    );
}

#[test]
fn number_and_size_of_files_are_limited() {
    let fixture = Fixture::new(PathResolution::Kernel);
    let limits = InterpreterLimits {
        files: 2,
        captured_file: 10,
        captured_total: 12,
        ..InterpreterLimits::default()
    };
    let capture = |declared: &[&str]| {
        let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
        fixture
            .dir
            .capture(&Snapshot::default(), &declared, &limits)
    };
    fixture.write("a", [b'a'; 8]);
    fixture.write("b", [b'b'; 8]);
    fixture.write("c", [b'c'; 2]);
    fixture.write("d", [b'd'; 2]);
    fixture.write("e", [b'e'; 11]);
    let taken = capture(&[]);
    assert_eq!(names(&taken), ["a", "c"]);
    assert_eq!(
        taken.notices,
        [
            "'b' is not returned: all files of one call would have more than 12 bytes",
            "2 files are not returned, because one call returns at most 2: d, e"
        ]
    );
    let taken = capture(&["d", "e"]);
    assert_eq!(names(&taken), ["d", "a"]);
    assert_eq!(
        taken.notices[0],
        "'e' is not returned: it has 11 bytes; the limit is 10"
    );
    for number in 0..40 {
        fixture.write(format!("f{number}"), [b'f'; 20]);
    }
    let limits = InterpreterLimits {
        files: 100,
        ..limits
    };
    let many = fixture.dir.capture(&Snapshot::default(), &[], &limits);
    assert_eq!(many.notices.len(), 9, "{:?}", many.notices);
    assert!(
        many.notices[8].starts_with("34 more files"),
        "{:?}",
        many.notices
    );
}

#[test]
fn a_file_that_grows_is_cut_and_reported() {
    let fixture = Fixture::new(PathResolution::Kernel);
    fixture.write("log", [b'x'; 10]);
    let before = fixture.dir.snapshot();
    let (stop, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    let limits = InterpreterLimits {
        captured_file: 64 * 1024,
        ..InterpreterLimits::default()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let mut options = fs::OpenOptions::new();
            let mut file = options.append(true).open(fixture.at("log")).unwrap();
            while !stop.load(Ordering::Relaxed) && file.metadata().unwrap().len() < 1 << 24 {
                file.write_all(&[b'y'; 512]).unwrap();
            }
            stopped.store(true, Ordering::Relaxed);
        });
        let declared = ["log".to_owned()];
        let mut seen = 0;
        while seen < 200 && !stopped.load(Ordering::Relaxed) {
            seen += 1;
            let capture = fixture.dir.capture(&before, &declared, &limits);
            match &capture.files[..] {
                [file] => assert!(file.bytes.len() <= 64 * 1024),
                _ => assert!(capture.notices[0].contains("the limit is"), "{capture:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(seen > 0);
    });
    // Deterministic: the size seen at first differs greatly from the content.
    let file = || File::open(fixture.at("log")).unwrap();
    let (bytes, whole) = capture::read(file(), 3, 10).unwrap();
    assert_eq!(
        (bytes.len(), whole),
        (10, file().metadata().unwrap().len() == 10)
    );
    fixture.write("log", [b'x'; 11]);
    let (bytes, whole) = capture::read(file(), 3, 10).unwrap();
    assert_eq!((bytes.len(), whole), (10, false));
    let (bytes, whole) = capture::read(file(), 3, 11).unwrap();
    assert_eq!((bytes.len(), whole), (11, true));
}
