//! Who answers in the world: a server on every address, which remembers where it was reached.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The ports on which it listens.
const PORTS: [u16; 12] = [21, 22, 25, 70, 80, 389, 443, 2628, 3128, 6379, 8080, 11211];
/// Reached by nobody but the canary itself.
const SENTINEL: &str = "127.99.99.99";
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection: where to, and the head of the request.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    pub(crate) to: SocketAddr,
    pub(crate) head: String,
}

/// The server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canary {
    contacts: Arc<Mutex<Vec<Contact>>>,
}

impl Canary {
    pub(crate) fn serve() -> Self {
        let canary = Self::default();
        for port in PORTS {
            // IPv4 comes as mapped addresses.
            let listener = TcpListener::bind(("::", port)).expect("the ports are free");
            let canary = canary.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let canary = canary.clone();
                    let to = stream.local_addr().expect("connections have an address");
                    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
                    let number = {
                        let mut contacts = canary.contacts.lock();
                        let head = String::new();
                        contacts.push(Contact { to, head });
                        contacts.len() - 1
                    };
                    std::thread::spawn(move || {
                        let _gone = canary.answer(stream, number);
                    });
                }
            });
        }
        canary
    }

    /// The connections since this was last asked. Whoever made them is gone by now.
    pub(crate) fn contacts(&self) -> Vec<Contact> {
        // Connections are accepted in their order, so after these there is no earlier one.
        let sentinel: IpAddr = SENTINEL.parse().expect("it is an address");
        for port in PORTS {
            TcpStream::connect((sentinel, port)).expect("the canary listens");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut contacts = self.contacts.lock();
            let sentinels = contacts
                .iter()
                .filter(|contact| contact.to.ip() == sentinel);
            if sentinels.count() == PORTS.len() {
                let mut contacts = std::mem::take(&mut *contacts);
                contacts.retain(|contact| contact.to.ip() != sentinel);
                return contacts;
            }
            drop(contacts);
            assert!(Instant::now() < deadline, "the canary is asleep");
            std::thread::yield_now();
        }
    }

    fn answer(&self, mut stream: TcpStream, number: usize) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? > 0 {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        if let Some(contact) = self.contacts.lock().get_mut(number) {
            contact.head = head;
        }
        const TEXT: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/plain\r\n";
        if let Some((status, location)) =
            path.strip_prefix("/to/").and_then(|to| to.split_once('/'))
        {
            let location = decoded(location);
            let head = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\nlocation: "
            );
            stream.write_all(&[head.as_bytes(), &location, b"\r\n\r\n"].concat())?;
            return Ok(());
        }
        match path.as_str() {
            "/robots.txt" => {
                let head = "HTTP/1.1 302 X\r\nconnection: close\r\nlocation: http://10.0.0.5/robots.txt\r\n\r\n";
                stream.write_all(head.as_bytes())
            }
            "/endless" => {
                stream.write_all(format!("{TEXT}\r\n").as_bytes())?;
                loop {
                    stream.write_all(&[b'a'; 65536])?;
                }
            }
            "/endless-head" => {
                stream.write_all(TEXT.as_bytes())?;
                loop {
                    stream.write_all(b"x-more: and more\r\n")?;
                }
            }
            "/drip" => {
                stream.write_all(format!("{TEXT}\r\n").as_bytes())?;
                loop {
                    stream.write_all(b"a")?;
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            }
            "/bomb" => {
                stream.write_all(format!("{TEXT}content-encoding: gzip\r\n\r\n").as_bytes())?;
                stream.write_all(b"\x1f\x8b\x08\0\0\0\0\0\0\x03")?;
                // Stored blocks of a deflate stream, without an end.
                loop {
                    stream.write_all(b"\0\xff\xff\0\0")?;
                    stream.write_all(&[b' '; 0xffff])?;
                }
            }
            _ => stream.write_all(format!("{TEXT}\r\nreached").as_bytes()),
        }
    }
}

/// A path at which the canary redirects to a location, whatever its bytes are.
pub(crate) fn redirect(status: u16, location: &str) -> String {
    let hex: String = location.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("/to/{status}/{hex}")
}

fn decoded(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().collect();
    let pairs = digits.chunks(2).map(|pair| pair.iter().collect::<String>());
    pairs
        .filter_map(|pair| u8::from_str_radix(&pair, 16).ok())
        .collect()
}
