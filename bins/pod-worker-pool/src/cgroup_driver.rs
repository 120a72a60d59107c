//! Which cgroup driver the node has: the one that the container runtime tells
//! (`RuntimeConfig` of the CRI, KEP-4033), as a kubelet does; else the configured one.
//!
//! It is known from the start of the process to its end. What the runtime told is kept in a
//! file; when it tells something else, the process ends, and the next one begins with that.
//! Otherwise a pod's cgroups could be made by one driver and looked for by the other.

use std::sync::Arc;
use std::time::Duration;

use cri::{RuntimeError, RuntimeErrorKind, RuntimeReads, v1};
use node_config::{CgroupDriver, NodeConfig};
use serde::{Deserialize, Serialize};
use state_file::StateFile;
use topology::Process;

/// The file in the state directory, and the version of its content.
const FILE: &str = "cgroup-driver";
const VERSION: u32 = 1;

/// Longest wait for a runtime that was never asked, before any pod is started.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The runtime is asked again so long after it has not answered, and after it has: it may
/// come back from a restart with another configuration.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_ANEW: Duration = Duration::from_secs(60);

/// What a runtime tells of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DriverAnswer {
    /// This one.
    Driver(CgroupDriver),
    /// It has no call for that: containerd before 2.0.
    Nothing,
}

/// The runtime has another driver than this process works with.
#[derive(Debug, thiserror::Error)]
#[error(
    "the container runtime's cgroup driver is {now} and was {before}: starting again with that"
)]
pub struct OtherDriver {
    before: CgroupDriver,
    now: CgroupDriver,
}

/// The driver in use, and how it is found out.
#[derive(Debug)]
pub(crate) struct DriverInUse {
    configured: CgroupDriver,
    told: Option<DriverAnswer>,
    file: StateFile,
}

impl DriverInUse {
    /// From the configuration, and what an earlier process was told.
    pub(crate) fn open(config: &NodeConfig) -> DriverInUse {
        let path = config.directories.state(Process::PodWorkerPool).join(FILE);
        let file = StateFile::new(path, VERSION);
        let told = file.load().unwrap_or_else(|error| {
            let error = telemetry::chain(&error);
            tracing::warn!(
                error,
                "it is not known what the runtime said of its cgroup driver"
            );
            None
        });
        DriverInUse {
            configured: config.cgroup_driver,
            told,
            file,
        }
    }

    /// The driver that this process works with.
    fn driver(&self) -> CgroupDriver {
        in_force(self.told, self.configured)
    }

    /// The configuration with the driver that this process works with.
    pub(crate) fn applied_to(&self, config: &NodeConfig) -> NodeConfig {
        NodeConfig {
            cgroup_driver: self.driver(),
            ..config.clone()
        }
    }

    /// For people: nothing where it is the one that is configured.
    pub(crate) fn status_line(&self) -> String {
        match self.told {
            Some(DriverAnswer::Driver(driver)) if driver != self.configured => format!(
                "cgroup driver {driver}, as the runtime says, and not {} as configured",
                self.configured
            ),
            _ => String::new(),
        }
    }

    /// As [`DriverInUse::open`]; a runtime that was never asked is, before anything is
    /// started.
    ///
    /// # Errors
    /// When its driver is another one; the next process begins with it.
    pub(crate) async fn found(
        config: &NodeConfig,
        runtime: &dyn RuntimeReads,
    ) -> Result<DriverInUse, OtherDriver> {
        let mut found = DriverInUse::open(config);
        if found.told.is_none() {
            let asked = tokio::time::timeout(FIRST_ANSWER_WITHIN, runtime.runtime_config());
            if let Ok(answer) = asked.await {
                found.note(told(answer)).await?;
            }
        }
        Ok(found)
    }

    /// Asks again and again, until the runtime's driver is another one.
    pub(crate) async fn watch(mut self, runtime: Arc<dyn RuntimeReads>) -> OtherDriver {
        let mut wait = match self.told {
            Some(_) => ASK_ANEW,
            None => ASK_AGAIN,
        };
        loop {
            tokio::time::sleep(wait).await;
            let answer = told(runtime.runtime_config().await);
            wait = match answer {
                Some(_) => ASK_ANEW,
                None => ASK_AGAIN,
            };
            if let Err(other) = self.note(answer).await {
                return other;
            }
        }
    }

