//! Addresses of sessions, each of which can be used once.

use std::collections::BTreeMap;

/// The port of all of them.
const PORT: u16 = 10010;

/// The addresses that nobody has used.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    given: u64,
    /// The container or sandbox of each, by its path.
    unused: BTreeMap<String, String>,
}

impl Addresses {
    /// Another one.
    pub(super) fn give(&mut self, kind: &str, id: String) -> String {
        self.given += 1;
        let path = format!("/{kind}/token-{}", self.given);
        let url = format!("http://127.0.0.1:{PORT}{path}");
        self.unused.insert(path, id);
        url
    }

    /// Uses one: what its session is with. None of one that was not given, or was used.
    pub(super) fn take(&mut self, path: &str) -> Option<String> {
        self.unused.remove(path)
    }
}
