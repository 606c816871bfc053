//! Pages that are out to break what reads them, through processes of the real binary.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::task::TaskTracker;
use web::settings::ExtractorSettings;
use web::{Document, DocumentKind, ExtractError, Extractor, RawPage, extract};

const MEMORY: u64 = 512 * 1024 * 1024;
/// What the filter of system calls answers; everything else would answer otherwise.
const EPERM: i32 = 1;
const LONG: Duration = Duration::from_secs(60);

fn extractor(processes: usize, timeout: Duration) -> Extractor {
    let settings = ExtractorSettings {
        program: env!("CARGO_BIN_EXE_loopwright").into(),
        processes,
        timeout,
        memory: MEMORY,
    };
    Extractor::new(settings, &TaskTracker::new())
}

fn page(content_type: &str, body: impl Into<Bytes>) -> RawPage {
    RawPage {
        url: "http://example.test/page".to_owned(),
        content_type: Some(content_type.to_owned()),
        body: body.into(),
        cut: false,
    }
}

fn good() -> RawPage {
    page(
        "text/html",
        "<title>Tea</title><p>Pour water on the leaves and wait.</p>",
    )
}

async fn assert_works(extractor: &Extractor) {
    let document = extractor.extract(good()).await.unwrap();
    assert_eq!(document.title, "Tea");
    assert_eq!(document.markdown, "Pour water on the leaves and wait.");
}

fn only(ids: &[u32]) -> u32 {
    assert_eq!(ids.len(), 1, "{ids:?}");
    ids[0]
}

#[tokio::test]
async fn a_confined_process_can_only_compute() {
    let extractor = extractor(1, LONG);
    let attempts = extractor.attempts().await.unwrap();
    assert!(attempts.len() >= 10);
    for attempt in attempts {
        assert_eq!(attempt.errno, Some(EPERM), "{}", attempt.what);
    }
    let id = only(&extractor.idle());
    let of = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}")).unwrap();
    let status = of("status");
    for line in [
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapEff:\t0000000000000000",
        "CapPrm:\t0000000000000000",
    ] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    assert!(status.contains("Threads:\t2"), "{status}");
    assert_eq!(
        std::fs::read_link(format!("/proc/{id}/cwd"))
            .unwrap()
            .to_str(),
        Some("/")
    );
    // Nothing of the server's environment.
    assert_eq!(
        of("environ").trim_end_matches('\0'),
        "MIMALLOC_ARENA_RESERVE=16M"
    );
    assert_eq!(
        std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count(),
        5
    );
    assert_works(&extractor).await;
}

#[tokio::test]
async fn a_hundred_pages_share_two_processes() {
    let extractor = extractor(2, LONG);
    let pages = (0..100).map(|number| {
        let extractor = extractor.clone();
        async move {
            let text = format!("<title>{number}</title><p>This is page {number}.</p>");
            let document = extractor.extract(page("text/html", text)).await.unwrap();
            assert_eq!(document.title, number.to_string());
            assert_eq!(document.markdown, format!("This is page {number}."));
        }
    });
    futures_util::future::join_all(pages).await;
    let idle = extractor.idle();
    assert_eq!(idle.len(), 2);
    assert_works(&extractor).await;
    let mut after = extractor.idle();
    after.sort_unstable();
    let mut before = idle;
    before.sort_unstable();
    assert_eq!(after, before, "a process was replaced without need");
}

#[tokio::test]
async fn deep_nesting_is_read_or_costs_a_process_at_most() {
    let extractor = extractor(1, Duration::from_secs(5));
    for (open, close) in [
        ("<div>", "</div>"),
        ("<b>", "</b>"),
        ("<blockquote>", ""),
        ("<table><tr><td>", ""),
    ] {
        let deep = format!(
            "{}the bottom{}",
            open.repeat(100_000),
            close.repeat(100_000)
        );
        match extractor.extract(page("text/html", deep)).await {
            Ok(document) => assert!(document.markdown.contains("the bottom"), "{open}"),
            Err(error) => assert!(
                matches!(error, ExtractError::TooMuch | ExtractError::TooSlow(_)),
                "{open}: {error}"
            ),
        }
        assert_works(&extractor).await;
    }
}

