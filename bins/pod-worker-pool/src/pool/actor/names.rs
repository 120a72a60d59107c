//! Who has the full name of a static pod: of several one runs, and the others wait.

use super::Actor;
use crate::relist::Relist;

impl Actor {
    /// A static pod that an earlier process started may have ended without a worker;
    /// its name is free then.
    pub(super) fn release_names_of_the_dead(&mut self, runtime: &Relist) {
        let dead: Vec<(String, String)> = self
            .static_pods
            .holders()
            .filter(|(_, uid)| !self.workers.contains_key(*uid))
            .filter(|(_, uid)| !runtime.pods.get(*uid).is_some_and(|pod| pod.is_alive()))
            .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
            .collect();
        for (full_name, uid) in dead {
            self.release_name(&full_name, &uid);
        }
    }

    /// A pod that waits for its name may have got another one since, which may be free.
    pub(super) fn wait_for_name(&mut self, uid: &str, former: &str) {
        let entry = self.workers.get(uid);
        if entry.is_some_and(|it| it.worker.identity().full_name() != former) {
            self.release_name(former, uid);
            self.request_start(uid);
        }
    }

    /// Gives a name up, held or waited for; who waits for it longest gets it.
    pub(super) fn release_name(&mut self, full_name: &str, uid: &str) {
        let workers = &self.workers;
        let next = self.static_pods.release(full_name, uid, |waiting| {
            workers
                .get(waiting)
                .is_some_and(|entry| entry.worker.is_waiting())
        });
        if let Some(next) = next {
            self.request_start(&next);
        }
    }
}
