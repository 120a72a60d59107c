//! Who may call whom, as the rows of the table say.

use crate::process::Process;
use crate::process_row::Caller;
use crate::table::PROCESSES;

/// A permitted call: who, to whom, which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Who calls.
    pub caller: Caller,
    /// Who serves.
    pub server: Process,
    /// What.
    pub service: &'static str,
}

/// All permitted calls.
pub fn edges() -> impl Iterator<Item = Edge> {
    PROCESSES.iter().flat_map(|row| {
        row.services.iter().flat_map(move |service| {
            service.callers.iter().map(move |&caller| Edge {
                caller,
                server: row.process,
                service: service.service,
            })
        })
    })
}
