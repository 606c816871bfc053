use std::net::SocketAddr;
use std::pin::Pin;

use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;

const LONG: Duration = Duration::from_secs(60);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// What a server does on one connection.
#[derive(Clone)]
enum Step {
    /// Reads the head of a request.
    Read,
    Write(&'static str),
    /// Waits until the client closes.
    AwaitEnd,
}

/// A server that follows a script for each connection, and then closes it. Reports each finished connection with its requests.
struct Server {
    address: SocketAddr,
    finished: mpsc::UnboundedReceiver<Vec<String>>,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, finished) = mpsc::unbounded_channel();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            for script in scripts {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut requests = Vec::new();
                for step in script {
                    match step {
                        Step::Read => requests.push(read_head(&mut socket).await),
                        Step::Write(text) => socket.write_all(text.as_bytes()).await.unwrap(),
                        Step::AwaitEnd => {
                            while !matches!(socket.read(&mut [0; 256]).await, Ok(0) | Err(_)) {}
                        }
                    }
                }
                drop(socket);
                sender.send(requests).unwrap();
            }
        });
        Self {
            address,
            finished,
            _serving: serving,
        }
    }

    fn request(&self, method: Method, path: &str) -> Request<RequestBody> {
        let uri = format!("http://{}{path}", self.address);
        Request::builder()
            .method(method)
            .uri(uri)
            .body(RequestBody::default())
            .unwrap()
    }

    fn get(&self) -> Request<RequestBody> {
        self.request(Method::GET, "/")
    }

    async fn finished(&mut self) -> Vec<String> {
        self.finished.recv().await.unwrap()
    }
}

/// The head of a request, or what came of it.
async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).await.unwrap_or_default() == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn client() -> DirectClient {
    DirectClient::new(LONG, LONG)
}

