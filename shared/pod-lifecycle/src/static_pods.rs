//! One started static pod per full name.
//!
//! A manifest that is replaced gives a pod of the same name with another UID.
//! The new one starts when the old one has finished, and at once then: whoever
//! frees a name is told who is next.

use std::collections::{BTreeMap, VecDeque};

/// Who holds each full name, and who waits for it, first come first served.
#[derive(Debug, Default)]
pub struct StaticPods {
    names: BTreeMap<String, Name>,
}

#[derive(Debug)]
struct Name {
    holder: String,
    waiting: VecDeque<String>,
}

impl StaticPods {
    /// Asks for a name; whether `uid` has it now. If not, it waits in the queue,
    /// where it keeps the place of its first request.
    pub fn request(&mut self, full_name: &str, uid: &str) -> bool {
        let Some(name) = self.names.get_mut(full_name) else {
            let name = Name {
                holder: uid.to_owned(),
                waiting: VecDeque::new(),
            };
            self.names.insert(full_name.to_owned(), name);
            return true;
        };
        if name.holder == uid {
            return true;
        }
        if !name.waiting.iter().any(|waiting| waiting == uid) {
            name.waiting.push_back(uid.to_owned());
        }
        false
    }

    /// Gives a name up, held or waited for. When it becomes free, the first
    /// waiter that is alive gets it and is the answer; dead ones are dropped.
    pub fn release(
        &mut self,
        full_name: &str,
        uid: &str,
        is_alive: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let name = self.names.get_mut(full_name)?;
        if name.holder != uid {
            name.waiting.retain(|waiting| waiting != uid);
            return None;
        }
        while let Some(next) = name.waiting.pop_front() {
            if is_alive(&next) {
                name.holder.clone_from(&next);
                return Some(next);
            }
        }
        self.names.remove(full_name);
        None
    }

    /// All names with their holders.
    pub fn holders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names
            .iter()
            .map(|(full_name, name)| (full_name.as_str(), name.holder.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "web-node_default";

    fn all(_: &str) -> bool {
        true
    }

    fn holder(pods: &StaticPods) -> Option<&str> {
        let mut holders = pods.holders();
        holders.find_map(|(name, uid)| (name == NAME).then_some(uid))
    }

    #[test]
    fn a_free_name_is_given_at_once_and_again_to_its_holder() {
        let mut pods = StaticPods::default();
        assert!(pods.request(NAME, "1"));
        assert!(pods.request(NAME, "1"));
        assert!(pods.request("other_default", "2"));
        assert!(!pods.request(NAME, "2"));
    }

    #[test]
    fn waiters_come_in_the_order_of_their_first_request() {
        let mut pods = StaticPods::default();
        for uid in ["1", "2", "3", "4", "3", "2"] {
            pods.request(NAME, uid);
        }
        for (leaving, next) in [("1", "2"), ("2", "3"), ("3", "4")] {
            assert_eq!(pods.release(NAME, leaving, all).as_deref(), Some(next));
            assert_eq!(holder(&pods), Some(next));
        }
        assert_eq!(pods.release(NAME, "4", all), None);
        assert_eq!(holder(&pods), None);
    }

    #[test]
    fn dead_waiters_are_skipped() {
        let mut pods = StaticPods::default();
        for uid in ["1", "2", "3", "4"] {
            pods.request(NAME, uid);
        }
        let next = pods.release(NAME, "1", |uid| uid == "4");
        assert_eq!(next.as_deref(), Some("4"));
        assert_eq!(pods.release(NAME, "4", all), None);
        assert!(pods.request(NAME, "5"));
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_the_queue_and_frees_nothing() {
        let mut pods = StaticPods::default();
        for uid in ["1", "2", "3"] {
            pods.request(NAME, uid);
        }
        assert_eq!(pods.release(NAME, "2", all), None);
        assert_eq!(holder(&pods), Some("1"));
        assert_eq!(pods.release(NAME, "1", all).as_deref(), Some("3"));
        assert_eq!(pods.release("unknown_default", "1", all), None);
    }

    #[test]
    fn replaced_three_times_the_last_one_runs() {
        let mut pods = StaticPods::default();
        for uid in ["1", "2", "3", "1"] {
            pods.request(NAME, uid);
        }
        // 2 and 3 were killed while they waited; 1 was created again and comes
        // as a new request once the old 1 is forgotten.
        assert_eq!(pods.release(NAME, "1", |_| false), None);
        assert!(pods.request(NAME, "1"));
    }
}
