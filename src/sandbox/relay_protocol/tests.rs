use proptest::prelude::*;

use super::*;

fn raw(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    frame(&mut frames, kind, &[payload]);
    frames
}

fn reply(head: &str, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(head.len()).unwrap().to_le_bytes();
    raw(b'F', &[&length[..], head.as_bytes(), body].concat())
}

fn read_all(bytes: &[u8]) -> Vec<Result<RelayMessage, Violation>> {
    let mut decoder = RelayDecoder::default();
    decoder.push(bytes);
    std::iter::from_fn(|| decoder.next()).collect()
}

#[test]
fn every_kind_is_read() {
    for (frame, expected) in [
        (
            raw(b'H', br#"{"protocol":1,"directory":"/mnt/data"}"#),
            RelayMessage::Hello("/mnt/data".to_owned()),
        ),
        (
            raw(b'C', b"\0bytes"),
            RelayMessage::Control(b"\0bytes"[..].into()),
        ),
        (raw(b'C', b""), RelayMessage::Closed),
        (
            raw(b'O', b"\x01out"),
            RelayMessage::Output(OutputStream::Stdout, b"out"[..].into()),
        ),
        (
            raw(b'O', b"\x02err"),
            RelayMessage::Output(OutputStream::Stderr, b"err"[..].into()),
        ),
        (
            raw(b'Z', br#"{"signal":11}"#),
            RelayMessage::Ended {
                code: None,
                signal: Some(11),
            },
        ),
        (
            reply(r#"{"id":7,"size":5,"stored":512}"#, b"con"),
            RelayMessage::File(FileReply {
                id: 7,
                problem: None,
                size: 5,
                stored: 512,
                body: Bytes::from_static(b"con"),
            }),
        ),
        (
            reply(r#"{"id":7,"problem":"link"}"#, b""),
            RelayMessage::File(FileReply {
                id: 7,
                problem: Some(FileErrorKind::Link),
                size: 0,
                stored: 0,
                body: Bytes::new(),
            }),
        ),
    ] {
        assert_eq!(read_all(&frame), [Ok(expected)]);
    }
}

#[test]
fn a_problem_of_a_later_relay_is_a_failure() {
    let read = read_all(&reply(r#"{"id":1,"problem":"unheard of"}"#, b""));
    let [Ok(RelayMessage::File(reply))] = &read[..] else {
        panic!("{read:?}");
    };
    assert_eq!(reply.problem, Some(FileErrorKind::Failed));
}

#[test]
fn what_no_relay_of_ours_sends_is_a_violation() {
    for (frame, violation) in [
        (raw(b'?', b""), Violation::UnknownKind),
        (0_u32.to_le_bytes().to_vec(), Violation::Malformed),
        (
            raw(b'H', br#"{"protocol":2,"directory":"/"}"#),
            Violation::Malformed,
        ),
        (
            raw(b'H', br#"{"protocol":1,"directory":"x"}"#),
            Violation::Malformed,
        ),
        (raw(b'O', b""), Violation::Malformed),
        (raw(b'O', b"\x03x"), Violation::Malformed),
        (raw(b'Z', b"{"), Violation::Malformed),
        (raw(b'F', b"\xff"), Violation::Malformed),
        (raw(b'F', b"\xff\xff{}"), Violation::Malformed),
        (reply(r#"{"id":-1}"#, b""), Violation::Malformed),
        (reply(r#"{"id":1,"size":1.5}"#, b""), Violation::Malformed),
        (u32::MAX.to_le_bytes().to_vec(), Violation::TooLong),
    ] {
        assert_eq!(read_all(&frame), [Err(violation)], "{frame:?}");
    }
}

#[test]
fn what_is_told_to_the_interpreter_goes_in_pieces() {
    let code = vec![b'x'; 2 * MAX_CONTENT + 5];
    let read = read_all(&control(&code));
    let pieces: Vec<u8> = read
        .into_iter()
        .flat_map(|piece| match piece {
            Ok(RelayMessage::Control(bytes)) => bytes.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pieces, code);
}

#[test]
fn the_longest_name_fits_into_an_order() {
    let name = "\u{1}".repeat(4095);
    let request = FileRequest::Put {
        name: &name,
        offset: 0,
        content: b"end",
    };
    let frame = request.encode(1);
    let length = usize::from(u16::from_le_bytes([frame[5], frame[6]]));
    let head: serde_json::Value = serde_json::from_slice(&frame[7..7 + length]).unwrap();
    assert_eq!(head["name"], name);
    assert_eq!(&frame[7 + length..], b"end");
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_frames(
        kinds in prop::collection::vec((0_usize..4, prop::collection::vec(any::<u8>(), 1..300)), 0..12),
        sizes in prop::collection::vec(1_usize..97, 1..40),
    ) {
        let mut stream = Vec::new();
        for (kind, payload) in &kinds {
            stream.extend(match kind {
                0 => raw(b'C', payload),
                1 => raw(b'O', &[&[1_u8][..], payload].concat()),
                2 => reply(r#"{"id":1}"#, payload),
                _ => raw(b'x', payload),
            });
        }
        let whole = read_all(&stream);
        prop_assert_eq!(whole.len(), kinds.len());
        let mut decoder = RelayDecoder::default();
        let mut split = Vec::new();
        let mut rest = &stream[..];
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            decoder.push(piece);
            split.extend(std::iter::from_fn(|| decoder.next()));
            rest = after;
        }
        prop_assert_eq!(split, whole);
    }

    #[test]
    fn noise_never_does_more_than_end_the_connection(noise in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = RelayDecoder::default();
        for piece in noise.chunks(7) {
            decoder.push(piece);
            while decoder.next().is_some() {}
        }
    }
}
