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

use super::beneath::Way;
use super::*;
use crate::sandbox::settings::Limits;

const WAYS: [Way; 2] = [Way::Kernel, Way::Components];

/// A working directory beside a secret that nothing may reach.
struct Place {
    folder: TempDir,
    dir: WorkDir,
}

impl Place {
    fn new(way: Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "SECRET").unwrap();
        let dir = Self::open(&folder.path().join("work"), way);
        Self { folder, dir }
    }

    fn open(path: &Path, way: Way) -> WorkDir {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = WorkDir::new(open(path, flags, Mode::empty()).unwrap(), false);
        dir.root = dir.root.by(way);
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

    fn declared(&self, names: &[&str]) -> Capture {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let before = self.dir.snapshot();
        self.dir.capture(&before, &names, &Limits::default())
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let part = FilePart {
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

fn names(capture: &Capture) -> Vec<&str> {
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
    for way in WAYS {
        let place = Place::new(way);
        let secret = place.outside().join("secret");
        place.write("real", "inside");
        place.write("sub/real", "inside");
        symlink(&secret, place.at("to_secret")).unwrap();
        symlink("real", place.at("to_real")).unwrap();
        symlink(place.outside(), place.at("to_outside")).unwrap();
        symlink("sub", place.at("to_sub")).unwrap();
        symlink("../outside/secret", place.at("sub/up")).unwrap();
        symlink("/proc/self/root", place.at("magic")).unwrap();
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
            let refused = place.read(name).unwrap_err();
            // A walk meets a link where it wants a directory, and cannot tell it from a file.
            let absent = way == Way::Components && refused.contains("no such file");
            assert!(
                refused.contains(problem) || absent,
                "{way:?} {name}: {refused}"
            );
            let capture = place.declared(&[name]);
            assert_eq!(names(&capture), [""; 0], "{way:?} {name}");
            assert_eq!(capture.notices.len() + capture.missing.len(), 1, "{name}");
        }
        for name in ["real", "sub/real", "./sub//real", "/mnt/data/sub/real"] {
            assert_eq!(place.read(name).unwrap(), "inside", "{way:?} {name}");
        }
        assert!(place.read("real/x").unwrap_err().contains("no such file"));
        assert!(place.read("absent").unwrap_err().contains("no such file"));
        let long = "x/".repeat(3000);
        assert!(place.read(&long).unwrap_err().contains("working directory"));
        assert!(
            place
                .read(&"x".repeat(256))
                .unwrap_err()
                .contains("too long")
        );
    }
}

#[test]
fn a_listing_follows_no_link() {
    for way in WAYS {
        let place = Place::new(way);
        place.write("real", "inside");
        symlink(place.outside(), place.at("to_outside")).unwrap();
        symlink(place.outside().join("secret"), place.at("to_secret")).unwrap();
        symlink(".", place.at("itself")).unwrap();
        let listed = place.dir.list();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].name.as_str(), listed[0].size), ("real", 6));
        assert!(listed[0].modified > 1_600_000_000);
    }
}

