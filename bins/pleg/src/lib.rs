//! The pod lifecycle event generator: lists what the runtime has, from time to time
//! and whenever the runtime rings, and tells which pods have to be looked at.
//!
//! - `relist`: which events follow from two lists (pure);
//! - `schedule`: when to list what (pure);
//! - `health`: whether listing works (pure);
//! - [`serve`]: the process around them.
//!
//! It may list and nothing else, and holds nothing that could not be found out
//! again. Its events are doorbells: who misses one notices a little later.

mod health;
mod relist;
mod schedule;
mod server;
mod shell;
mod wire;

pub use shell::{Error, serve};
