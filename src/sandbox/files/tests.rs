use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};
use tempfile::TempDir;

use super::confined::PathResolution;
use super::*;
use crate::sandbox::settings::InterpreterLimits;

const RESOLUTIONS: [PathResolution; 2] = [PathResolution::Kernel, PathResolution::Components];

/// A working directory beside a secret that nothing may reach.
struct Fixture {
    folder: TempDir,
    dir: WorkDir,
}

impl Fixture {
    fn new(resolution: PathResolution) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "SECRET").unwrap();
        let dir = Self::open(&folder.path().join("work"), resolution);
        Self { folder, dir }
    }

    fn open(path: &Path, resolution: PathResolution) -> WorkDir {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = WorkDir::new(open(path, flags, Mode::empty()).unwrap(), false);
        dir.root = dir.root.by(resolution);
        dir
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn declared(&self, names: &[&str]) -> FileCapture {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let before = self.dir.snapshot();
        self.dir
            .capture(&before, &names, &InterpreterLimits::default())
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let part = FileRange {
            name,
            offset: 0,
            max_bytes: 1 << 20,
        };
        match self.dir.read(part) {
            Ok(content) => Ok(String::from_utf8(content.bytes.to_vec()).unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn names(capture: &FileCapture) -> Vec<&str> {
    capture
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect()
}

/// Fails instead of hanging where something waits for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn nothing_leads_out_of_the_directory() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        let secret = fixture.outside().join("secret");
        fixture.write("real", "inside");
        fixture.write("sub/real", "inside");
        symlink(&secret, fixture.at("to_secret")).unwrap();
        symlink("real", fixture.at("to_real")).unwrap();
        symlink(fixture.outside(), fixture.at("to_outside")).unwrap();
        symlink("sub", fixture.at("to_sub")).unwrap();
        symlink("../outside/secret", fixture.at("sub/up")).unwrap();
        symlink("/proc/self/root", fixture.at("magic")).unwrap();
        for (name, problem) in [
            ("to_secret", "symbolic link"),
            ("to_real", "symbolic link"),
            ("to_outside/secret", "symbolic link"),
            ("to_sub/real", "symbolic link"),
            ("sub/up", "symbolic link"),
            ("magic/etc/passwd", "symbolic link"),
            ("../outside/secret", "not in the working directory"),
            ("sub/../../outside/secret", "not in the working directory"),
            ("sub/../real", "not in the working directory"),
            (secret.to_str().unwrap(), "not in the working directory"),
            ("/etc/passwd", "not in the working directory"),
            ("/mnt/data/../../etc/passwd", "not in the working directory"),
            ("", "not in the working directory"),
            (".", "not in the working directory"),
            ("..", "not in the working directory"),
            ("sub", "directory"),
            ("a\nb", "control characters"),
            ("real\0", "control characters"),
        ] {
            let refused = fixture.read(name).unwrap_err();
            // A walk meets a link where it wants a directory, and cannot tell it from a file.
            let absent =
                resolution == PathResolution::Components && refused.contains("no such file");
            assert!(
                refused.contains(problem) || absent,
                "{resolution:?} {name}: {refused}"
            );
            let capture = fixture.declared(&[name]);
            assert_eq!(names(&capture), [""; 0], "{resolution:?} {name}");
            assert_eq!(capture.notices.len() + capture.missing.len(), 1, "{name}");
        }
        for name in ["real", "sub/real", "./sub//real", "/mnt/data/sub/real"] {
            assert_eq!(
                fixture.read(name).unwrap(),
                "inside",
                "{resolution:?} {name}"
            );
        }
        assert!(fixture.read("real/x").unwrap_err().contains("no such file"));
        assert!(fixture.read("absent").unwrap_err().contains("no such file"));
        let long = "x/".repeat(3000);
        assert!(
            fixture
                .read(&long)
                .unwrap_err()
                .contains("working directory")
        );
        assert!(
            fixture
                .read(&"x".repeat(256))
                .unwrap_err()
                .contains("too long")
        );
    }
}

#[test]
fn a_listing_follows_no_link() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        fixture.write("real", "inside");
        symlink(fixture.outside(), fixture.at("to_outside")).unwrap();
        symlink(fixture.outside().join("secret"), fixture.at("to_secret")).unwrap();
        symlink(".", fixture.at("itself")).unwrap();
        let listed = fixture.dir.list();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].name.as_str(), listed[0].size), ("real", 6));
        assert!(listed[0].modified > 1_600_000_000);
    }
}

