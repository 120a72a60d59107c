//! Node policy: what a pod may be on this node, whoever asks for it.
//!
//! The owner of the node writes a TOML file. It gives each source of pods one of the
//! Pod Security Standards as its level, and grants to named pods or images what goes
//! beyond their level. This crate parses the file ([`Policy`]), lists what a pod asks
//! for ([`demands_of`]), and decides for each such [`Demand`] whether a pod may have it
//! ([`Permit::check`]). A [`Refusal`] names the rule and the grant that would allow it.
//!
//! [`Demand`] and [`Permit`] do not know the types of Kubernetes. So the pool can check
//! the requests that it sends to the container runtime against the same permit, without
//! the pod.
//!
//! Some things no level gives, `privileged` included, and no grant of a directory above
//! them: see [`Protected`]. The caller fills that in from the node's configuration.
//!
//! Everything here is a pure function of its arguments. What does not live here: reading
//! the file, watching it, and telling anybody about a decision (pod-worker-pool and the
//! `bulkhead` command line do).

mod demand;
mod grant;
mod grants_for;
mod level;
mod opening;
mod path;
mod permit;
mod pod_demands;
mod policy;
mod protected;
mod range;
mod selector;
mod smallest;
mod subject;

pub use demand::{Demand, SeLinuxOption};
pub use grant::{Grant, HostPathGrant};
pub use grants_for::grants_for;
pub use level::Level;
pub use opening::{HostPathRules, PathAccess, check_opened_volume, volume_access};
pub use path::{NodePath, NodePathError};
pub use permit::{Denial, Permit, Refusal, Rule};
pub use pod_demands::{PodDemand, demands_of};
pub use policy::{Levels, MAX_GRANTS, MAX_POLICY_BYTES, Mode, Policy, PolicyError, RunningPods};
pub use protected::Protected;
pub use range::Range;
pub use selector::{ImagePrefix, PodGlob};
pub use subject::Subject;
