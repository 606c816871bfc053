//! A service that answers by a script.

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::hooks::settings::{HookServiceSettings, HookSettings, Settings};
use crate::hooks::{HookMeter, HookPoint, Hooks, OnFailure};

/// What the service does with a request.
#[derive(Clone)]
pub(super) enum Act {
    Json(Value),
    Raw(&'static str),
    Status(u16),
    Hang,
    Long(usize),
}

/// A service on a port of its own. Each path is a hook, which acts as scripted.
pub(super) struct Service {
    origin: String,
    pub(super) seen: Arc<Mutex<Vec<Value>>>,
    _server: JoinSet<()>,
}

/// Counts failures.
#[derive(Debug, Default)]
pub(super) struct Failures(pub(super) Mutex<Vec<(&'static str, &'static str)>>);

impl HookMeter for Arc<Failures> {
    fn hook_asked(&self, event: &'static str, _: Duration, failure: Option<&'static str>) {
        self.0.lock().extend(failure.map(|reason| (event, reason)));
    }
}

impl Service {
    pub(super) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut server = JoinSet::new();
        let noted = seen.clone();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, acts.clone(), noted.clone()));
            }
        });
        Self {
            origin,
            seen,
            _server: server,
        }
    }

    /// The settings of a hook that acts like this one of the acts.
    pub(super) fn settings(&self, index: usize, on_failure: OnFailure) -> HookServiceSettings {
        HookServiceSettings {
            url: format!("{}/{index}?token=t0p", self.origin)
                .parse()
                .unwrap(),
            headers: HeaderMap::new(),
            secret: None,
            timeout: Duration::from_millis(300),
            max_answer_bytes: 10_000,
            on_failure,
        }
    }

    /// One hook for each act, in order.
    pub(super) fn hooks(&self, on: HookPoint, on_failure: &[OnFailure]) -> (Hooks, Arc<Failures>) {
        let hook = |(index, on_failure): (usize, &OnFailure)| HookSettings {
            on,
            tools: None,
            service: self.settings(index, *on_failure),
        };
        let settings = Settings {
            hooks: on_failure.iter().enumerate().map(hook).collect(),
            ..Settings::default()
        };
        let meter = Arc::new(Failures::default());
        (Hooks::new(&settings, meter.clone()).unwrap(), meter)
    }
}

async fn answer(mut stream: TcpStream, acts: Vec<Act>, seen: Arc<Mutex<Vec<Value>>>) {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    let body = loop {
        let length = stream.read(&mut buffer).await.unwrap_or(0);
        if length == 0 {
            return;
        }
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
        if let Some(Ok(body)) = body.map(serde_json::from_str::<Value>) {
            break body;
        }
    };
    seen.lock().push(body);
    let index = text.as_bytes()["POST /".len()] - b'0';
    let body = match acts[usize::from(index)].clone() {
        Act::Json(value) => value.to_string(),
        Act::Raw(text) => text.to_owned(),
        Act::Long(length) => format!("{{\"a\":\"{}\"}}", "x".repeat(length)),
        Act::Status(_) => String::new(),
        Act::Hang => std::future::pending().await,
    };
    let status = match acts[usize::from(index)] {
        Act::Status(status) => status,
        _ => 200,
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _closed = stream.write_all((head + &body).as_bytes()).await;
}
