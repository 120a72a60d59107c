//! The client's side of sessions as Kubernetes has them: commands in containers
//! ([`command()`]) and connections to ports of pods ([`forward()`]), over a connection to
//! whoever serves the session.
//!
//! The streams of a session share one connection by SPDY/3.1: of the protocols that runtimes
//! and API servers speak it is the only one with an end for each stream, which a command that
//! reads to the end of its input needs.
//!
//! - `upgrade`: from HTTP to SPDY; `frame`: the frames; `spdy`: reading and writing them;
//! - `command`, `forward`: what the streams of each kind of session are;
//! - `outcome`: how a command ended.
//!
//! Not here: finding out where a session is served, and terminals.

mod command;
mod error;
mod forward;
mod frame;
mod outcome;
mod spdy;
mod upgrade;

pub use command::{Event, Input, Output, Size, Streams, command};
pub use error::Error;
pub use forward::forward;
pub use outcome::Outcome;

#[cfg(test)]
mod tests;
