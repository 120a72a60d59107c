//! The last gate in front of the container runtime: [`Gate`] implements
//! [`cri::RuntimeChanges`] around another one and judges each RunPodSandbox,
//! CreateContainer, StartContainer, UpdateContainerResources and ExecSync before it
//! goes through. What a request asks for is read from the request alone and checked
//! against the permit of the one pod that it is for, so that no mistake in what makes
//! requests (translation of pods, plans, volumes) passes it.
//!
//! - `request`: what a request asks for, and whether it is about its pod alone;
//! - `places`: which paths and cgroups are a pod's own;
//! - [`MASKED`], [`READ_ONLY`]: what it wants to see hidden and protected in a container;
//! - [`HeldPods`]: the pods that requests may be made for, and their permits;
//! - `commands`: which commands may be run in a container by us; `sessions`: those of people;
//! - `gate`: the decorator; `facts`: what it asks the runtime, and `known`: what it need
//!   not ask twice; `alarm`: what it logs.
//!
//! Not here: the policy itself (`node-policy`), and judging pods when they are taken.

mod alarm;
mod commands;
mod denial;
mod facts;
mod gate;
mod held;
mod known;
mod places;
mod process_user;
mod request;
mod sessions;
mod user_ids;

pub use commands::CommandDigest;
pub use gate::{Gate, LOOK_BEFORE_COMMAND};
pub use held::{HeldPod, HeldPods, HeldVolume, HeldVolumes, Standing};
pub use places::Places;
pub use request::{MASKED, READ_ONLY};

#[cfg(test)]
mod testing;
