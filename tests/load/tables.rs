//! The tables of the report: their names, columns and what their figures mean.

use crate::report::Layout;

/// The row of the direct connection.
pub(crate) const DIRECT: &str = "direct";
/// The row of nginx.
pub(crate) const NGINX: &str = "nginx";
/// The row of loopwright without tools.
pub(crate) const PASS: &str = "loopwright";
/// The row of loopwright with tools, sessions in memory.
pub(crate) const LOOP: &str = "loopwright loop";
/// The row of loopwright with tools, sessions in SQLite.
pub(crate) const LOOP_SQLITE: &str = "loopwright loop, sqlite";
/// The row of loopwright with tools, sessions in PostgreSQL.
pub(crate) const LOOP_POSTGRES: &str = "loopwright loop, postgres";
/// The rows of loopwright with a tool whose call is stored before it runs.
pub(crate) const STORED_FIRST: &str = "loopwright loop, call stored first";
pub(crate) const STORED_FIRST_SQLITE: &str = "loopwright loop, call stored first, sqlite";
pub(crate) const STORED_FIRST_POSTGRES: &str = "loopwright loop, call stored first, postgres";
/// The row of responses in the loop.
pub(crate) const RESPONSES: &str = "loopwright loop, /v1/responses";
/// The row of responses without tools, from a server of chat completions.
pub(crate) const RESPONSES_NO_TOOLS: &str = "loopwright, /v1/responses, no tools";

/// The row of loopwright whose sessions find an interpreter ready.
pub(crate) const SPARE: &str = "loopwright, a spare";
/// The row of loopwright whose sessions wait for an interpreter.
pub(crate) const NO_SPARE: &str = "loopwright, no spare";

/// The pace of streams whose chunks are written as fast as they are taken.
pub(crate) const FULL_SPEED: &str = "full speed";
/// The pace of streams whose chunks travel alone.
pub(crate) const PACED: &str = "1 ms apart";

pub(crate) static PASS_THROUGH: Layout = Layout {
    title: "PASS-THROUGH: a request of 0.4 KB, an answer of 0.5 KB in one piece",
    note: "+p50, +p99: latency beyond the direct connection's. At 32 connections latency is mostly queueing, and CPU time depends on who outruns the generator.",
    labels: &["cores", "conns", "target"],
    columns: &[
        "req/s",
        "CPU s/10k",
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "+p99 µs",
        "req/s ÷direct",
        "p50 ÷direct",
        "req/s ÷nginx",
        "CPU ÷nginx",
        "+p50 ÷nginx",
    ],
};

pub(crate) static FIXED_RATE: Layout = Layout {
    title: "PASS-THROUGH AT A FIXED RATE: the same request, evenly spaced over 32 connections, whether or not those before are answered",
    note: "cores: apart = the proxy on a core of its own. CPU: of the proxy process; script: of the scripted upstream. Latency counts from the moment at which the\n\
           request is due.",
    labels: &["cores", "rate", "target"],
    columns: &[
        "req/s",
        "CPU s/10k",
        "script CPU s/10k",
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "+p99 µs",
        "CPU ÷nginx",
    ],
};

pub(crate) static SHORT_STREAM: Layout = Layout {
    title: "SHORT STREAM: a stream of one token, 1 connection",
    note: "loopwright loop is offered a tool, which the model does not call; /v1/responses without tools reads the same stream of chat completions. own µs: beyond the\n\
           streamed pass-through of loopwright.",
    labels: &["cores", "target"],
    columns: &[
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "own µs",
        "CPU µs",
        "CPU ÷nginx",
        "p50 ÷direct",
    ],
};

