//! loopwright is an OpenAI-compatible HTTP proxy that finishes the tool loop. A client talks to it as to any OpenAI
//! endpoint; it talks to any OpenAI-compatible model server, and when the model asks for a tool that the server owns
//! it runs the tool, feeds the result back and goes on until the model has an answer.
//!
//! # Life of a chat request
//!
//! [`http::server`] accepts the connection, and `http::edge` gives the request an id and finds out who asks. `http::chat`
//! reads the body and asks [`chat::decode`] what becomes of it:
//!
//! - **Pass-through.** No server-side tool and no extension is involved: `http::forward` sends the very bytes to an
//!   upstream and streams the very bytes back.
//! - **Loop.** The decoder has made an [`agent::turn::TurnRequest`], and [`runs`] starts a task that drives an
//!   [`agent::driver::Run`] with it. The response body reads the lines of that task. The run finds, locks and merges the conversation ([`session::merge`]), repairs it ([`session::repair`]) and asks
//!   [`agent::machine`] what to do: call the model ([`upstream`], whose client decodes every server's dialect into
//!   [`openai::event::ModelEvent`]s), run a batch of tools ([`tools::batch`]), or end. Each finished round is written to the
//!   [`store`]. What happens comes out as a stream of [`agent::event::AgentEvent`]s, which [`chat::encode`] turns into chunks or
//!   into one completion, and [`responses::encode`] into items.
//!
//! # Map, in reading order
//!
//! | module | owns |
//! |---|---|
//! | [`ids`] | identifiers, how they are read and made |
//! | [`quota`] | sharing what is scarce among owners |
//! | [`media`] | media types of files |
//! | [`net`] | outgoing HTTP: building clients, connections to model servers and tools, delays between attempts, bodies within a limit |
//! | [`cluster`] | requests from one replica to another, and the key that they share |
//! | [`polling`] | polling of futures whose parts wake each other |
//! | [`ranking`] | comparing texts with a query |
//! | [`blobs`] | the bytes of files: in a directory or in object storage |
//! | [`parted`] | texts in parts, of which some are read from files as base64 |
//! | [`openai`] | the wire vocabulary: requests, messages, tools, events, usage; unknown fields stay as they came |
//! | [`sse`] | decoding event streams |
//! | [`upstream`] | model servers: what each is, dialects, quirks, time-outs, retries, fail-over, the model list |
//! | [`redact`] | hiding secrets in texts, whole or in pieces: loopwright's own, and tokens of vendors by their shape |
//! | [`rules`] | permission rules as data: compiled, and decided for a call |
//! | [`hooks`] | policy servers that are asked about calls, results, model calls and ends of turns |
//! | [`tools`] | server-side tools: webhooks, code execution, argument repair, schemas, the gate, batches, result caps |
//! | [`sandbox`] | code execution: the launcher, isolation, interpreters, working files; processes that only compute |
//! | [`web`] | search and pages: providers, the guarded client, the reader, ranking within a budget |
//! | [`store`] | what is kept: sessions, rows of files, leases, turns that wait for their client; SQLite, PostgreSQL |
//! | [`session`] | conversations: the join of request and history, repair, export, files; the service over the store |
//! | [`agent`] | the loop: what a turn is given, machine, policies, driver, events |
//! | [`runs`] | running turns: their tasks, event logs, readers, cancellation |
//! | [`chat`] | the dialect of chat completions: bodies of requests into turns, events into bytes |
//! | [`responses`] | the dialect of the Responses API, which reads a request as the chat request that asks for the same |
//! | [`http`] | the edge: routes and their description, keys, pass-through, encoders, errors |
//! | [`metrics`], [`telemetry`], [`shutdown`] | what operators see and signals |
//! | [`traces`] | spans for an OpenTelemetry collector |
//! | [`config`] | flags, environment and file, checked, as the settings types of every part |
//! | [`app`] | wiring, start, end |
//! | [`manual`] | the reference by subject, which `loopwright manual` prints |
//! | [`client`] | asking a running server, for the commands that do so |
//! | [`health`], [`launch`] | the commands that ask whether a server is well, and that start a coding agent against it |
//! | [`approvals`] | the command that shows a person what waits on a running server, and decides |
//! | [`demo`] | the scripted model, the sample tool and the tour |
//!
//! # Invariants
//!
//! - **One loop.** `agent::driver` is the only loop over model calls; both forms of answer are encoders over its events.
//! - **Decisions do not await.** `agent::machine` and the rules that it asks, `agent::policy`, have no I/O, no clock and no
//!   randomness. Whether a single call runs is asked at one place, [`tools::gate`], before the tool's clock starts.
//! - **A turn is a value.** Its state and its open batch can be stored with the session, which has the rest: another process
//!   goes on with it. A call of the model is one type in all its states: `agent::call`.
//! - **A turn belongs to the process.** Its task, which a tracker owns, keeps its own time whoever reads. The last reader
//!   that leaves aborts it unless it is to finish. An aborted turn stores what was done before it ends.
//! - **What can be left out of a build has a stand-in.** `tools/no_mcp.rs`, `http/no_mcp.rs`, `traces/no_otlp.rs` and
//!   `blobs/no_bucket.rs` stand for the modules of the features `mcp`, `otlp` and `s3`. Besides, only `config`, `demo` and `main`
//!   know of them.
//! - **A failed tool is news for the model.** Only `http::error` chooses a status.
//! - **Imports point one way**, and axum, reqwest, child processes and the environment each have their rooms:
//!   `tests/integration/architecture.rs` holds the table.

pub mod agent;
pub mod app;
pub mod approvals;
pub mod blobs;
pub mod chat;
pub mod client;
pub mod cluster;
pub mod config;
pub mod demo;
pub mod health;
pub mod hooks;
pub mod http;
pub mod ids;
pub mod launch;
pub mod manual;
pub mod media;
pub mod metrics;
mod net;
pub mod openai;
pub mod parted;
mod polling;
pub mod quota;
pub mod ranking;
pub mod redact;
pub mod responses;
pub mod rules;
pub mod runs;
pub mod sandbox;
pub mod session;
pub mod shutdown;
pub mod sse;
pub mod store;
pub mod telemetry;
pub mod tools;
pub mod traces;
pub mod upstream;
pub mod web;