#[tokio::test]
async fn a_page_that_takes_too_long_costs_its_process() {
    let extractor = extractor(1, Duration::from_secs(2));
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    // Each attribute is compared with all before it.
    let attributes: String = (0..1_000_000)
        .map(|number| format!(" a{number}=1"))
        .collect();
    let started = Instant::now();
    let error = extractor
        .extract(page("text/html", format!("<p{attributes}>text</p>")))
        .await
        .unwrap_err();
    assert_eq!(error, ExtractError::TooSlow(2.0));
    assert!(started.elapsed() < LONG);
    assert_works(&extractor).await;
    assert_ne!(only(&extractor.idle()), before);
}

#[tokio::test]
async fn a_page_that_takes_too_much_memory_costs_its_process() {
    let extractor = extractor(1, LONG);
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    let elements = "<i></i>".repeat(12_000_000);
    let error = extractor
        .extract(page("text/html", elements))
        .await
        .unwrap_err();
    assert_eq!(error, ExtractError::TooMuch);
    assert_works(&extractor).await;
    assert_ne!(only(&extractor.idle()), before);
}

#[tokio::test]
async fn a_killed_process_is_replaced() {
    let extractor = extractor(1, LONG);
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    kill(before);
    let is_dead = || {
        let stat = std::fs::read_to_string(format!("/proc/{before}/stat")).unwrap();
        // The first thread may be dead while another still ends.
        let threads = std::fs::read_dir(format!("/proc/{before}/task")).unwrap();
        stat.contains(") Z ") && threads.count() == 1
    };
    while !is_dead() {
        std::thread::yield_now();
    }
    assert_works(&extractor).await;
    assert_ne!(only(&extractor.idle()), before);
}

#[tokio::test]
async fn a_process_killed_in_the_midst_of_a_page_is_replaced() {
    let extractor = extractor(1, LONG);
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    let attributes: String = (0..1_000_000)
        .map(|number| format!(" a{number}=1"))
        .collect();
    let slow = page("text/html", format!("<p{attributes}>text</p>"));
    let (result, ()) = tokio::join!(extractor.extract(slow), async {
        while !extractor.idle().is_empty() {
            tokio::task::yield_now().await;
        }
        kill(before);
    });
    assert_eq!(result.unwrap_err(), ExtractError::TooMuch);
    assert_works(&extractor).await;
}

