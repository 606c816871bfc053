use proptest::prelude::*;

use super::picture::tests::png_of;
use super::*;

fn raw(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 1).unwrap();
    [&length.to_le_bytes()[..], &[kind], payload].concat()
}

fn picture_frame(head: &str, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(head.len()).unwrap().to_le_bytes();
    raw(b'I', &[&length[..], head.as_bytes(), bytes].concat())
}

fn all(decoder: &mut WorkerDecoder) -> Vec<Result<WorkerMessage, Violation>> {
    std::iter::from_fn(|| decoder.next()).collect()
}

fn read(bytes: &[u8]) -> Vec<Result<WorkerMessage, Violation>> {
    let mut decoder = WorkerDecoder::new(&InterpreterLimits::default());
    decoder.push(bytes);
    all(&mut decoder)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_kind_is_read() {
    let png = png_of(5, 5);
    let image = Image {
        mime_type: "image/png",
        bytes: Bytes::from(png.clone()),
    };
    for (frame, expected) in [
        (
            raw(b'R', br#"{"protocol":1,"python":"3.11.7","pid":7}"#),
            WorkerMessage::Ready {
                python: "3.11.7".to_owned(),
                preload_failed: vec![],
            },
        ),
        (
            raw(
                b'R',
                br#"{"protocol":1,"python":"3","pid":7,"preload_failed":["numpy"]}"#,
            ),
            WorkerMessage::Ready {
                python: "3".to_owned(),
                preload_failed: vec!["numpy".to_owned()],
            },
        ),
        (
            picture_frame(
                r#"{"id":4294967295,"mime":"image/png","kind":"frame"}"#,
                &png,
            ),
            WorkerMessage::Image {
                id: u32::MAX,
                frame: true,
                image: image.clone(),
            },
        ),
        (
            picture_frame(r#"{"id":1,"mime":"image/png","kind":"image"}"#, &png),
            WorkerMessage::Image {
                id: 1,
                frame: false,
                image,
            },
        ),
        (
            picture_frame(
                r#"{"id":1,"mime":"image/svg+xml","kind":"image"}"#,
                b"<svg/>",
            ),
            WorkerMessage::BadImage {
                id: 1,
                why: "is neither PNG nor JPEG",
            },
        ),
        (
            raw(b'T', br#"{"id":1,"text":"a\u0000\u001b[1mb"}"#),
            WorkerMessage::Text {
                id: 1,
                text: "ab".to_owned(),
            },
        ),
        (
            raw(b'V', br#"{"id":1,"text":"5","type":"int"}"#),
            WorkerMessage::Value {
                id: 1,
                value: Value {
                    text: "5".to_owned(),
                    kind: "int".to_owned(),
                },
            },
        ),
        (
            raw(
                b'X',
                br#"{"id":1,"name":"E","message":"m","traceback":"t"}"#,
            ),
            WorkerMessage::Error {
                id: 1,
                error: CellError {
                    name: "E".to_owned(),
                    message: "m".to_owned(),
                    traceback: "t".to_owned(),
                },
            },
        ),
        (
            raw(b'N', br#"{"id":1,"text":"n"}"#),
            WorkerMessage::Notice {
                id: 1,
                text: "n".to_owned(),
            },
        ),
        (
            raw(b'D', br#"{"id":1,"elapsed_ms":1.5}"#),
            WorkerMessage::Done { id: 1 },
        ),
    ] {
        assert_eq!(read(&frame), [Ok(expected)]);
    }
}

#[test]
fn a_frame_that_is_wrong_is_told_and_the_next_is_read() {
    let id = r#"{"id":1,"mime":"image/png","kind":"image"}"#;
    for (frame, expected) in [
        (vec![0; 4], Violation::Malformed),
        (raw(b'Z', b"{}"), Violation::UnknownKind),
        (raw(b'E', b"{}"), Violation::UnknownKind),
        (raw(b'D', b""), Violation::Malformed),
        (raw(b'D', b"{}"), Violation::Malformed),
        (raw(b'D', br#"{"id":-1}"#), Violation::Malformed),
        (raw(b'D', br#"{"id":4294967296}"#), Violation::Malformed),
        (raw(b'D', br#"{"id":1.0}"#), Violation::Malformed),
        (raw(b'D', br#"{"id":"1"}"#), Violation::Malformed),
        (raw(b'D', br#"{"id":1}{"id":2}"#), Violation::Malformed),
        (raw(b'D', br#"{"id":1,"id":2}"#), Violation::Malformed),
        (raw(b'D', &b"[".repeat(100_000)), Violation::Malformed),
        (
            raw(b'T', b"{\"id\":1,\"text\":\"\xff\"}"),
            Violation::Malformed,
        ),
        (raw(b'T', br#"{"id":1,"text":null}"#), Violation::Malformed),
        (
            raw(b'R', br#"{"protocol":2,"python":"3"}"#),
            Violation::Malformed,
        ),
        (raw(b'I', b"\x01"), Violation::Malformed),
        (raw(b'I', b"\xff\xff{}"), Violation::Malformed),
        (
            picture_frame(&id.replace("image\"}", "movie\"}"), &png_of(1, 1)),
            Violation::Malformed,
        ),
    ] {
        let bytes = [frame, raw(b'D', br#"{"id":9}"#)].concat();
        assert_eq!(
            read(&bytes),
            [Err(expected), Ok(WorkerMessage::Done { id: 9 })],
            "{:?}",
            String::from_utf8_lossy(&bytes)
        );
    }
}

#[test]
fn a_forged_length_ends_the_connection() {
    for length in [u32::MAX, u32::try_from(MAX_FRAME_BYTES).unwrap() + 1] {
        let mut decoder = WorkerDecoder::new(&InterpreterLimits::default());
        decoder.push(&raw(b'D', br#"{"id":1}"#));
        decoder.push(&length.to_le_bytes());
        assert_eq!(
            all(&mut decoder),
            [Ok(WorkerMessage::Done { id: 1 }), Err(Violation::TooLong)]
        );
        for _ in 0..4 {
            decoder.push(&[b'D'; 1 << 20]);
            assert_eq!(decoder.next(), None);
        }
        assert_eq!(decoder.frames.capacity(), 0);
    }
}

#[test]
fn the_longest_frame_is_held_and_then_given_back() {
    let mut decoder = WorkerDecoder::new(&InterpreterLimits::default());
    let head = format!("{{\"id\":1,\"text\":\"{}", "x".repeat(MAX_FRAME_BYTES - 19));
    let frame = raw(b'T', format!("{head}\"}}").as_bytes());
    assert_eq!(frame.len(), MAX_FRAME_BYTES + 4);
    for piece in frame.chunks(65_536) {
        assert_eq!(decoder.next(), None);
        decoder.push(piece);
        assert!(decoder.frames.capacity() <= 2 * MAX_FRAME_BYTES + 65_536);
    }
    let Some(Ok(WorkerMessage::Text { text, .. })) = decoder.next() else {
        panic!("no text");
    };
    assert!(text.len() < InterpreterLimits::default().output_kept + 16);
    assert!(decoder.frames.capacity() <= split::MAX_IDLE_BUFFER);
}

#[test]
fn texts_and_images_are_bounded_by_the_limits() {
    let limits = InterpreterLimits {
        value: 4,
        output_kept: 6,
        image_bytes: 60,
        ..InterpreterLimits::default()
    };
    let mut decoder = WorkerDecoder::new(&limits);
    let long = "y".repeat(5000);
    let modules = vec![long.clone(); 500];
    decoder.push(&raw(
        b'V',
        json!({"id": 1, "text": long, "type": long})
            .to_string()
            .as_bytes(),
    ));
    decoder.push(&raw(
        b'T',
        json!({"id": 1, "text": long}).to_string().as_bytes(),
    ));
    decoder.push(&raw(
        b'N',
        json!({"id": 1, "text": long}).to_string().as_bytes(),
    ));
    let ready = json!({"protocol": 1, "python": long, "preload_failed": modules});
    decoder.push(&raw(b'R', ready.to_string().as_bytes()));
    decoder.push(&picture_frame(
        r#"{"id":1,"mime":"image/png","kind":"image"}"#,
        &png_of(1, 1),
    ));
    let name = format!("{} […]", "y".repeat(MAX_NOTICE));
    assert_eq!(
        all(&mut decoder),
        [
            Ok(WorkerMessage::Value {
                id: 1,
                value: Value {
                    text: "yyyy […]".to_owned(),
                    kind: name.clone(),
                },
            }),
            Ok(WorkerMessage::Text {
                id: 1,
                text: "yyyyyy […]".to_owned(),
            }),
            Ok(WorkerMessage::Notice {
                id: 1,
                text: format!("{} […]", "y".repeat(MAX_NOTICE)),
            }),
            Ok(WorkerMessage::Ready {
                python: name.clone(),
                preload_failed: vec![name; MAX_MODULES],
            }),
            Ok(WorkerMessage::BadImage {
                id: 1,
                why: "is too large",
            }),
        ]
    );
}

#[test]
fn frames_for_the_interpreter_are_whole() {
    let frame = exec(7, "print('\u{e9}\\n')", &InterpreterLimits::default());
    let (length, rest) = frame.split_first_chunk().unwrap();
    assert_eq!(u32::from_le_bytes(*length) as usize, rest.len());
    assert_eq!(rest[0], b'E');
    let payload: serde_json::Value = serde_json::from_slice(&rest[1..]).unwrap();
    assert_eq!(
        payload,
        json!({"id": 7, "code": "print('é\\n')", "max_value": 16_384, "max_images": 10, "max_image_bytes": 4_194_304})
    );
    assert_eq!(reset(3), b"\x09\0\0\0R{\"id\":3}");
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let frame = prop_oneof![
        4 => (any::<u32>(), "\\PC{0,40}").prop_map(|(id, text)| raw(
            b'T',
            json!({"id": id, "text": text}).to_string().as_bytes()
        )),
        2 => any::<u32>().prop_map(|id| raw(b'D', json!({"id": id}).to_string().as_bytes())),
        2 => (1_u32..20).prop_map(|side| picture_frame(
            r#"{"id":1,"mime":"image/png","kind":"image"}"#,
            &png_of(side, side)
        )),
        2 => (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, payload)| raw(kind, &payload)),
        1 => Just(vec![0; 4]),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(frame, 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_frames(bytes in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10), late in any::<bool>()) {
        let at_once = read(&bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut decoder = WorkerDecoder::new(&InterpreterLimits::default());
        let mut split = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            decoder.push(&bytes[from..cut]);
            from = cut;
            if !late {
                split.extend(all(&mut decoder));
            }
        }
        split.extend(all(&mut decoder));
        prop_assert_eq!(split, at_once);
    }

    #[test]
    fn no_bytes_panic_or_fill_memory(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = WorkerDecoder::new(&InterpreterLimits::default());
        for piece in bytes.chunks(37) {
            decoder.push(piece);
            let _ = all(&mut decoder);
            prop_assert!(decoder.frames.capacity() <= MAX_FRAME_BYTES);
        }
    }
}
