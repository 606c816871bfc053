use futures_util::stream;
use http::header::CONTENT_LENGTH;

use super::*;

/// A body of `count` pieces of `bytes` bytes, one after each `pause`.
fn slow(count: usize, bytes: usize, pause: Duration) -> Body {
    let pieces = stream::unfold(0, move |sent| async move {
        if sent == count {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some((
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; bytes])),
            sent + 1,
        ))
    });
    Body::from_stream(pieces)
}

fn declared(length: usize) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_LENGTH, length.into())])
}

async fn read_from(body: Body, headers: &HeaderMap) -> Result<usize, ApiError> {
    let settings = Settings {
        body_timeout: Duration::from_secs(30),
        max_body_bytes: 1 << 22,
        ..Settings::for_tests()
    };
    let mut memory = MemoryBudget::new(1 << 30, false).empty(&Owner::everybody());
    let read = read_whole(body, headers, &settings, &mut memory).await;
    read.map(|bytes| bytes.len())
}

#[tokio::test(start_paused = true)]
async fn a_body_has_a_total_time_by_its_length() {
    let second = Duration::from_secs(1);
    // One byte each second is never silent. It has 30 seconds and what its declared length allows.
    for (length, most) in [(None, 30), (Some(640 * 1024), 40)] {
        let headers = length.map_or_else(HeaderMap::new, declared);
        let began = Instant::now();
        let error = read_from(slow(1 << 20, 1, second), &headers).await;
        assert_eq!(error.unwrap_err().status(), 408);
        assert_eq!(began.elapsed().as_secs(), most, "{length:?}");
    }
    // At the least rate a body arrives however long it is.
    let rate = usize::try_from(MIN_BODY_RATE).unwrap();
    for headers in [HeaderMap::new(), declared(60 * rate)] {
        let read = read_from(slow(60, rate, second), &headers).await;
        assert_eq!(read.unwrap(), 60 * rate);
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_falls_silent_is_refused() {
    let began = Instant::now();
    let silent = slow(2, 1, Duration::from_secs(31));
    let error = read_from(silent, &declared(1 << 22)).await.unwrap_err();
    assert_eq!(error.status(), 408);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn bodies_that_arrive_count_and_the_next_is_refused() {
    let budget = MemoryBudget::new(1 << 20, false);
    let owner = Owner::everybody();
    let settings = Settings {
        max_body_bytes: 1 << 22,
        ..Settings::for_tests()
    };
    let headers = HeaderMap::new();
    let read = async |memory: &mut ReservedMemory| {
        let body = slow(10, 100_000, Duration::ZERO);
        read_whole(body, &headers, &settings, memory).await
    };
    let (mut first, mut second) = (budget.empty(&owner), budget.empty(&owner));
    assert_eq!(read(&mut first).await.unwrap().len(), 1_000_000);
    let refused = read(&mut second).await.unwrap_err();
    assert_eq!(refused.status(), 503);
    drop(first);
    assert!(read(&mut second).await.is_ok());
}
