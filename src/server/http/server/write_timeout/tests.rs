use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket};

use super::super::activity::Activities;
use super::super::socket;
use super::*;

const LIMIT: Duration = Duration::from_secs(60);
/// The bytes that lie between the two ends before a write is pending.
const BUFFER: usize = 16 * 1024;

fn activity() -> Arc<Activity> {
    Activities::default().add().activity().clone()
}

fn pair() -> (WriteTimeout<DuplexStream>, DuplexStream) {
    let (stream, peer) = duplex(BUFFER);
    let stream = WriteTimeout::new(stream, LIMIT, InlineRunSlot::default(), activity());
    (stream, peer)
}

/// Reads `bytes` in portions, one portion after each `pause`.
async fn read_slowly(mut peer: DuplexStream, bytes: usize, portion: usize, pause: Duration) {
    let mut data = vec![0; portion];
    for _ in 0..bytes / portion {
        sleep(pause).await;
        peer.read_exact(&mut data).await.unwrap();
    }
    // Keeps the connection open without reading.
    std::future::pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_fails_the_write_after_the_limit() {
    let (mut stream, _peer) = pair();
    let began = Instant::now();
    let error = stream.write_all(&[0; BUFFER + 1]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_too_little_fails_the_write_after_the_limit() {
    let (mut stream, peer) = pair();
    let portion = 1024;
    let reading = read_slowly(peer, 1 << 20, portion, Duration::from_secs(1));
    let began = Instant::now();
    let writing = stream.write_all(&[0; 1 << 20]);
    let error = tokio::select! {
        () = reading => unreachable!(),
        written = writing => written.unwrap_err(),
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_slow_peer_that_takes_enough_gets_everything() {
    let (mut stream, peer) = pair();
    // 64 KiB in 56 seconds.
    let (bytes, pause) = (1 << 20, Duration::from_secs(7));
    let reading = read_slowly(peer, bytes, 8 * 1024, pause);
    let data = vec![0; bytes];
    let writing = stream.write_all(&data);
    let began = Instant::now();
    tokio::select! {
        () = reading => unreachable!(),
        written = writing => written.unwrap(),
    }
    assert!(began.elapsed() > LIMIT * 10, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_time_does_not_run_while_no_data_waits() {
    let (mut stream, mut peer) = pair();
    let (data, mut read) = (vec![0; 2 * BUFFER], vec![0; 2 * BUFFER]);
    for _ in 0..3 {
        // The write is pending for most of the limit, and then there is a longer silence.
        let writing = async {
            stream.write_all(&data).await.unwrap();
            stream.flush().await.unwrap();
        };
        let reading = async {
            sleep(LIMIT - Duration::from_secs(1)).await;
            peer.read_exact(&mut read).await.unwrap();
        };
        tokio::join!(writing, reading);
        sleep(LIMIT * 2).await;
    }
    stream.write_all(&data[..BUFFER]).await.unwrap();
}

#[tokio::test]
async fn a_socket_stays_vectored_and_fails_when_its_peer_stops_reading() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(2048).unwrap();
    let connecting = client.connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    let (_client, (accepted, _)) = (client.unwrap(), accepted.unwrap());
    let limit = Duration::from_millis(200);
    socket::configure(&accepted, limit).unwrap();
    let mut stream = WriteTimeout::new(accepted, limit, InlineRunSlot::default(), activity());
    assert!(stream.is_write_vectored());
    let part = vec![0; 4096];
    let parts = [IoSlice::new(&part), IoSlice::new(&part)];
    let first = stream.write_vectored(&parts).await.unwrap();
    assert_eq!(first, 2 * part.len(), "both parts go out in one write");
    let mut sent = first;
    let error = loop {
        match stream.write_vectored(&parts).await {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
        assert!(sent < 1 << 20, "nothing stopped the writer");
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
