//! A client that asks and then does not read.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::app::TestApp;
use super::within;

/// The receive buffer of such a client: the smallest that the kernel gives.
const RECEIVE_BUFFER: u32 = 2048;
/// Most requests of one that repeats them, whose answers are more than the buffers of a connection take.
const MOST_REPEATED: usize = 20_000;
/// How long a server that reads nothing has stopped reading.
const NOTHING_READ: Duration = Duration::from_millis(500);

/// A connection with a request on it, of whose answer nothing is read.
#[derive(Debug)]
pub(crate) struct StalledClient(TcpStream);

impl StalledClient {
    /// Asks for a streamed chat answer.
    pub(crate) async fn streaming(app: &TestApp, body: &Value) -> Self {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let body = body.to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        let mut client = Self::connect(app).await;
        client.0.write_all(head.as_bytes()).await.unwrap();
        client.0.write_all(body.as_bytes()).await.unwrap();
        client
    }

    /// Sends the same request again and again, until the server reads no more.
    pub(crate) async fn repeating(app: &TestApp, request: &str) -> Self {
        let client = Self::connect(app).await;
        let requests = request.repeat(MOST_REPEATED);
        let mut rest = requests.as_bytes();
        while !rest.is_empty() {
            let sent = tokio::time::timeout(NOTHING_READ, client.0.writable()).await;
            if sent.is_err() {
                break;
            }
            match client.0.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_closed) => break,
            }
        }
        client
    }

    /// Asks for what a path has.
    pub(crate) async fn getting(app: &TestApp, path: &str, key: &str) -> Self {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        let mut client = Self::connect(app).await;
        client.0.write_all(head.as_bytes()).await.unwrap();
        client
    }

    async fn connect(app: &TestApp) -> Self {
        let address = app.origin().trim_start_matches("http://");
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        Self(socket.connect(address.parse().unwrap()).await.unwrap())
    }

    /// Reads until a text has come, and no further.
    pub(crate) async fn until(mut self, text: &str) -> Self {
        let mut read = String::new();
        while !read.contains(text) {
            let mut part = [0; 64];
            let count = within("the beginning of the answer", self.0.read(&mut part)).await;
            let count = count.ok().filter(|count| *count > 0);
            let count = count.unwrap_or_else(|| panic!("the answer ended early: {read}"));
            read.push_str(&String::from_utf8_lossy(&part[..count]));
        }
        self
    }

    /// Reads what still comes, however the connection ends.
    pub(crate) async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end like any other here.
        let _ended = within("the end of a connection", self.0.read_to_end(&mut bytes)).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads the next few bytes; `None` once the connection has ended.
    pub(crate) async fn sip(&mut self) -> Option<usize> {
        let mut bytes = [0; 256];
        let count = within("a few bytes", self.0.read(&mut bytes)).await;
        count.ok().filter(|count| *count > 0)
    }
}
