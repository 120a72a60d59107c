//! Confinement: starting a process with less than its starter has and taking
//! leave of it, sealing a running one, reading from outside what confines it,
//! receiving what it hands over, and asking which groups a caller is in.
//!
//! The supervisor uses [`spawn`], [`reap`] and [`reduce_to`], each process calls [`seal`]
//! in its own `main`, credential-provider starts the node's programs by
//! [`follow_starter`], and [`Confinement::of`] serves the status table. Which
//! process gets what is data in `topology`; nothing is decided here.
//!
//! This is the only crate with `unsafe`: what runs between fork and exec, and
//! the few system calls that no safe wrapper offers.
#![expect(
    unsafe_code,
    reason = "the code between fork and exec, and calls without a fitting safe wrapper"
)]

mod capabilities;
mod child;
mod datagram;
mod files;
mod inspect;
mod launch;
mod memory;
mod namespaces;
mod peer_groups;
mod reap;
mod seal;
mod status_text;
mod system_calls;
mod view;

pub use capabilities::{CapabilitySet, UnknownCapability, reduce_to};
pub use datagram::{Carried, Datagram, discard_datagram, peek_datagram, refuse_descriptors};
pub use files::{Files, Hold, landlock_lacks, landlock_version};
pub use inspect::{Confinement, InspectError};
pub use launch::{
    FIRST_LISTENER_DESCRIPTOR, Launch, MAX_CGROUPS, MAX_LISTENERS, SpawnError, follow_starter,
    spawn,
};
pub use memory::give_back_memory;
pub use namespaces::OwnNamespace;
pub use peer_groups::peer_groups;
pub use reap::{ChildEnding, find_ended_child, reap};
pub use seal::{Permitted, SealError, seal};
pub use system_calls::Calls;
pub use view::View;
