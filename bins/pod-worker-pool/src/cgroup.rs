//! cgroups of pods: how they are called, and making, finding and removing them.
//!
//! Only the levels above containers are ours: `kubepods`, one for each QoS class, one
//! for each pod. Those of containers belong to the runtime.

mod naming;

pub use naming::CgroupNaming;
