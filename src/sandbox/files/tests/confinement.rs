//! Nothing outside the directory is reached, whatever the code puts there.

use super::*;

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
                assert!(
                    fixture
                        .read(name)
                        .unwrap_err()
                        .contains("not a regular file")
                );
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
            // Ends the other thread even if an assertion fails.
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