#[test]
fn pipes_sockets_and_devices_do_not_hold_anybody_up() {
    for way in WAYS {
        let place = Place::new(way);
        rustix::fs::mknodat(CWD, place.at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = UnixListener::bind(place.at("socket")).unwrap();
        let capture = in_time(move || {
            let before = Snapshot::default();
            let declared = ["pipe".to_owned(), "socket".to_owned()];
            let capture = place.dir.capture(&before, &declared, &Limits::default());
            for name in ["pipe", "socket"] {
                assert!(place.read(name).unwrap_err().contains("no regular file"));
            }
            let target = place.folder.path().join("saved");
            let saved = place.dir.save_to(&target, &Limits::default()).unwrap();
            assert_eq!(
                saved,
                Saved {
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
    let place = Place::new(Way::Kernel);
    let file = File::create(place.at("huge.bin")).unwrap();
    file.set_len(1 << 40).unwrap();
    let capture = place
        .dir
        .capture(&Snapshot::default(), &[], &Limits::default());
    assert_eq!(
        capture.notices,
        [
            "'huge.bin' is not handed back: it has 1099511627776 bytes, most of it holes; 33554432 are the most"
        ]
    );
    let part = FilePart {
        name: "huge.bin",
        offset: (1 << 40) - 3,
        max_bytes: 10,
    };
    let content = place.dir.read(part).unwrap();
    assert_eq!((&content.bytes[..], content.size), (&[0; 3][..], 1 << 40));
    let target = place.folder.path().join("saved");
    let saved = place.dir.save_to(&target, &Limits::default()).unwrap();
    assert_eq!(
        saved,
        Saved {
            files: 0,
            skipped: 1
        }
    );
}

#[test]
fn a_hundred_thousand_files_are_not_all_looked_at() {
    let place = Place::new(Way::Kernel);
    place.write("first", "x");
    for number in 0..100_000 {
        // Links cost less than files.
        if number % 10_000 == 0 {
            place.write(number.to_string(), "");
        } else {
            let of = number - number % 10_000;
            fs::hard_link(place.at(of.to_string()), place.at(number.to_string())).unwrap();
        }
    }
    let snapshot = place.dir.snapshot();
    assert!(!snapshot.complete);
    assert_eq!(snapshot.files.len(), LISTED.entries);
    let capture = place.declared(&["first"]);
    assert_eq!(names(&capture), ["first"]);
    assert!(capture.notices[0].contains("5000 entries"), "{capture:?}");
    let usage = place.dir.usage().unwrap();
    assert_eq!(usage.inodes, u64::MAX);
}

#[test]
fn deep_directories_are_not_descended_into() {
    let place = Place::new(Way::Kernel);
    place.write("a/b/c/seen", "x");
    place.write("a/b/c/d/unseen", "x");
    let deepest = ["d"; 1000].join("/");
    fs::create_dir_all(place.at(&deepest)).unwrap();
    place.write(format!("{deepest}/file"), "deep");
    let snapshot = place.dir.snapshot();
    assert!(!snapshot.complete);
    assert_eq!(snapshot.files.keys().collect::<Vec<_>>(), ["a/b/c/seen"]);
    assert_eq!(place.dir.usage().unwrap().inodes, u64::MAX);
    // Asked for, a file is taken wherever it is.
    let name = format!("{deepest}/file");
    let capture = place.declared(&[&name, "a/b/c/d/unseen"]);
    assert_eq!(names(&capture), [name.as_str(), "a/b/c/d/unseen"]);
    let saved = place.folder.path().join("saved");
    let saved = place.dir.save_to(&saved, &Limits::default()).unwrap();
    assert_eq!(
        saved,
        Saved {
            files: 2,
            skipped: 1
        }
    );
    fs::remove_file(place.at(&name)).unwrap();
    for depth in (1..=1000).rev() {
        fs::remove_dir(place.at(["d"].repeat(depth).join("/"))).unwrap();
    }
}

#[test]
fn odd_names_are_told_once_and_others_kept_as_they_are() {
    let place = Place::new(Way::Kernel);
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
        place.write(OsStr::from_bytes(name), "x");
    }
    place.write(OsStr::from_bytes(b"bad\n/inner"), "x");
    let capture = place
        .dir
        .capture(&Snapshot::default(), &[], &Limits::default());
    assert_eq!(names(&capture), [" spaced name ", "-rf", "zoë.txt", &long]);
    assert_eq!(capture.notices.len(), 1, "{capture:?}");
    assert!(capture.notices[0].contains("not UTF-8 or hold control"));
    assert!(place.declared(&[]).notices.is_empty());
}

#[test]
fn hidden_names_and_caches_are_left_out_unless_asked_for() {
    let place = Place::new(Way::Kernel);
    for name in [
        ".hidden",
        "__pycache__/m.pyc",
        "node_modules/p/index.js",
        ".ipynb_checkpoints/n",
        "sub/.git/config",
        "shown",
    ] {
        place.write(name, name);
    }
    let listed = place.dir.list();
    assert_eq!(listed.len(), 1, "{listed:?}");
    let capture = place.declared(&["sub/.git/config", ".hidden", "__pycache__/m.pyc", "shown"]);
    assert_eq!(
        names(&capture),
        ["sub/.git/config", ".hidden", "__pycache__/m.pyc", "shown"]
    );
    assert_eq!(&capture.files[0].bytes[..], b"sub/.git/config");
}

#[test]
fn a_second_name_of_an_outside_file_is_refused() {
    for way in WAYS {
        let mut place = Place::new(way);
        fs::hard_link(place.outside().join("secret"), place.at("linked")).unwrap();
        assert!(place.read("linked").unwrap_err().contains("hard links"));
        let capture = place
            .dir
            .capture(&Snapshot::default(), &[], &Limits::default());
        assert_eq!(names(&capture), [""; 0]);
        let target = place.folder.path().join("saved");
        let saved = place.dir.save_to(&target, &Limits::default()).unwrap();
        assert_eq!(
            saved,
            Saved {
                files: 0,
                skipped: 1
            }
        );
        place.dir.private_mount = true;
        assert_eq!(place.read("linked").unwrap(), "SECRET");
    }
}

#[test]
fn new_and_changed_files_are_taken() {
    let place = Place::new(Way::Kernel);
    place.write("same", "same");
    place.write("rewritten", "old");
    place.write("replaced", "old");
    place.write("gone", "old");
    let before = place.dir.snapshot();
    place.write("rewritten", "new");
    place.write("other", "new");
    fs::rename(place.at("other"), place.at("replaced")).unwrap();
    fs::remove_file(place.at("gone")).unwrap();
    place.write("sub/new", "new");
    let declared = [
        "gone".to_owned(),
        "same".to_owned(),
        "/mnt/data/same".to_owned(),
    ];
    let capture = place.dir.capture(&before, &declared, &Limits::default());
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
    let place = Place::new(Way::Kernel);
    let limits = Limits {
        files: 2,
        captured_file: 10,
        captured_total: 12,
        ..Limits::default()
    };
    let capture = |declared: &[&str]| {
        let declared: Vec<String> = declared.iter().map(|name| (*name).to_owned()).collect();
        place.dir.capture(&Snapshot::default(), &declared, &limits)
    };
    place.write("a", [b'a'; 8]);
    place.write("b", [b'b'; 8]);
    place.write("c", [b'c'; 2]);
    place.write("d", [b'd'; 2]);
    place.write("e", [b'e'; 11]);
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
        place.write(format!("f{number}"), [b'f'; 20]);
    }
    let limits = Limits {
        files: 100,
        ..limits
    };
    let many = place.dir.capture(&Snapshot::default(), &[], &limits);
    assert_eq!(many.notices.len(), 9, "{:?}", many.notices);
    assert!(
        many.notices[8].starts_with("34 more files"),
        "{:?}",
        many.notices
    );
}

#[test]
fn a_file_that_grows_is_cut_and_reported() {
    let place = Place::new(Way::Kernel);
    place.write("log", [b'x'; 10]);
    let before = place.dir.snapshot();
    let (stop, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    let limits = Limits {
        captured_file: 64 * 1024,
        ..Limits::default()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let mut options = fs::OpenOptions::new();
            let mut file = options.append(true).open(place.at("log")).unwrap();
            while !stop.load(Ordering::Relaxed) && file.metadata().unwrap().len() < 1 << 24 {
                file.write_all(&[b'y'; 512]).unwrap();
            }
            stopped.store(true, Ordering::Relaxed);
        });
        let declared = ["log".to_owned()];
        let mut seen = 0;
        while seen < 200 && !stopped.load(Ordering::Relaxed) {
            seen += 1;
            let capture = place.dir.capture(&before, &declared, &limits);
            match &capture.files[..] {
                [file] => assert!(file.bytes.len() <= 64 * 1024),
                _ => assert!(capture.notices[0].contains("are the most"), "{capture:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(seen > 0);
    });
    // The same without chance: the size seen at first is far from what is there.
    let file = || File::open(place.at("log")).unwrap();
    let (bytes, whole) = capture::read(file(), 3, 10).unwrap();
    assert_eq!(
        (bytes.len(), whole),
        (10, file().metadata().unwrap().len() == 10)
    );
    place.write("log", [b'x'; 11]);
    let (bytes, whole) = capture::read(file(), 3, 10).unwrap();
    assert_eq!((bytes.len(), whole), (10, false));
    let (bytes, whole) = capture::read(file(), 3, 11).unwrap();
    assert_eq!((bytes.len(), whole), (11, true));
}

#[test]
fn files_exchanged_for_links_while_they_are_taken_give_nothing_away() {
    for way in WAYS {
        let place = Place::new(way);
        place.write("file", "inside");
        place.write("folder/secret", "inside");
        symlink(place.outside().join("secret"), place.at("link")).unwrap();
        symlink(place.outside(), place.at("linked")).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (one, other) in [("file", "link"), ("folder", "linked")] {
                        let (one, other) = (place.at(one), place.at(other));
                        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
            let saved = place.folder.path().join("saved");
            let (mut taken, mut refused) = (0, 0);
            // Ends the other thread also where an assertion fails.
            let _guard = Stop(&stop);
            for round in 0..400 {
                let capture = place.declared(&["file", "folder/secret", "linked/secret"]);
                taken += capture.files.len();
                refused += capture.notices.len() + capture.missing.len();
                for file in &capture.files {
                    assert_eq!(&file.bytes[..], b"inside", "{way:?} {}", file.name);
                }
                for name in ["file", "folder/secret"] {
                    assert_ne!(place.read(name), Ok("SECRET".to_owned()));
                }
                if round % 20 == 0 {
                    place.dir.save_to(&saved, &Limits::default()).unwrap();
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
    for way in WAYS {
        let place = Place::new(way);
        let source = place.folder.path().join("upload");
        fs::write(&source, "uploaded").unwrap();
        symlink(place.outside().join("secret"), place.at("data.csv")).unwrap();
        symlink(place.outside().join("new"), place.at("data-2.csv")).unwrap();
        fs::create_dir(place.at("data-3.csv")).unwrap();
        place.write("data-4.csv", "theirs");
        let name = place.dir.place("data.csv", &source, None).unwrap();
        assert_eq!(name, "data-5.csv");
        assert_eq!(place.read(&name).unwrap(), "uploaded");
        assert_eq!(place.read("data-4.csv").unwrap(), "theirs");
        let secret = fs::read_to_string(place.outside().join("secret")).unwrap();
        assert_eq!(secret, "SECRET");
        assert!(!place.outside().join("new").exists());
        assert_eq!(
            fs::metadata(place.at(&name)).unwrap().mode() & 0o7777,
            0o600
        );
    }
}

#[test]
fn names_of_placed_files_are_tame() {
    let place = Place::new(Way::Kernel);
    let source = place.folder.path().join("upload");
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
        assert_eq!(place.dir.place(name, &source, None).unwrap(), expected);
    }
    let absent = place.folder.path().join("absent");
    assert!(place.dir.place("x", &absent, None).is_err());
    assert!(!place.at("x").exists());
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
    for way in WAYS {
        let place = Place::new(way);
        place.write("a.txt", "a");
        place.write("sub/deep/b.txt", "b");
        place.write(".config/c", "c");
        place.write("__pycache__/m.pyc", "not kept");
        fs::create_dir(place.at("empty")).unwrap();
        symlink(place.outside().join("secret"), place.at("link")).unwrap();
        symlink(place.outside(), place.at("sub/linked")).unwrap();
        let sparse = File::create(place.at("sparse")).unwrap();
        sparse.set_len(32 << 20).unwrap();
        sparse.write_at(b"middle", 16 << 20).unwrap();
        let limits = Limits {
            disk: 1 << 20,
            ..Limits::default()
        };
        let saved = place.folder.path().join("kept/saved");
        let counts = Saved {
            files: 4,
            skipped: 2,
        };
        assert_eq!(place.dir.save_to(&saved, &limits).unwrap(), counts);
        // Saved again, the former content goes.
        fs::write(saved.join("left over"), "x").unwrap();
        assert_eq!(place.dir.save_to(&saved, &limits).unwrap(), counts);
        assert!(!saved.join("left over").exists());
        let beside = fs::read_dir(place.folder.path().join("kept")).unwrap();
        assert_eq!(beside.count(), 1);
        assert_eq!(fs::metadata(&saved).unwrap().mode() & 0o7777, 0o700);
        assert!(fs::metadata(saved.join("sparse")).unwrap().blocks() * 512 < 1 << 20);

        let other = Place::new(way);
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
        let original = fs::metadata(place.at("sparse")).unwrap();
        assert_eq!(restored.mtime_nsec(), original.mtime_nsec());
        assert_eq!(
            fs::read(other.at("sparse")).unwrap(),
            fs::read(place.at("sparse")).unwrap()
        );
        assert!(other.at("empty").is_dir());
    }
}

#[test]
fn what_is_saved_is_limited() {
    let place = Place::new(Way::Kernel);
    place.write("large", [b'x'; 200_000]);
    place.write("one", [b'x'; 60_000]);
    place.write("two", [b'x'; 60_000]);
    let saved = place.folder.path().join("saved");
    let limits = Limits {
        disk: 100_000,
        file_size: 150_000,
        ..Limits::default()
    };
    let counts = place.dir.save_to(&saved, &limits).unwrap();
    assert_eq!(
        counts,
        Saved {
            files: 1,
            skipped: 2
        }
    );
    let sizes: u64 = fs::read_dir(&saved)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(sizes, 60_000);
    let limits = Limits {
        inodes: 2,
        ..Limits::default()
    };
    let counts = place.dir.save_to(&saved, &limits).unwrap();
    assert_eq!(
        counts,
        Saved {
            files: 2,
            skipped: 1
        }
    );
}

#[test]
fn a_save_that_fails_leaves_the_former_one() {
    let place = Place::new(Way::Kernel);
    place.write("file", "content");
    let kept = place.folder.path().join("kept");
    let saved = kept.join("saved");
    place.dir.save_to(&saved, &Limits::default()).unwrap();
    fs::remove_dir_all(place.at("")).unwrap();
    assert!(place.dir.save_to(&saved, &Limits::default()).is_err());
    assert_eq!(fs::read_to_string(saved.join("file")).unwrap(), "content");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    assert!(place.dir.list().is_empty());
    assert!(place.dir.restore_from(&kept.join("absent"), None).is_err());
}

#[test]
fn use_is_counted_by_what_is_stored() {
    let place = Place::new(Way::Kernel);
    let empty = place.dir.usage().unwrap();
    assert_eq!(
        empty,
        Usage {
            bytes: 0,
            inodes: 0
        }
    );
    place.write(".hidden/data", [b'x'; 100_000]);
    let sparse = File::create(place.at("sparse")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let usage = place.dir.usage().unwrap();
    assert_eq!(usage.inodes, 3);
    assert!((100_000..1 << 20).contains(&usage.bytes), "{usage:?}");
}

#[test]
fn a_part_of_a_file_is_read() {
    let place = Place::new(Way::Kernel);
    place.write("file", "0123456789");
    for (offset, max_bytes, expected) in [
        (0, 4, "0123"),
        (8, 4, "89"),
        (10, 4, ""),
        (u64::MAX, u64::MAX, ""),
        (0, u64::MAX, "0123456789"),
    ] {
        let part = FilePart {
            name: "file",
            offset,
            max_bytes,
        };
        let content = place.dir.read(part).unwrap();
        assert_eq!(&content.bytes[..], expected.as_bytes());
        assert_eq!(content.size, 10);
    }
    let elsewhere = Place::open(&place.at(""), Way::Kernel).seen_as("/work/x");
    let part = FilePart {
        name: "/work/x/file",
        offset: 9,
        max_bytes: 1,
    };
    assert_eq!(&elsewhere.read(part).unwrap().bytes[..], b"9");
}