#[tokio::test]
async fn a_dropped_page_kills_its_process_and_frees_its_place() {
    let extractor = extractor(1, LONG);
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    let attributes: String = (0..1_000_000)
        .map(|number| format!(" a{number}=1"))
        .collect();
    let slow = page("text/html", format!("<p{attributes}>text</p>"));
    tokio::select! {
        result = extractor.extract(slow) => panic!("{result:?}"),
        () = async {
            while !extractor.idle().is_empty() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert_works(&extractor).await;
    gone(before).await;
}

#[tokio::test]
async fn processes_end_with_their_extractor() {
    let tasks = TaskTracker::new();
    let settings = ExtractorSettings {
        program: env!("CARGO_BIN_EXE_loopwright").into(),
        processes: 2,
        timeout: LONG,
        memory: MEMORY,
    };
    let first = Extractor::new(settings.clone(), &tasks);
    assert_works(&first).await;
    let id = only(&first.idle());
    first.close();
    gone(id).await;
    let second = Extractor::new(settings, &tasks);
    assert_works(&second).await;
    let id = only(&second.idle());
    drop(second);
    gone(id).await;
    tasks.close();
    tokio::time::timeout(LONG, tasks.wait()).await.unwrap();
}

#[tokio::test]
async fn who_waits_too_long_is_told_so() {
    let extractor = extractor(1, Duration::from_millis(500));
    let attributes: String = (0..1_000_000)
        .map(|number| format!(" a{number}=1"))
        .collect();
    let slow = page("text/html", format!("<p{attributes}>text</p>"));
    let results =
        futures_util::future::join_all((0..8).map(|_| extractor.extract(slow.clone()))).await;
    let count = |error: &ExtractError| {
        results
            .iter()
            .filter(|result| result.as_ref() == Err(error))
            .count()
    };
    let (slow, busy) = (
        count(&ExtractError::TooSlow(0.5)),
        count(&ExtractError::Busy),
    );
    assert_eq!(slow + busy, 8, "{results:?}");
    assert!(slow >= 2 && busy >= 1, "{slow} {busy}");
}

#[tokio::test]
async fn a_binary_that_is_no_page_parser_is_an_error_of_the_server() {
    for program in ["/bin/true", "/nonexistent"] {
        let settings = ExtractorSettings {
            program: program.into(),
            processes: 1,
            timeout: LONG,
            memory: MEMORY,
        };
        let extractor = Extractor::new(settings, &TaskTracker::new());
        let error = extractor.extract(good()).await.unwrap_err();
        assert!(
            matches!(error, ExtractError::Unavailable | ExtractError::TooMuch),
            "{program}: {error:?}"
        );
    }
}

#[tokio::test]
async fn bombs_of_other_kinds_are_survived() {
    let extractor = extractor(1, Duration::from_secs(5));
    let laughs: String = (1..20)
        .map(|n| format!("<!ENTITY l{n} \"{}\">", format!("&l{};", n - 1).repeat(10)))
        .collect();
    let entities = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE rss [<!ENTITY l0 \"ha\">{laughs}]><rss version=\"2.0\"><channel><title>&l19;</title></channel></rss>"
    );
    let table = format!(
        "<table>{}</table>",
        "<tr><td rowspan=65000 colspan=1000>x".repeat(20_000)
    );
    let json = "[".repeat(1_000_000);
    let pdf = [b"%PDF-1.7\n".as_slice(), &[0xfe; 100_000]].concat();
    for (content_type, body) in [
        ("application/rss+xml", entities.into_bytes()),
        ("text/html", table.into_bytes()),
        ("application/json", json.into_bytes()),
        ("application/pdf", pdf),
    ] {
        let result = extractor.extract(page(content_type, body)).await;
        if let Ok(Document { markdown, .. }) = &result {
            assert!(markdown.len() <= 2 * 1024 * 1024, "{content_type}");
        } else {
            assert_ne!(result, Err(ExtractError::Unavailable), "{content_type}");
        }
        println!(
            "{content_type}: {:?}",
            result.map(|document| document.markdown.len())
        );
        assert_works(&extractor).await;
    }
}

#[tokio::test]
async fn a_damaged_pdf_is_refused_and_costs_nothing() {
    let extractor = extractor(1, LONG);
    assert_works(&extractor).await;
    let before = only(&extractor.idle());
    let error = extractor
        .extract(page("text/html", "%PDF-1.4\n1 0 obj\n<< /Type /Catalog"))
        .await
        .unwrap_err();
    let problem = if cfg!(feature = "pdf") {
        "it is damaged"
    } else {
        "this server was built without support for PDF"
    };
    assert_eq!(
        error.to_string(),
        format!("this PDF cannot be read: {problem}")
    );
    assert_eq!(only(&extractor.idle()), before);
}

/// What a process of its own costs.
#[tokio::test]
async fn the_cost_of_a_process_of_its_own() {
    let body = Bytes::from(include_str!("pages/news.html"));
    let pages = 50;
    let once = || page("text/html", body.clone());
    let extractor = extractor(1, LONG);
    let expected = extract(&once()).unwrap();
    assert_eq!(expected.kind, DocumentKind::Html);
    assert_eq!(extractor.extract(once()).await.unwrap(), expected);
    let started = Instant::now();
    for _ in 0..pages {
        extract(&once()).unwrap();
    }
    let inside = started.elapsed();
    let started = Instant::now();
    for _ in 0..pages {
        extractor.extract(once()).await.unwrap();
    }
    let outside = started.elapsed();
    println!(
        "{pages} pages in a process of their own took {:.2} times as long as in this one",
        outside.as_secs_f64() / inside.as_secs_f64()
    );
}

fn kill(id: u32) {
    let status = std::process::Command::new("kill")
        .args(["-KILL", &id.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits until there is no such process, not even an unreaped one.
async fn gone(id: u32) {
    let path = format!("/proc/{id}");
    let ended = async {
        while std::path::Path::new(&path).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
}
