//! sync-loop: the dispatcher. It learns from config-sourcer which pods should
//! run, from pleg and prober that something happened, and hands each pod's newest
//! state to its worker in pod-worker-pool; it decides admission and housekeeping.
//!
//! - `dispatcher`: all decisions, without I/O, time or tasks;
//! - `shell`: the loop around it, what comes in, what goes out, what is saved;
//! - `server`: what it shows of itself; `peers`: which peers it reaches;
//! - [`open`] and [`serve`]: the process.

mod dispatcher;
mod peers;
mod server;
mod shell;

pub use shell::{Error, Opened, open, serve};
