//! Bodies: what kinds are read, how much of them, and how they may be compressed.

use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name_before_its_body() {
    let fast = Duration::from_millis(1);
    let kind = |kind: &str| endless(head(200, &[("content-type", kind)]), b"\0binary", fast);
    let server = Server::start([
        ("/image", kind("image/png")),
        ("/video", kind("video/mp4")),
        ("/zip", kind("application/zip")),
        ("/odd", kind("application/x-odd")),
        ("/octets", kind("application/octet-stream")),
        ("/none", endless(head(200, &[]), b"\x7fELF\0", fast)),
        ("/text", answer(200, &[], b"just text")),
        (
            "/pdf",
            answer(
                200,
                &[("content-type", "application/octet-stream")],
                b"%PDF-1.7 \0",
            ),
        ),
    ])
    .await;
    for (path, name) in [
        ("/image", "an image"),
        ("/video", "a video"),
        ("/zip", "an archive"),
        ("/odd", "'application/x-odd'"),
        ("/octets", "not text"),
        ("/none", "not text"),
    ] {
        let error = refusal(&server, path).await;
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(&get(&server, "/text").await.unwrap().body[..], b"just text");
    assert_eq!(
        &get(&server, "/pdf").await.unwrap().body[..],
        b"%PDF-1.7 \0"
    );
}

#[tokio::test]
async fn long_text_is_cut_and_long_binary_formats_are_refused() {
    let fast = Duration::ZERO;
    let limit = local_settings().max_bytes;
    let long = vec![b'a'; limit + 1];
    let server = Server::start([
        ("/exact", answer(200, &[TEXT], &long[1..])),
        ("/more", answer(200, &[TEXT], &long)),
        ("/endless", endless(head(200, &[TEXT]), &long, fast)),
        (
            "/pdf",
            answer(200, &[("content-type", "application/pdf")], &long),
        ),
        (
            "/endless.pdf",
            endless(
                head(200, &[("content-type", "application/pdf")]),
                &long,
                fast,
            ),
        ),
    ])
    .await;
    for (path, cut) in [("/exact", false), ("/more", true), ("/endless", true)] {
        let fetched = get(&server, path).await.unwrap();
        assert_eq!((fetched.body.len(), fetched.cut), (limit, cut), "{path}");
    }
    for path in ["/pdf", "/endless.pdf"] {
        let error = refusal(&server, path).await;
        assert!(error.contains("a PDF of more than 100000 bytes"), "{error}");
    }
}

async fn compressed(encoding: &str, body: &[u8]) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    macro_rules! with {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(body).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match encoding {
        "gzip" => with!(GzipEncoder),
        "deflate" => with!(ZlibEncoder),
        "br" => with!(BrotliEncoder),
        "zstd" => with!(ZstdEncoder),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn compressed_pages_are_read_within_the_same_bounds() {
    let limit = local_settings().max_bytes;
    let bomb = vec![0x20; limit * 100];
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let headers = [TEXT, ("content-encoding", encoding)];
        let hello = compressed(encoding, b"hello").await;
        let small_bomb = compressed(encoding, &bomb).await;
        assert!(small_bomb.len() < limit, "{encoding}");
        let server = Server::start([
            ("/hello", answer(200, &headers, &hello)),
            ("/bomb", answer(200, &headers, &small_bomb)),
            ("/broken", answer(200, &headers, &hello[..hello.len() - 3])),
            (
                "/garbage",
                answer(200, &headers, b"this is not compressed at all"),
            ),
            (
                "/bomb.pdf",
                answer(
                    200,
                    &[("content-type", "application/pdf"), headers[1]],
                    &small_bomb,
                ),
            ),
        ])
        .await;
        assert_eq!(
            &get(&server, "/hello").await.unwrap().body[..],
            b"hello",
            "{encoding}"
        );
        let fetched = get(&server, "/bomb").await.unwrap();
        assert_eq!(
            (fetched.body.len(), fetched.cut),
            (limit, true),
            "{encoding}"
        );
        assert!(
            refusal(&server, "/bomb.pdf").await.contains("too large"),
            "{encoding}"
        );
        for path in ["/broken", "/garbage"] {
            let error = refusal(&server, path).await;
            assert!(
                error.contains("cannot be read or that broke off"),
                "{encoding} {path}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn bytes_as_sent_are_limited_even_without_content() {
    // Empty blocks of a deflate stream, which yield no text.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    let mut start = head(200, &[TEXT, ("content-encoding", "gzip")]);
    start.extend(gzip);
    let empty_blocks = b"\0\0\0\xff\xff".repeat(1000);
    let server = Server::start([("/", endless(start, &empty_blocks, Duration::ZERO))]).await;
    let fetched = get(&server, "/").await.unwrap();
    assert_eq!((fetched.body.len(), fetched.cut), (0, true));
}

#[tokio::test]
async fn odd_encodings_are_refused() {
    let gzip = compressed("gzip", b"hello").await;
    let twice = compressed("gzip", &gzip).await;
    let server = Server::start([
        (
            "/twice",
            answer(200, &[TEXT, ("content-encoding", "gzip, gzip")], &twice),
        ),
        (
            "/lines",
            answer(
                200,
                &[
                    TEXT,
                    ("content-encoding", "gzip"),
                    ("content-encoding", "br"),
                ],
                &twice,
            ),
        ),
        (
            "/odd",
            answer(200, &[TEXT, ("content-encoding", "compress")], &gzip),
        ),
        (
            "/same",
            answer(200, &[TEXT, ("content-encoding", "identity, GZIP")], &gzip),
        ),
    ])
    .await;
    for path in ["/twice", "/lines", "/odd"] {
        let error = refusal(&server, path).await;
        assert!(error.contains("compressed in a way"), "{error}");
    }
    assert_eq!(&get(&server, "/same").await.unwrap().body[..], b"hello");
}

#[tokio::test]
async fn codings_are_read_as_the_web_sends_them() {
    let gzip = compressed("gzip", b"one, ").await;
    let second = compressed("gzip", b"two").await;
    let zlib = compressed("deflate", b"raw").await;
    let raw = &zlib[2..zlib.len() - 4];
    let members = [&gzip[..], &second[..]].concat();
    let padded = [&members[..], &[0; 512]].concat();
    let with_empty = [&gzip, &compressed("gzip", b"").await, &second[..]].concat();
    let frames = [
        compressed("zstd", b"one, ").await,
        compressed("zstd", b"two").await,
    ]
    .concat();
    for (encoding, body, expected) in [
        ("UTF-8", b"plain".as_slice(), "plain"),
        ("none", b"plain", "plain"),
        ("binary", b"plain", "plain"),
        ("iso-8859-1", b"plain", "plain"),
        ("text/html", b"plain", "plain"),
        ("", b"plain", "plain"),
        ("utf-8, gzip", &second, "two"),
        ("gzip", &members, "one, two"),
        ("x-gzip", &padded, "one, two"),
        ("gzip", &with_empty, "one, two"),
        ("deflate", raw, "raw"),
        ("deflate", &zlib, "raw"),
        ("zstd", &frames, "one, two"),
    ] {
        let headers = [TEXT, ("content-encoding", encoding)];
        let server = Server::start([("/", answer(200, &headers, body))]).await;
        let fetched = get(&server, "/").await.unwrap();
        assert_eq!(&fetched.body[..], expected.as_bytes(), "{encoding}");
        assert!(!fetched.cut, "{encoding}");
    }
    // A member that breaks off is not taken for the end.
    let broken = &members[..members.len() - 3];
    let headers = [TEXT, ("content-encoding", "gzip")];
    let server = Server::start([("/", answer(200, &headers, broken))]).await;
    assert!(refusal(&server, "/").await.contains("broke off"));
}
