//! The one table of processes: who runs as whom, with which capabilities, who opens
//! what, who serves what to whom, and how each is restarted.
//!
//! The supervisor starts from it, every server checks its callers against it,
//! and the units, the README and `docs/` are tested against it. What does not
//! live here: how a rule is enforced (`ipc`, `confine`, `supervisor`).

mod allocator;
mod edge;
mod identity;
mod namespace;
mod need;
mod place;
mod process;
mod process_row;
mod row_parts;
mod sight;
mod table;

pub use allocator::ALLOCATOR_VARIABLES;
pub use edge::{Edge, edges};
pub use identity::{Account, Identities, IdentityError, MIN_UID_BASE, STATIC_IDS};
pub use namespace::Namespace;
pub use need::Need;
pub use place::{Access, Place, PlaceRow};
pub use process::{MACHINE_LACKS_FILE_NAME, Process, SOCKET_BACKLOG, UnknownProcess};
pub use process_row::{Budget, Caller, Capability, ProcessRow, ServiceRow};
pub use sight::{Hidden, Sight};
pub use table::{PROCESSES, row};

#[cfg(test)]
mod tests;
