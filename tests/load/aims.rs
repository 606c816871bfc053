//! The aims, and whether the figures meet them.

use crate::{
    report::{ANY, Layout, Report},
    tables::{
        AIMS, CHUNKS, FIXED_RATE, FULL_SPEED, LOOP, LOOP_POSTGRES, LOOP_ROUNDS, LOOP_SQLITE,
        OPEN_STREAMS, PACED, PASS, PASS_THROUGH, RESPONSES_NO_TOOLS, SHORT_STREAM, STORED_FIRST,
        STORED_FIRST_SQLITE,
    },
};

/// A figure of another table that is to be at most this.
struct Aim {
    name: &'static str,
    figure: (&'static Layout, &'static [&'static str], &'static str),
    most: f64,
    /// The same with a client that parses answers itself.
    own_client: Option<f64>,
}

const fn aim(
    name: &'static str,
    figure: (&'static Layout, &'static [&'static str], &'static str),
    most: f64,
    own_client: Option<f64>,
) -> Aim {
    Aim {
        name,
        figure,
        most,
        own_client,
    }
}

static ALL: [Aim; 15] = [
    aim(
        "CPU per request passed through at a fixed rate, × nginx",
        (&FIXED_RATE, &["apart", ANY, PASS], "CPU ÷nginx"),
        1.5,
        None,
    ),
    aim(
        "added latency of a request passed through, p50, µs",
        (&PASS_THROUGH, &["one", "1", PASS], "+p50 µs"),
        16.0,
        None,
    ),
    aim(
        "CPU per chunk passed through, full speed, × nginx",
        (&CHUNKS, &["one", "32", FULL_SPEED, PASS], "CPU ÷nginx"),
        1.25,
        Some(1.1),
    ),
    aim(
        "CPU per chunk passed through, 1 ms apart, × nginx",
        (&CHUNKS, &["one", "32", PACED, PASS], "CPU ÷nginx"),
        1.25,
        Some(1.1),
    ),
    aim(
        "CPU per chunk through the loop, full speed, × nginx",
        (&CHUNKS, &["one", "32", FULL_SPEED, LOOP], "CPU ÷nginx"),
        1.8,
        Some(1.6),
    ),
    aim(
        "CPU per chunk through the loop, 1 ms apart, × nginx",
        (&CHUNKS, &["one", "32", PACED, LOOP], "CPU ÷nginx"),
        1.8,
        Some(1.6),
    ),
    aim(
        "memory of an open stream passed through, KiB",
        (&OPEN_STREAMS, &[ANY, PASS], "KiB/stream"),
        40.0,
        Some(28.0),
    ),
    aim(
        "memory of an open stream in the loop, KiB",
        (&OPEN_STREAMS, &[ANY, LOOP], "KiB/stream"),
        55.0,
        Some(36.0),
    ),
    aim(
        "own time of a round with one write, memory, µs",
        (&LOOP_ROUNDS, &["one", "1", LOOP], "own µs/round"),
        60.0,
        None,
    ),
    aim(
        "own time of a round with one write, SQLite, µs",
        (&LOOP_ROUNDS, &["one", "1", LOOP_SQLITE], "own µs/round"),
        80.0,
        None,
    ),
    aim(
        "own time of a round with one write, PostgreSQL, µs",
        (&LOOP_ROUNDS, &["one", "1", LOOP_POSTGRES], "own µs/round"),
        250.0,
        None,
    ),
    aim(
        "own time of a round whose call is stored first, memory, µs",
        (&LOOP_ROUNDS, &["one", "1", STORED_FIRST], "own µs/round"),
        75.0,
        None,
    ),
    aim(
        "own time of a round whose call is stored first, SQLite, µs",
        (
            &LOOP_ROUNDS,
            &["one", "1", STORED_FIRST_SQLITE],
            "own µs/round",
        ),
        110.0,
        None,
    ),
    aim(
        "own time of a response without tools, µs",
        (&SHORT_STREAM, &["one", RESPONSES_NO_TOOLS], "own µs"),
        100.0,
        None,
    ),
    aim(
        "tool offered, not called, beyond a streamed pass-through, µs",
        (&SHORT_STREAM, &["one", LOOP], "own µs"),
        40.0,
        None,
    ),
];

/// Holds what was measured against the aims.
pub(crate) fn judge(report: &mut Report) {
    for aim in &ALL {
        let (layout, labels, column) = aim.figure;
        let Some(figure) = report.figure(layout, labels, column) else {
            continue;
        };
        let verdict = if figure <= aim.most { "met" } else { "missed" };
        report.judged_row(
            &AIMS,
            (&[aim.name], &[Some(figure), Some(aim.most), aim.own_client]),
            verdict,
        );
    }
}