pub(crate) static LOOP_ROUNDS: Layout = Layout {
    title: "LOOP OF 5 TOOL ROUNDS: 6 model calls and 5 webhook calls per request",
    note: "direct: the client runs the loop itself, with the same 11 calls. own µs/round: time per tool round beyond the same model and webhook calls made directly,\n\
           taken as the slope between requests with 5 rounds and with one. CPU µs/round: the same slope of the proxy's CPU time. The tool is idempotent, so that a\n\
           round is one write; call stored first: it is not, and the message with the call is written before it runs.",
    labels: &["cores", "conns", "target"],
    columns: &[
        "req/s",
        "CPU s/10k",
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "+p99 µs",
        "own µs/round",
        "CPU µs/round",
        "req/s ÷direct",
        "p50 ÷direct",
    ],
};

pub(crate) static FIRST_TOKEN: Layout = Layout {
    title: "TIME TO FIRST TOKEN, streamed",
    note: "The model stalls for 4 ms after its first token, so that holding it back shows. The loop is offered a tool and answers without it.",
    labels: &["cores", "conns", "target"],
    columns: &[
        "p50 µs",
        "p99 µs",
        "+p50 µs",
        "+p99 µs",
        "p50 ÷direct",
        "+p50 ÷nginx",
    ],
};

pub(crate) static CHUNKS: Layout = Layout {
    title: "STREAMED CHUNKS: one token each, written one by one",
    note: "CPU: of the proxy process alone. full speed: streams of 2,000 chunks as fast as they are taken, so that several arrive in one read, the more the slower the\n\
           reader gets its turn. 1 ms apart: streams of 200 chunks, each of which travels alone, as a model sends them. ÷chat: over the loop of chat completions.",
    labels: &["cores", "conns", "pace", "target"],
    columns: &[
        "chunks/s",
        "CPU s/million",
        "chunks/s ÷direct",
        "CPU ÷nginx",
        "CPU ÷chat",
    ],
};

pub(crate) static CELLS: Layout = Layout {
    title: "CODE, 5 CELLS OF `1+1` IN A WARM SESSION: 6 model calls and 5 cells per request, 1 connection",
    note: "direct: the client makes the model calls and runs the cells in a bare interpreter, the same Python program at the same priority without isolation\n\
           and without HTTP. cell µs: one cell there. own µs/cell: time per cell beyond the same model call and cell made directly, as the slope of the\n\
           loop above; least own: the same of the least times of all.",
    labels: &["cores", "target"],
    columns: &[
        "p50 µs",
        "p99 µs",
        "+p99 µs",
        "µs/cell",
        "own µs/cell",
        "least own",
        "CPU µs/cell",
        "cell µs",
        "p50 ÷direct",
    ],
};

pub(crate) static STARTS: Layout = Layout {
    title: "CODE, START OF AN INTERPRETER",
    note: "isolated, to ready: the first call of a session without a spare less the next call of that session. min: the least of all, where other work on the\n\
           machine is least in it.",
    labels: &["cores", "target"],
    columns: &["p50 ms", "min ms", "p50 ÷python", "p50 ÷bare"],
};

pub(crate) static FIRST_CALLS: Layout = Layout {
    title: "CODE, FIRST CALL OF A SESSION: 2 model calls and a cell of `1+1`",
    note: "direct: a bare interpreter is started for the call. next: the same request again, in the session that is now warm.",
    labels: &["cores", "target"],
    columns: &["p50 ms", "min ms", "next p50 ms", "+p50 ms", "p50 ÷direct"],
};

pub(crate) static PLOTS: Layout = Layout {
    title: "CODE, A PLOT WITH MATPLOTLIB: 2 model calls and a cell whose figure is captured, in an interpreter that is ready",
    note: "first: the first of a session, which imports what is not preloaded. next: another in the same session. +: beyond direct's.",
    labels: &["cores", "preload", "target"],
    columns: &[
        "first p50 ms",
        "first min ms",
        "next p50 ms",
        "next min ms",
        "+first ms",
        "+next ms",
        "next ÷direct",
    ],
};

