//! Who starts processes: two do, each in its own way.

/// Who has started a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The supervisor of ours.
    Supervisor,
    /// systemd, by a unit of the bundle.
    Systemd,
}
