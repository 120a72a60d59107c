//! Which containers are not probed since there are too many of them.

use std::collections::BTreeSet;

use crate::ledger::MAX_INSTANCES;

/// The containers that the pool has named and for which there was no room, and whether
/// that was told since there was some.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    containers: BTreeSet<String>,
    is_told: bool,
}

impl LeftOut {
    /// There is no room for this one.
    pub(crate) fn add(&mut self, container_id: String) {
        if self.containers.len() < MAX_INSTANCES {
            self.containers.insert(container_id);
        }
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::error!("too many containers with probes; the newest are not probed");
        }
    }

    /// This one is probed.
    pub(crate) fn is_probed(&mut self, container_id: &str) {
        self.containers.remove(container_id);
    }

    /// This one is gone, which may have made room.
    pub(crate) fn is_gone(&mut self, container_id: &str) {
        self.containers.remove(container_id);
        self.is_told = false;
    }

    /// What the status line ends with; empty where all are probed.
    pub(crate) fn status_line(&self) -> String {
        match self.containers.len() {
            0 => String::new(),
            count => format!(", {count} not probed: too many"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_that_are_there_and_not_probed_count() {
        let mut left_out = LeftOut::default();
        for id in ["a", "b", "a"] {
            left_out.add(id.to_owned());
        }
        assert_eq!(left_out.status_line(), ", 2 not probed: too many");
        left_out.is_probed("a");
        left_out.is_gone("another");
        assert_eq!(left_out.status_line(), ", 1 not probed: too many");
        left_out.is_gone("b");
        assert_eq!(left_out.status_line(), "");
    }
}
