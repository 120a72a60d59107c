//! Requests to restart a process that were carried out: one that comes again, since
//! its answer was lost, is answered again and not carried out twice.

use std::collections::VecDeque;

/// Requests whose answers are remembered, as the contract has it.
const KEPT_REQUESTS: usize = 64;

/// The latest requests, oldest first: each with the pid that its process had then,
/// or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartRequests(VecDeque<(String, u32)>);

impl RestartRequests {
    /// The answer to a request that was carried out already.
    #[must_use]
    pub fn answer(&self, request_id: &str) -> Option<u32> {
        let known = self.0.iter().find(|(id, _)| id == request_id);
        known.map(|(_, old_pid)| *old_pid)
    }

    /// Notes a request that was carried out. One without an id is never the same as
    /// another.
    pub fn carried_out(&mut self, request_id: String, old_pid: u32) {
        if request_id.is_empty() {
            return;
        }
        if self.0.len() == KEPT_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back((request_id, old_pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_again_by_its_id_among_the_latest() {
        let mut requests = RestartRequests::default();
        for number in 0..=u32::try_from(KEPT_REQUESTS).unwrap() {
            requests.carried_out(format!("id {number}"), number);
        }
        assert_eq!(requests.answer("id 0"), None, "it is too old");
        assert_eq!(requests.answer("id 1"), Some(1));
        assert_eq!(requests.answer("id 64"), Some(64));
    }

    #[test]
    fn requests_without_an_id_are_carried_out_each_time_and_push_out_no_other() {
        let mut requests = RestartRequests::default();
        requests.carried_out("one".to_owned(), 7);
        for pid in 0..100 {
            requests.carried_out(String::new(), pid);
        }
        assert_eq!(requests.answer(""), None);
        assert_eq!(requests.answer("one"), Some(7));
    }
}
