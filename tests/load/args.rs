//! The options of the load test.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::proxies::Store;

/// Measures loopwright beside a direct connection and nginx.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Short slices: rough figures in well under a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these scenarios.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<Scenario>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Compare with an earlier report, which `--json` has printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// Requests per second of the scenario with a fixed rate, 10,000 by default, and of the soak, 400.
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u32>,
    /// How long the soak takes.
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    pub(crate) minutes: f64,
    /// Where the sessions of the loop are stored, if not each in turn.
    #[arg(long, value_enum, env = "LOAD_STORE")]
    pub(crate) store: Option<Store>,
    /// The loopwright binary, if not the one just built.
    #[arg(long, env = "LOAD_LOOPWRIGHT", value_name = "PATH", default_value = env!("CARGO_BIN_EXE_loopwright"))]
    pub(crate) loopwright: PathBuf,
    /// A further argument for `loopwright serve`; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) proxy_arg: Vec<String>,
    /// The nginx program.
    #[arg(long, env = "LOAD_NGINX", value_name = "PATH", default_value = "nginx")]
    pub(crate) nginx: PathBuf,
    /// The Python of code execution; plots are measured where it has matplotlib.
    #[arg(
        long,
        env = "LOOPWRIGHT_TEST_CODE_PYTHON",
        value_name = "PATH",
        default_value = "python3"
    )]
    pub(crate) code_python: PathBuf,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Plain requests, as many as are carried.
    PassThrough,
    /// Plain requests at a fixed rate.
    FixedRate,
    /// The loop of 5 rounds.
    Loop,
    /// Streams of one token.
    ShortStream,
    /// Time to the first token.
    FirstToken,
    /// Streamed chunks.
    Chunks,
    /// Code execution.
    Code,
    /// A search that reads its pages.
    Web,
    /// Calls of MCP tools.
    Mcp,
    /// One key beside another that floods.
    Neighbours,
    /// Memory of open streams.
    Memory,
    /// How costs grow with rounds, history, sessions and runs.
    Growth,
    /// A long time with faults; only where it is named.
    Soak,
}

impl Scenario {
    /// Its name in the report of progress.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::PassThrough => "pass-through",
            Self::Loop => "loop",
            Self::FixedRate => "fixed rate",
            Self::ShortStream => "short stream",
            Self::FirstToken => "time to first token",
            Self::Chunks => "streamed chunks",
            Self::Code => "code",
            Self::Web => "web",
            Self::Mcp => "MCP",
            Self::Neighbours => "neighbours",
            Self::Memory => "memory of open streams",
            Self::Growth => "growth",
            Self::Soak => "soak",
        }
    }
}

impl Args {
    /// Whether this scenario is measured.
    pub(crate) fn wants(&self, scenario: Scenario) -> bool {
        (self.only.is_empty() && scenario != Scenario::Soak) || self.only.contains(&scenario)
    }
}