async fn text(response: Response<DirectBody>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn reads_and_writes(responses: &[&'static str]) -> Vec<Step> {
    let steps = responses.iter().map(|text| [Step::Read, Step::Write(text)]);
    steps.flatten().collect()
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let mut script = reads_and_writes(&[OK, chunked, OK]);
    script.push(Step::AwaitEnd);
    let mut server = Server::start(vec![script]).await;
    let client = client();
    for _ in 0..3 {
        let request = server.request(Method::POST, "/v1/x?y=z");
        assert_eq!(text(client.send(request).await.unwrap()).await, "ok");
    }
    drop(client);
    let requests = server.finished().await;
    assert_eq!(requests.len(), 3);
    let host = format!("host: {}\r\n", server.address);
    for head in requests {
        assert!(head.starts_with("POST /v1/x?y=z HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&host), "{head}");
    }
}

#[tokio::test]
async fn what_has_no_body_leaves_the_connection_usable() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
    let no_content = "HTTP/1.1 204 No Content\r\n\r\n";
    let unmodified = "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let mut script = reads_and_writes(&[head, no_content, unmodified, interim, head]);
    script.push(Step::AwaitEnd);
    let server = Server::start(vec![script]).await;
    let client = client();
    for (method, status, body) in [
        (Method::HEAD, 200, ""),
        (Method::GET, 204, ""),
        (Method::GET, 304, ""),
        (Method::GET, 200, "ok"),
    ] {
        let response = client.send(server.request(method, "/")).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(text(response).await, body);
    }
    // A body that nobody reads, but that has ended.
    drop(
        client
            .send(server.request(Method::HEAD, "/"))
            .await
            .unwrap(),
    );
    assert_eq!(client.0.idle.lock().count, 1);
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_not_used_again() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let until_end = "HTTP/1.1 200 OK\r\n\r\nok";
    // After the last one the server closes without a word.
    let responses = [closing, old, until_end, OK, OK];
    let scripts = responses.map(|response| reads_and_writes(&[response]));
    let mut server = Server::start(scripts.to_vec()).await;
    let client = client();
    for _ in responses {
        assert_eq!(text(client.send(server.get()).await.unwrap()).await, "ok");
        server.finished().await;
    }
}

#[tokio::test]
async fn what_a_server_sends_unasked_is_no_answer() {
    let two = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad";
    let both_lengths = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nbad";
    for response in [two, both_lengths] {
        let wait = vec![Step::Read, Step::Write(response), Step::AwaitEnd];
        let server = Server::start(vec![wait, reads_and_writes(&[OK])]).await;
        let client = client();
        for _ in 0..2 {
            assert_eq!(text(client.send(server.get()).await.unwrap()).await, "ok");
        }
    }
}

#[tokio::test]
async fn an_answer_before_the_upload_ends_is_an_answer() {
    let refusal = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno";
    let refuse = vec![Step::Read, Step::Write(refusal), Step::AwaitEnd];
    let mut server = Server::start(vec![refuse, reads_and_writes(&[OK])]).await;
    let client = client();
    let never = stream::once(async { Ok::<_, std::io::Error>("part") }).chain(stream::pending());
    let mut request = server.request(Method::POST, "/");
    *request.body_mut() = RequestBody::wrap_stream(never);
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(text(response).await, "no");
    // The connection still expects the rest of the upload.
    server.finished().await;
    assert_eq!(text(client.send(server.get()).await.unwrap()).await, "ok");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_after_what_came() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\nx\r\n",
    ] {
        let server = Server::start(vec![reads_and_writes(&[response])]).await;
        let client = client();
        let mut body = client.send(server.get()).await.unwrap().into_body();
        let mut seen = Vec::new();
        let failed = loop {
            match body.frame().await {
                Some(Ok(frame)) => seen.extend_from_slice(frame.data_ref().unwrap()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        assert!(failed, "{response}");
        assert_eq!(seen, b"ok", "{response}");
        assert!(body.frame().await.is_none());
        drop(body);
        assert_eq!(client.0.idle.lock().count, 0);
    }
}

#[tokio::test]
async fn chunks_that_arrive_together_are_one_frame() {
    let chunks: &'static str = String::leak(format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}0\r\n\r\n",
        "4\r\nabcd\r\n".repeat(500)
    ));
    let server = Server::start(vec![vec![Step::Read, Step::Write(chunks), Step::AwaitEnd]]).await;
    let client = client();
    let mut body = client.send(server.get()).await.unwrap().into_body();
    let (mut frames, mut bytes) = (0, 0);
    while let Some(frame) = body.frame().await {
        frames += 1;
        bytes += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(bytes, 2000);
    assert!(frames <= 20, "{frames} frames");
    assert_eq!(client.0.idle.lock().count, 1);
}

#[tokio::test]
async fn a_response_that_is_dropped_closes_its_connection() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
    let script = vec![Step::Read, Step::Write(begun), Step::AwaitEnd];
    let mut server = Server::start(vec![script.clone(), script]).await;
    let client = client();
    drop(client.send(server.get()).await.unwrap());
    server.finished().await;
    let mut body = client.send(server.get()).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    server.finished().await;
    assert_eq!(client.0.idle.lock().count, 0);
}

#[tokio::test]
async fn unused_connections_are_closed_after_a_while() {
    let mut script = reads_and_writes(&[OK]);
    script.push(Step::AwaitEnd);
    let mut server = Server::start(vec![script.clone(), script]).await;
    let client = DirectClient::new(LONG, Duration::from_millis(20));
    for _ in 0..2 {
        assert_eq!(text(client.send(server.get()).await.unwrap()).await, "ok");
        server.finished().await;
    }
    let idle = client.0.idle.lock();
    assert!(idle.by_origin.is_empty() && idle.count == 0);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_apart() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let request = Request::get(&uri).body(RequestBody::default()).unwrap();
    let failed = client().send(request).await;
    assert!(matches!(failed, Err(ClientError::Connect(_))));
}

#[tokio::test]
async fn a_chunk_wakes_the_reader_once() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap());
    let (next, mut asked) = mpsc::channel::<()>(1);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_head(&mut socket).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).await.unwrap();
        while asked.recv().await.is_some() {
            socket.write_all(b"2\r\nok\r\n").await.unwrap();
        }
    });
    let request = Request::get(&uri).body(RequestBody::default()).unwrap();
    let mut body = client().send(request).await.unwrap().into_body();
    let (chunks, mut polls) = (50, 0);
    for _ in 0..chunks {
        let mut asked = false;
        let frame = poll_fn(|context| {
            polls += 1;
            let frame = Pin::new(&mut body).poll_frame(context);
            if frame.is_pending() && !asked {
                asked = true;
                next.try_send(()).unwrap();
            }
            frame
        });
        assert!(frame.await.unwrap().is_ok());
    }
    // One poll finds nothing and one finds the chunk.
    assert!(polls <= 2 * chunks + 5, "{polls} polls of {chunks} chunks");
}