pub(crate) static PAGES: Layout = Layout {
    title: "WEB, A SEARCH THAT READS ITS PAGES: fetch, extract in confined processes, rank",
    note: "Saved pages of 2 to 36 KB, each on an address of its own, 2 parsing processes. parse alone: the same pages one after the other in this process.\n\
           fetch alone: all at once through the guarded client. min: the least of all runs, where other work on the machine is least in it.",
    labels: &["cores", "pages", "what"],
    columns: &[
        "ms/page p50",
        "ms/page min",
        "p50 ms",
        "÷parse",
        "÷fetch",
        "min ÷parse",
    ],
};

pub(crate) static MCP: Layout = Layout {
    title: "MCP: one call after another of a tool that echoes its argument",
    note: "direct: made with the SDK alone. loopwright: made as the loop makes it, through the batch, its gate and its time limits. Both in this process.\n\
           stdio: the server is a process. HTTP: it is a thread of this process. ÷direct: this row's figure over that of the SDK alone.",
    labels: &["cores", "transport", "bytes"],
    columns: &[
        "direct p50 µs",
        "p50 µs",
        "+p50 µs",
        "p50 ÷direct",
        "p99 ÷direct",
    ],
};

pub(crate) static NEIGHBOURS: Layout = Layout {
    title: "NEIGHBOURS: requests of one API key on 1 connection, while another key floods the same loopwright on 32",
    note: "beside: what the flood asks for; its requests with bodies hold 1,000 messages. ÷idle: this row's figure over that beside nothing. The generator and\n\
           the upstream serve the flood too, so that their queues are in the figures.",
    labels: &["cores", "request", "beside"],
    columns: &["req/s", "p50 µs", "p99 µs", "p50 ÷idle", "p99 ÷idle"],
};

pub(crate) static OPEN_STREAMS: Layout = Layout {
    title: "MEMORY OF OPEN STREAMS, each with a few tokens passed and more to come",
    note: "Proportional set size of the proxy process; kernel socket buffers are not in it.",
    labels: &["streams", "target"],
    columns: &["MiB idle", "MiB open", "KiB/stream", "KiB/stream ÷nginx"],
};

pub(crate) static ROUND_GROWTH: Layout = Layout {
    title: "GROWTH OF A ROUND: with the rounds before it, and with the history in tokens (4 bytes each), 1 connection",
    note: "own and CPU as in the loop of 5 rounds; direct's own column is its whole time per round, which holds sending and reading the history again.\n\
           ÷first: over the first row of the target with as few rounds, or as little history.",
    labels: &["cores", "rounds", "tokens", "target"],
    columns: &["own µs/round", "CPU µs/round", "own ÷first", "CPU ÷first"],
};

pub(crate) static STORE_GROWTH: Layout = Layout {
    title: "GROWTH OF THE STORE: a turn of one round, 1 connection, SQLite",
    note: "Each stored session has 22 messages of 1 KB, the known one 20. ÷empty: over the same turn in an empty store.",
    labels: &["turn", "sessions"],
    columns: &["MiB", "p50 µs", "CPU µs", "p50 ÷empty", "CPU ÷empty"],
};

pub(crate) static HELD_RUNS: Layout = Layout {
    title: "RUNS AT ONE TIME, in the loop, each to its end",
    note: "opened s: until the last has its first token. KiB/run: of the proxy process.",
    labels: &["runs"],
    columns: &["opened s", "ended s", "errors", "KiB/run"],
};

pub(crate) static SOAK: Layout = Layout {
    title: "SOAK: random faults of the model server and of the tool, clients that reset, leave or read slowly",
    note: "Medians of a quarter of the time each. idle: before the first request, and once all have ended.",
    labels: &["time"],
    columns: &[
        "req/s",
        "MiB",
        "descriptors",
        "threads",
        "runs",
        "open streams",
    ],
};

pub(crate) static AIMS: Layout = Layout {
    title: "AIMS: at most this much, the proxy on one core",
    note: "own client: the aim with a client that parses answers itself.",
    labels: &["figure"],
    columns: &["measured", "aim", "own client"],
};
