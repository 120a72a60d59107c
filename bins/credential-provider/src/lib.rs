//! credential-provider: asks programs of the node for credentials of registries, in the
//! protocol of a kubelet's credential provider plugins (KEP 2133).
//!
//! - `exchange`: what a program is asked and what it may answer (pure);
//! - `cache`: which answers still count for which images (pure);
//! - `programs`: which programs are asked for an image, each once at a time;
//! - `run`: running one of them, within bounds;
//! - `server`: the service; [`serve`] is the process around it.
//!
//! It is a process of its own so that pod-worker-pool, which is root, starts no programs.
//! It runs only where the node's configuration names any, as a user without privileges,
//! and so do the programs.

mod cache;
mod exchange;
mod programs;
mod run;
mod server;
mod shell;

pub use shell::{Error, serve};
