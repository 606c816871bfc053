//! Files in, out, saved and restored.

use super::*;
use blobs::Blob;

#[tokio::test]
#[ignore = "needs Python"]
async fn files_go_in_and_come_out() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        let large: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let place = |name: &str, bytes: &[u8]| {
            let path = stage.folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            WorkFile {
                id: name.to_owned(),
                name: "in/../data.csv".to_owned(),
                content: Blob::file(path, bytes.len() as u64),
                is_produced: false,
            }
        };
        let inputs = [place("a", b"1,2\n"), place("b", &large), place("c", b"")];
        let declared = [
            "data.csv".to_owned(),
            "../x".to_owned(),
            "none.txt".to_owned(),
        ];
        let cell = |code| Cell {
            code,
            outputs: &declared,
            inputs: &inputs,
            timeout: PATIENCE,
        };
        let code = "
import os
sizes = [os.path.getsize(name) for name in ('data.csv', 'data-2.csv', 'data-3.csv')]
os.makedirs('sub/.hidden'); os.makedirs('__pycache__')
for name in ('new.txt', 'sub/new.txt', '.dot', 'sub/.hidden/x', '__pycache__/x'):
    with open(name, 'w') as file:
        file.write('new ' + name)
os.symlink('/etc/passwd', 'link.txt')
os.mkfifo('pipe')
with open('huge', 'wb') as file:
    file.truncate(1 << 40)
open(b'odd-\\xff', 'w').close()
sizes";
        let outcome = stage
            .sandbox
            .run(&workspace, cell(code), &ignore)
            .await
            .unwrap();
        assert_eq!(outcome.value.unwrap().text, "[4, 3000000, 0]");
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["data.csv", "new.txt", "sub/new.txt"]);
        assert_eq!(&outcome.files[0].bytes[..], b"1,2\n");
        let notices = outcome.notices.join("\n");
        for part in [
            "is called 'data-2.csv' here",
            "'../x' is not returned: it is not in the working directory",
            "most of it holes",
            "not UTF-8",
            "symbolic links, pipes",
        ] {
            assert!(notices.contains(part), "{part}: {notices}");
        }

        // Only what changed comes again; what was there stays.
        let code = "open('new.txt', 'a').write('!')";
        let outcome = stage.run(&workspace, code).await;
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["new.txt"]);

        let listed = stage.sandbox.list_files(&workspace, &inputs).await.unwrap();
        let listed: Vec<_> = listed
            .iter()
            .map(|file| (file.name.as_str(), file.size))
            .collect();
        assert_eq!(
            listed,
            [
                ("data-2.csv", 3_000_000),
                ("data-3.csv", 0),
                ("data.csv", 4),
                ("huge", 1 << 40),
                ("new.txt", 12),
                ("sub/new.txt", 15),
            ]
        );
        let read = async |name, offset, max_bytes| {
            let part = FileRange {
                name,
                offset,
                max_bytes,
            };
            stage.sandbox.read_file(&workspace, &inputs, part).await
        };
        let content = read("data-2.csv", 1000, 2_000_000).await.unwrap();
        assert_eq!(content.bytes, large[1000..2_001_000]);
        assert_eq!(content.size, 3_000_000);
        let absolute = format!("{}/new.txt", outcome.working_directory);
        assert_eq!(
            &read(&absolute, 4, 100).await.unwrap().bytes[..],
            b"new.txt!"
        );
        for (name, problem) in [
            ("none", "there is no such file"),
            ("../../etc/passwd", "it is not in the working directory"),
            ("/etc/passwd", "it is not in the working directory"),
            ("link.txt", "it is a symbolic link"),
            ("pipe", "it is not a regular file"),
            ("sub", "it is a directory"),
        ] {
            let error = read(name, 0, 100).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn files_are_saved_at_eviction_and_restored() {
    for command in commands() {
        let stage = Stage::with(&command, |settings| settings.max_workers = 1).await;
        let (first, second) = (WorkspaceId::fresh(), WorkspaceId::fresh());
        let path = stage.folder.path().join("input");
        fs::write(&path, "input").unwrap();
        let inputs = [WorkFile {
            id: "file-1".to_owned(),
            name: "input.txt".to_owned(),
            content: Blob::file(path, 5),
            is_produced: false,
        }];
        let cell = |code| Cell {
            code,
            outputs: &[],
            inputs: &inputs,
            timeout: PATIENCE,
        };
        let code = "
import os
os.makedirs('a/b'); os.makedirs('empty'); os.remove('input.txt')
open('a/b/c.bin', 'wb').write(bytes(range(256)) * 9000)
open('.dot', 'w').write('dot')
os.symlink('/etc/passwd', 'link')";
        let outcome = stage
            .sandbox
            .run(&first, cell(code), &ignore)
            .await
            .unwrap();
        assert_eq!(outcome.error, None);
        // There is room for one only.
        assert_eq!(stage.value(&second, "import os\nos.listdir()").await, "[]");
        let code = "sorted(os.path.join(at, name) for at, folders, files in __import__('os').walk('.') for name in folders + files for os in [__import__('os')])";
        let outcome = stage
            .sandbox
            .run(&first, cell(code), &ignore)
            .await
            .unwrap();
        // The input file was deleted and stays deleted; links are not kept.
        assert_eq!(
            outcome.value.unwrap().text,
            "['./.dot', './a', './a/b', './a/b/c.bin', './empty']"
        );
        assert_eq!(outcome.files, []);
        let whole = "open('a/b/c.bin', 'rb').read() == bytes(range(256)) * 9000";
        assert_eq!(stage.value(&first, whole).await, "True");
        stage.end().await;
    }
}