#[test]
fn pipes_sockets_and_devices_do_not_hold_anybody_up() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        rustix::fs::mknodat(CWD, fixture.at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = UnixListener::bind(fixture.at("socket")).unwrap();
        let capture = in_time(move || {
            let before = Snapshot::default();
            let declared = ["pipe".to_owned(), "socket".to_owned()];
            let capture = fixture
                .dir
                .capture(&before, &declared, &InterpreterLimits::default());
            for name in ["pipe", "socket"] {
                assert!(fixture.read(name).unwrap_err().contains("no regular file"));
            }
            let target = fixture.folder.path().join("saved");
            let saved = fixture
                .dir
                .save_to(&target, &InterpreterLimits::default())
                .unwrap();
            assert_eq!(
                saved,
                SaveCounts {
                    files: 0,
                    skipped: 2
                }
            );
            capture
        });
        assert_eq!(names(&capture), [""; 0]);
        assert!(capture.notices[0].contains("'pipe'"), "{capture:?}");
        assert!(capture.notices[1].contains("'socket'"), "{capture:?}");
        assert!(
            capture
                .notices
                .iter()
                .any(|text| text.contains("sockets and devices"))
        );
    }
}

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
            "'huge.bin' is not handed back: it has 1099511627776 bytes, most of it holes; 33554432 are the most"
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
    // Asked for, a file is taken wherever it is.
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
fn a_second_name_of_an_outside_file_is_refused() {
    for resolution in RESOLUTIONS {
        let mut fixture = Fixture::new(resolution);
        fs::hard_link(fixture.outside().join("secret"), fixture.at("linked")).unwrap();
        assert!(fixture.read("linked").unwrap_err().contains("hard links"));
        let capture = fixture
            .dir
            .capture(&Snapshot::default(), &[], &InterpreterLimits::default());
        assert_eq!(names(&capture), [""; 0]);
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
        fixture.dir.private_mount = true;
        assert_eq!(fixture.read("linked").unwrap(), "SECRET");
    }
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
            "'b' is not handed back: all files of one call would have more than 12 bytes",
            "2 files are not handed back, because one call hands 2 back: d, e"
        ]
    );
    let taken = capture(&["d", "e"]);
    assert_eq!(names(&taken), ["d", "a"]);
    assert_eq!(
        taken.notices[0],
        "'e' is not handed back: it has 11 bytes; 10 are the most"
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
                _ => assert!(capture.notices[0].contains("are the most"), "{capture:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(seen > 0);
    });
    // The same without chance: the size seen at first is far from what is there.
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

#[test]
fn files_exchanged_for_links_while_they_are_taken_give_nothing_away() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        fixture.write("file", "inside");
        fixture.write("folder/secret", "inside");
        symlink(fixture.outside().join("secret"), fixture.at("link")).unwrap();
        symlink(fixture.outside(), fixture.at("linked")).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (one, other) in [("file", "link"), ("folder", "linked")] {
                        let (one, other) = (fixture.at(one), fixture.at(other));
                        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
            let saved = fixture.folder.path().join("saved");
            let (mut taken, mut refused) = (0, 0);
            // Ends the other thread also where an assertion fails.
            let _guard = Stop(&stop);
            for round in 0..400 {
                let capture = fixture.declared(&["file", "folder/secret", "linked/secret"]);
                taken += capture.files.len();
                refused += capture.notices.len() + capture.missing.len();
                for file in &capture.files {
                    assert_eq!(&file.bytes[..], b"inside", "{resolution:?} {}", file.name);
                }
                for name in ["file", "folder/secret"] {
                    assert_ne!(fixture.read(name), Ok("SECRET".to_owned()));
                }
                if round % 20 == 0 {
                    fixture
                        .dir
                        .save_to(&saved, &InterpreterLimits::default())
                        .unwrap();
                    for name in ["file", "link", "folder/secret", "linked/secret"] {
                        let content = fs::read_to_string(saved.join(name));
                        assert!(content.is_err() || content.unwrap() == "inside", "{name}");
                    }
                }
            }
            assert!(taken > 0 && refused > 0, "{taken} {refused}");
        });
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_placed_file_follows_and_overwrites_nothing() {
    for resolution in RESOLUTIONS {
        let fixture = Fixture::new(resolution);
        let source = fixture.folder.path().join("upload");
        fs::write(&source, "uploaded").unwrap();
        symlink(fixture.outside().join("secret"), fixture.at("data.csv")).unwrap();
        symlink(fixture.outside().join("new"), fixture.at("data-2.csv")).unwrap();
        fs::create_dir(fixture.at("data-3.csv")).unwrap();
        fixture.write("data-4.csv", "theirs");
        let name = fixture.dir.place("data.csv", &source, None).unwrap();
        assert_eq!(name, "data-5.csv");
        assert_eq!(fixture.read(&name).unwrap(), "uploaded");
        assert_eq!(fixture.read("data-4.csv").unwrap(), "theirs");
        let secret = fs::read_to_string(fixture.outside().join("secret")).unwrap();
        assert_eq!(secret, "SECRET");
        assert!(!fixture.outside().join("new").exists());
        assert_eq!(
            fs::metadata(fixture.at(&name)).unwrap().mode() & 0o7777,
            0o600
        );
    }
}

#[test]
fn names_of_placed_files_are_tame() {
    let fixture = Fixture::new(PathResolution::Kernel);
    let source = fixture.folder.path().join("upload");
    fs::write(&source, "x").unwrap();
    let long = "é".repeat(200);
    for (name, expected) in [
        ("a b.csv", "a b.csv"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\x\\r.xlsx", "r.xlsx"),
        ("/", "file"),
        ("..", "file-2"),
        ("", "file-3"),
        ("-rf", "rf"),
        (".bashrc", "bashrc"),
        ("a\nb\0c", "abc"),
        ("a.tar.gz", "a.tar.gz"),
        ("a.tar.gz", "a.tar-2.gz"),
        (&format!("{long}.csv"), &format!("{}.csv", "é".repeat(98))),
    ] {
        assert_eq!(fixture.dir.place(name, &source, None).unwrap(), expected);
    }
    let absent = fixture.folder.path().join("absent");
    assert!(fixture.dir.place("x", &absent, None).is_err());
    assert!(!fixture.at("x").exists());
}

/// A user whom this test may give files to.
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
        // Saved again, the former content goes.
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
