//! node-api: what the node serves over the network, as a kubelet does at :10250 and :10248.
//!
//! ```text
//!  client -- TLS --> server --> access ---> api-gateway (reviews)
//!                       |
//!                       +--> logs, sessions, statistics --> pod-worker-pool
//!                       +--> pods --> sync-loop, status-syncer
//!                       +--> sessions -- bytes --> the runtime's one-time address
//! ```
//!
//! - `route`: which request is which (pure);
//! - [`ServerNetwork`]: the seam to the network;
//! - `newcomers`: connections that have shown no credentials yet, and their bound;
//! - `certificate`, `tls`: what is shown to clients, and how theirs are checked;
//! - `user`, `verdicts`, `access`: who asks, and whether it may;
//! - `node`: what the other processes are asked for;
//! - `log_query`, `logs`; `session_query`, `sessions`, `relay`; `pods`; `usage`, `summary`,
//!   `metrics`; `health`: the answers;
//! - `activity`: when bytes last went over a connection;
//! - `server`: connections, and who answers which request.
//!
//! It holds the serving key and nothing else: no credential of the node, no pod.

mod access;
mod activity;
mod answer;
mod certificate;
mod health;
mod log_query;
mod logs;
mod metrics;
mod network;
mod newcomers;
mod node;
mod pods;
mod query;
mod relay;
mod route;
mod server;
mod session_query;
mod sessions;
mod shell;
mod summary;
mod tls;
mod usage;
mod user;
mod verdicts;

pub use network::{Accepted, Listen, ServerNetwork};
pub use shell::{Error, Opened, open, open_on, serve};
