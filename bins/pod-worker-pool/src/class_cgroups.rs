//! The cgroup of all pods with its limits, and those of the classes below it: made before
//! any pod, and put right when somebody took them away or systemd did not answer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use node_host::NodeHost;

/// Between two looks at cgroups that are as they should be, as a kubelet's.
const PERIOD: Duration = Duration::from_secs(60);

/// The same after a failure.
const RETRY: Duration = Duration::from_secs(10);

/// Who keeps them.
pub(crate) struct ClassCgroups {
    host: Arc<dyn NodeHost>,
    /// Why they are not as they should be; empty when they are.
    problem: Mutex<String>,
}

impl ClassCgroups {
    /// They are made once before this returns, if that goes.
    pub(crate) async fn make(host: &Arc<dyn NodeHost>) -> ClassCgroups {
        let made = ClassCgroups {
            host: Arc::clone(host),
            problem: Mutex::default(),
        };
        made.ensure().await;
        made
    }

    /// Puts them right again and again. Pods make theirs meanwhile, and say why if that
    /// fails; without these, nothing limits all pods together.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            let wait = match self.status_line().is_empty() {
                true => PERIOD,
                false => RETRY,
            };
            tokio::time::sleep(wait).await;
            self.ensure().await;
        }
    }

    /// What is wrong, for `bulkhead status`.
    pub(crate) fn status_line(&self) -> String {
        let problem = self.problem.lock();
        problem.unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ensure(&self) {
        let problem = match self.host.ensure_qos_cgroups().await {
            Ok(()) => String::new(),
            Err(error) => {
                let error = telemetry::chain(&error);
                format!("all pods together are not limited: {error}")
            }
        };
        let mut told = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == problem {
            return;
        }
        match problem.is_empty() {
            true => tracing::info!("all pods together are limited again"),
            false => tracing::error!(problem, "the cgroups of pods cannot be made"),
        }
        *told = problem;
    }
}

#[cfg(test)]
mod tests {
    use simulated_node::MemoryHost;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cgroups_that_could_not_be_made_are_made_later_and_it_is_told_until_then() {
        let node = Arc::new(MemoryHost::default());
        node.state().class_cgroups_fail = true;
        let host: Arc<dyn NodeHost> = node.clone();
        let cgroups = ClassCgroups::make(&host).await;
        let line = cgroups.status_line();
        assert!(
            line.starts_with("all pods together are not limited"),
            "{line}"
        );
        let looking = async {
            // So that no look is in the same moment as one of the cgroups'.
            tokio::time::sleep(RETRY * 3 + Duration::from_secs(1)).await;
            assert_eq!(cgroups.status_line(), line);
            node.state().class_cgroups_fail = false;
            tokio::time::sleep(RETRY).await;
            assert_eq!(cgroups.status_line(), "");
            // Somebody takes them away.
            node.state().class_cgroups_fail = true;
            tokio::time::sleep(PERIOD).await;
            assert_eq!(cgroups.status_line(), line);
        };
        tokio::select! {
            never = cgroups.run() => match never {},
            () = looking => {}
        }
    }
}
