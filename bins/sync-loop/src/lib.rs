//! sync-loop: the dispatcher. It learns from config-sourcer which pods should
//! run, from pleg and prober that something happened, and hands each pod's newest
//! state to its worker in pod-worker-pool; it decides admission and housekeeping.
//!
//! - [`core`]: all decisions, without I/O, time or tasks;
//! - `shell`: streams in, calls out, the saved admission records, the server.

pub mod core;
