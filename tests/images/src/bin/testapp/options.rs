//! What the program is told to do.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Serves what it is told to serve, then ends when asked to. Without any
/// server and without --exit-after it waits for SIGTERM.
#[derive(Parser, Debug, Clone)]
pub(crate) struct Options {
    /// Serve HTTP on this port: /healthz, /exit, /env, /hostname and others
    #[arg(long, value_name = "PORT")]
    pub(crate) http: Option<u16>,
    /// Accept TCP connections on this port and answer each with a line
    #[arg(long, value_name = "PORT")]
    pub(crate) tcp: Option<u16>,
    /// Serve the gRPC health protocol on this port
    #[arg(long, value_name = "PORT")]
    pub(crate) grpc: Option<u16>,
    /// Address to listen on (default: all, IPv6 and IPv4)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<IpAddr>,
    /// Be unhealthy for this long after the start
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub(crate) healthy_after_ms: u64,
    /// Be unhealthy from this long after the start on
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) unhealthy_after_ms: Option<u64>,
    /// While this file exists its content is the health status code
    #[arg(long, value_name = "FILE")]
    pub(crate) health_file: Option<PathBuf>,
    /// Wait this long before opening any port
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub(crate) serve_after_ms: u64,
    /// End by itself after this long
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) exit_after_ms: Option<u64>,
    /// Exit code of an ending by itself
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    pub(crate) exit_code: u8,
    /// What to do on SIGTERM
    #[arg(long, value_enum, default_value_t = OnTerm::Exit)]
    pub(crate) on_term: OnTerm,
    /// Time between SIGTERM and the exit
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pub(crate) term_delay_ms: u64,
    /// Exit code after SIGTERM
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    pub(crate) term_code: u8,
    /// Append a line with the time for each start, SIGTERM and ending
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// Words that begin each journal line, e.g. the container's name
    #[arg(long, value_name = "TEXT", default_value = "testapp")]
    pub(crate) name: String,
    /// Write a file before anything else; FILE=TEXT, may be given often
    #[arg(long, value_name = "FILE=TEXT")]
    pub(crate) write: Vec<String>,
    /// Print this line at the start, may be given often
    #[arg(long, value_name = "TEXT")]
    pub(crate) print: Vec<String>,
    /// Print a numbered line again and again with this time between
    #[arg(long, value_name = "MILLISECONDS")]
    pub(crate) print_every_ms: Option<u64>,
    /// Touch this much memory and keep it
    #[arg(long, value_name = "MIB")]
    pub(crate) allocate_mib: Option<usize>,
}

/// A workload for tests.
///
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTerm {
    /// Exit with --term-code after --term-delay-ms
    Exit,
    /// Note it in the journal and carry on
    Ignore,
}
