//! A client that asks and then does not read.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::app::TestApp;
use super::within;

/// The receive buffer of such a client: the smallest that the kernel gives.
const RECEIVE_BUFFER: u32 = 2048;

/// A connection with a request on it, of whose answer nothing is read.
#[derive(Debug)]
pub(crate) struct StalledClient(TcpStream);

impl StalledClient {
    /// Asks for a streamed chat answer.
    pub(crate) async fn streaming(app: &TestApp, body: &Value) -> Self {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let body = body.to_string();
        let address = app.origin().trim_start_matches("http://");
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        let mut connection = socket.connect(address.parse().unwrap()).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(body.as_bytes()).await.unwrap();
        Self(connection)
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
