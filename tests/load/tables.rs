//! The tables of the report: their names, columns and what their figures mean.

use crate::report::Table;

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

/// The row of loopwright whose sessions find an interpreter ready.
pub(crate) const SPARE: &str = "loopwright, a spare";
/// The row of loopwright whose sessions wait for an interpreter.
pub(crate) const NO_SPARE: &str = "loopwright, no spare";

/// The tables, in the order in which they are printed.
pub(crate) fn tables() -> Vec<Table> {
    let mut tables = proxy_tables();
    tables.extend(code_tables());
    tables.push(Table::new(
        "WEB, A SEARCH THAT READS ITS PAGES: fetch, extract in confined processes, rank",
        "Saved pages of 2 to 36 KB, each on an address of its own, 2 parsing processes. parse alone: the same pages one after the other in this process.\n\
         fetch alone: all at once through the guarded client. min: the least of all runs, where other work on the machine is least in it.",
        &["cores", "pages", "what"],
        &[
            "ms/page p50",
            "ms/page min",
            "p50 ms",
            "÷parse",
            "÷fetch",
            "min ÷parse",
        ],
    ));
    tables.push(Table::new(
        "NEIGHBOURS: requests of one API key on 1 connection, while another key floods the same loopwright on 32",
        "beside: what the flood asks for; its requests with bodies hold 1,000 messages. ÷idle: this row's figure over that beside nothing. The generator and\n\
         the upstream serve the flood too, so that their queues are in the figures.",
        &["cores", "request", "beside"],
        &["req/s", "p50 µs", "p99 µs", "p50 ÷idle", "p99 ÷idle"],
    ));
    tables.push(Table::new(
        "MEMORY OF OPEN STREAMS, each with a few tokens passed and more to come",
        "Proportional set size of the proxy process; kernel socket buffers are not in it.",
        &["streams", "target"],
        &["MiB idle", "MiB open", "KiB/stream", "KiB/stream ÷nginx"],
    ));
    tables
}

fn proxy_tables() -> Vec<Table> {
    vec![
        Table::new(
            "PASS-THROUGH: a request of 0.4 KB, an answer of 0.5 KB in one piece",
            "+p50, +p99: latency beyond the direct connection's. CPU: of the proxy process alone. At 32 connections latency is mostly queueing.",
            &["cores", "conns", "target"],
            &[
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
        ),
        Table::new(
            "LOOP OF 5 TOOL ROUNDS: 6 model calls and 5 webhook calls per request",
            "direct: the client runs the loop itself, with the same 11 calls. own µs/round: time per tool round beyond the same model and webhook\n\
             calls made directly, taken as the slope between requests with 5 rounds and with one. CPU µs/round: the same slope of the proxy's CPU time.",
            &["cores", "conns", "target"],
            &[
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
        ),
        Table::new(
            "A ROUND AGAINST THE LENGTH OF HISTORY: messages of 1 KB, 1 connection",
            "own and CPU as in the loop above; direct's own column is its whole time per round, which holds sending and reading the history.",
            &["cores", "messages", "target"],
            &["own µs/round", "CPU µs/round", "own ÷10 messages"],
        ),
        Table::new(
            "TIME TO FIRST TOKEN, streamed",
            "The model stalls for 4 ms after its first token, so that holding it back shows. The loop is offered a tool and answers without it.",
            &["cores", "conns", "target"],
            &[
                "p50 µs",
                "p99 µs",
                "+p50 µs",
                "+p99 µs",
                "p50 ÷direct",
                "+p50 ÷nginx",
            ],
        ),
        Table::new(
            "STREAMED CHUNKS: one token each, written one by one",
            "CPU: of the proxy process alone. full speed: streams of 2,000 chunks as fast as they are taken, so that several arrive in one read, the more the\n\
             slower the reader gets its turn. 1 ms apart: streams of 200 chunks, each of which travels alone, as a model sends them.",
            &["cores", "conns", "pace", "target"],
            &[
                "chunks/s",
                "CPU s/million",
                "chunks/s ÷direct",
                "CPU ÷nginx",
            ],
        ),
    ]
}

fn code_tables() -> [Table; 4] {
    [
        Table::new(
            "CODE, 5 CELLS OF `1+1` IN A WARM SESSION: 6 model calls and 5 cells per request, 1 connection",
            "direct: the client makes the model calls and runs the cells in a bare interpreter, the same Python program at the same priority without isolation\n\
             and without HTTP. cell µs: one cell there. own µs/cell: time per cell beyond the same model call and cell made directly, as the slope of the\n\
             loop above; least own: the same of the least times of all.",
            &["cores", "target"],
            &[
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
        ),
        Table::new(
            "CODE, START OF AN INTERPRETER",
            "isolated, to ready: the first call of a session without a spare less the next call of that session. min: the least of all, where other work on the\n\
             machine is least in it.",
            &["cores", "target"],
            &["p50 ms", "min ms", "p50 ÷python", "p50 ÷bare"],
        ),
        Table::new(
            "CODE, FIRST CALL OF A SESSION: 2 model calls and a cell of `1+1`",
            "direct: a bare interpreter is started for the call. next: the same request again, in the session that is now warm.",
            &["cores", "target"],
            &["p50 ms", "min ms", "next p50 ms", "+p50 ms", "p50 ÷direct"],
        ),
        Table::new(
            "CODE, A PLOT WITH MATPLOTLIB: 2 model calls and a cell whose figure is captured, in an interpreter that is ready",
            "first: the first of a session, which imports what is not preloaded. next: another in the same session. +: beyond direct's.",
            &["cores", "preload", "target"],
            &[
                "first p50 ms",
                "first min ms",
                "next p50 ms",
                "next min ms",
                "+first ms",
                "+next ms",
                "next ÷direct",
            ],
        ),
    ]
}