    /// Keeps what the runtime told, if it did.
    async fn note(&mut self, told: Option<DriverAnswer>) -> Result<(), OtherDriver> {
        if told.is_none() || told == self.told {
            return Ok(());
        }
        let file = self.file.clone();
        match blocking::spawn(move || file.save(&told)).await {
            Ok(Ok(())) => {}
            // An end would begin with what was told before: it is asked again.
            Ok(Err(error)) => {
                let error = telemetry::chain(&error);
                tracing::warn!(
                    error,
                    "cannot keep what the runtime says of its cgroup driver"
                );
                return Ok(());
            }
            Err(_ended) => return Ok(()),
        }
        let before = self.driver();
        self.told = told;
        match self.driver() {
            now if now == before => Ok(()),
            now => Err(OtherDriver { before, now }),
        }
    }
}

/// The runtime knows better than the node's configuration.
fn in_force(told: Option<DriverAnswer>, configured: CgroupDriver) -> CgroupDriver {
    match told {
        Some(DriverAnswer::Driver(driver)) => driver,
        Some(DriverAnswer::Nothing) | None => configured,
    }
}

/// What an answer tells; none while the runtime does not answer, or not in words that are
/// understood.
fn told(answer: Result<v1::RuntimeConfigResponse, RuntimeError>) -> Option<DriverAnswer> {
    match answer {
        Ok(answer) => {
            let driver = answer.linux?.cgroup_driver;
            match v1::CgroupDriver::try_from(driver).ok()? {
                v1::CgroupDriver::Systemd => Some(DriverAnswer::Driver(CgroupDriver::Systemd)),
                v1::CgroupDriver::Cgroupfs => Some(DriverAnswer::Driver(CgroupDriver::Cgroupfs)),
            }
        }
        Err(error) if error.kind == RuntimeErrorKind::Unimplemented => Some(DriverAnswer::Nothing),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(driver: i32) -> Result<v1::RuntimeConfigResponse, RuntimeError> {
        Ok(v1::RuntimeConfigResponse {
            linux: Some(v1::LinuxRuntimeConfiguration {
                cgroup_driver: driver,
            }),
        })
    }

    fn error(kind: RuntimeErrorKind) -> Result<v1::RuntimeConfigResponse, RuntimeError> {
        Err(RuntimeError::new("RuntimeConfig", kind, "words"))
    }

    #[test]
    fn the_runtime_comes_before_the_configuration_and_a_silent_one_after_it() {
        use CgroupDriver::{Cgroupfs, Systemd};
        for (answer, tells, configured, expected) in [
            (
                answer(0),
                Some(DriverAnswer::Driver(Systemd)),
                Cgroupfs,
                Systemd,
            ),
            (
                answer(1),
                Some(DriverAnswer::Driver(Cgroupfs)),
                Systemd,
                Cgroupfs,
            ),
            (
                error(RuntimeErrorKind::Unimplemented),
                Some(DriverAnswer::Nothing),
                Systemd,
                Systemd,
            ),
            (error(RuntimeErrorKind::Unavailable), None, Systemd, Systemd),
            (answer(7), None, Cgroupfs, Cgroupfs),
            (
                Ok(v1::RuntimeConfigResponse::default()),
                None,
                Systemd,
                Systemd,
            ),
        ] {
            let words = format!("{answer:?}");
            let tells_now = told(answer);
            assert_eq!(tells_now, tells, "{words}");
            assert_eq!(in_force(tells_now, configured), expected, "{words}");
        }
    }

    fn in_use(directory: &tempfile::TempDir, configured: CgroupDriver) -> DriverInUse {
        let directories = node_config::DirectoryLayout::below(directory.path());
        let mut config = NodeConfig::with_defaults("node", directories);
        let own = config.directories.state(Process::PodWorkerPool);
        std::fs::create_dir_all(own).unwrap();
        config.cgroup_driver = configured;
        DriverInUse::open(&config)
    }

    #[tokio::test]
    async fn the_next_process_begins_with_what_the_runtime_told() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = in_use(&directory, CgroupDriver::Cgroupfs);
        assert_eq!(first.driver(), CgroupDriver::Cgroupfs);
        first.note(None).await.unwrap();
        first.note(Some(DriverAnswer::Nothing)).await.unwrap();
        let systemd = Some(DriverAnswer::Driver(CgroupDriver::Systemd));
        let other = first.note(systemd).await.unwrap_err().to_string();
        assert!(other.contains("is systemd and was cgroupfs"), "{other}");
        let mut second = in_use(&directory, CgroupDriver::Cgroupfs);
        assert_eq!(second.driver(), CgroupDriver::Systemd);
        assert!(
            second
                .status_line()
                .contains("systemd, as the runtime says")
        );
        second.note(systemd).await.unwrap();
        // A runtime that tells nothing any more leaves it to the configuration.
        second.note(Some(DriverAnswer::Nothing)).await.unwrap_err();
        assert_eq!(in_use(&directory, CgroupDriver::Cgroupfs).status_line(), "");
    }
}
