//! `BulkheadConfiguration` (bulkhead/v1): what only Bulkhead has, for the
//! supervisor. Every field is supported, so an unknown one is an error.
//!
//! ```yaml
//! apiVersion: bulkhead/v1
//! kind: BulkheadConfiguration
//! policyPath: /etc/bulkhead/policy.toml
//! pullCredentialsPath: /etc/bulkhead/pull-credentials.json
//! localObjectsPath: /etc/bulkhead/objects
//! minimumConfinement: [landlock, limits]
//! runtimeClasses:
//!   vm: {handler: kata, overhead: {memory: 160Mi}}
//! processes:
//!   pleg:
//!     openFiles: 1024
//!     logFilter: debug
//!     maxRestartWait: 5s
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pod::runtime_class::RuntimeClasses;
use pod_validation::runtime_class_config_errors;
use serde::Deserialize;
use serde_json::{Map, Value};
use topology::Process;

use crate::document::{self, ConfigFileError, Kind};
use crate::kubelet::GoDuration;

mod protection;

pub use protection::Protection;

const KIND: Kind = Kind {
    api_version: "bulkhead/v1",
    kind: "BulkheadConfiguration",
};

/// Fewer open files than this keep a process from serving its callers.
const MIN_OPEN_FILES: u64 = 64;

/// Between these, a wait is neither a busy loop nor giving up.
const RESTART_WAITS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(300);

/// Longest filter of log lines.
const MAX_LOG_FILTER_BYTES: usize = 256;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BulkheadConfig {
    /// Where the node policy is; absent: at its default path.
    pub policy_path: Option<PathBuf>,
    /// Where the credentials of registries are; absent: at their default path.
    pub pull_credentials_path: Option<PathBuf>,
    /// Where ConfigMaps and Secrets for static pods are; absent: there are none.
    pub local_objects_path: Option<PathBuf>,
    /// What pods may name as their `runtimeClassName`.
    pub runtime_classes: RuntimeClasses,
    /// What this node does not run without.
    pub minimum_confinement: BTreeSet<Protection>,
    processes: BTreeMap<Process, ProcessSettings>,
}

/// What can be set for one process. Absent: the default of the topology or of
/// the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Most open files (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// What it logs, in the form of `BULKHEAD_LOG`.
    pub log_filter: Option<String>,
    /// Longest wait between two restarts.
    pub max_restart_wait: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileFields {
    policy_path: Option<PathBuf>,
    pull_credentials_path: Option<PathBuf>,
    local_objects_path: Option<PathBuf>,
    runtime_classes: RuntimeClasses,
    minimum_confinement: BTreeSet<Protection>,
    processes: BTreeMap<String, ProcessFields>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ProcessFields {
    open_files: Option<u64>,
    log_filter: Option<String>,
    max_restart_wait: Option<GoDuration>,
}

impl BulkheadConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or a field is unknown or wrong.
    pub fn read(path: &Path) -> Result<BulkheadConfig, ConfigFileError> {
        BulkheadConfig::from_object(path, document::read(path, KIND)?)
    }

    /// The same from a text; `path` serves messages.
    ///
    /// # Errors
    /// As [`BulkheadConfig::read`].
    pub fn parse(path: &Path, text: &str) -> Result<BulkheadConfig, ConfigFileError> {
        BulkheadConfig::from_object(path, document::parse(path, text, KIND)?)
    }

    /// What is set for a process.
    #[must_use]
    pub fn process(&self, process: Process) -> ProcessSettings {
        self.processes.get(&process).cloned().unwrap_or_default()
    }

    fn from_object(
        path: &Path,
        object: Map<String, Value>,
    ) -> Result<BulkheadConfig, ConfigFileError> {
        let refused = |field: String, reason: String| ConfigFileError::Value {
            path: path.to_owned(),
            field,
            reason,
        };
        let fields: FileFields =
            document::typed(object, |_| false).map_err(|(field, reason)| refused(field, reason))?;
        for (field, path) in [
            ("policyPath", &fields.policy_path),
            ("pullCredentialsPath", &fields.pull_credentials_path),
            ("localObjectsPath", &fields.local_objects_path),
        ] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
                let reason = format!("{} is not an absolute path", path.display());
                return Err(refused(field.to_owned(), reason));
            }
        }
        for (name, class) in &fields.runtime_classes {
            let at = format!("runtimeClasses.{name}");
            let problems = runtime_class_config_errors(name, class, &at);
            if let Some(problem) = problems.into_iter().next() {
                let reason = problem.message();
                return Err(refused(problem.field, reason));
            }
        }
        let mut config = BulkheadConfig {
            policy_path: fields.policy_path,
            pull_credentials_path: fields.pull_credentials_path,
            local_objects_path: fields.local_objects_path,
            runtime_classes: fields.runtime_classes,
            minimum_confinement: fields.minimum_confinement,
            ..BulkheadConfig::default()
        };
        for (name, fields) in fields.processes {
            let at = |field: &str| format!("processes.{name}{field}");
            let process: Process = name
                .parse()
                .map_err(|error: topology::UnknownProcess| refused(at(""), error.to_string()))?;
            if process == Process::Supervisor {
                let reason = "the supervisor is configured by whoever starts it".to_owned();
                return Err(refused(at(""), reason));
            }
            let settings = fields
                .check()
                .map_err(|(field, reason)| refused(at(field), reason))?;
            config.processes.insert(process, settings);
        }
        Ok(config)
    }
}

impl ProcessFields {
    fn check(self) -> Result<ProcessSettings, (&'static str, String)> {
        if let Some(files) = self.open_files
            && files < MIN_OPEN_FILES
        {
            let reason = format!("{files} is too few: give at least {MIN_OPEN_FILES}");
            return Err((".openFiles", reason));
        }
        if let Some(filter) = &self.log_filter {
            if filter.len() > MAX_LOG_FILTER_BYTES {
                let reason = format!("it is longer than {MAX_LOG_FILTER_BYTES} bytes");
                return Err((".logFilter", reason));
            }
            telemetry::check_filter(filter).map_err(|reason| (".logFilter", reason))?;
        }
        let max_restart_wait = self.max_restart_wait.map(|GoDuration(wait)| wait);
        if max_restart_wait.is_some_and(|wait| !RESTART_WAITS.contains(&wait)) {
            return Err((".maxRestartWait", "give between 50ms and 300s".to_owned()));
        }
        Ok(ProcessSettings {
            open_files: self.open_files,
            log_filter: self.log_filter,
            max_restart_wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<BulkheadConfig, String> {
        let text = format!("apiVersion: bulkhead/v1\nkind: BulkheadConfiguration\n{body}");
        BulkheadConfig::parse(Path::new("/b.yaml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn each_field_arrives() {
        let config = parse(
            "processes:\n  pleg: {openFiles: 1024, logFilter: debug, maxRestartWait: 5s}\n  prober: {}\n",
        );
        let config = config.unwrap();
        let expected = ProcessSettings {
            open_files: Some(1024),
            log_filter: Some("debug".to_owned()),
            max_restart_wait: Some(Duration::from_secs(5)),
        };
        assert_eq!(config.process(Process::Pleg), expected);
        assert_eq!(
            config.process(Process::SyncLoop),
            ProcessSettings::default()
        );
        assert_eq!(parse("").unwrap(), BulkheadConfig::default());
        let policy = parse("policyPath: /a/policy.toml").unwrap().policy_path;
        assert_eq!(policy, Some("/a/policy.toml".into()));
        let credentials = parse("pullCredentialsPath: /a/b").unwrap();
        assert_eq!(credentials.pull_credentials_path, Some("/a/b".into()));
        let objects = parse("localObjectsPath: /a/b").unwrap().local_objects_path;
        assert_eq!(objects, Some("/a/b".into()));
        let classes =
            "runtimeClasses: {vm: {handler: kata, overhead: {memory: 160Mi}}, c: {handler: crun}}";
        let classes = parse(classes).unwrap().runtime_classes;
        assert_eq!(classes["vm"].handler, "kata");
        assert_eq!(classes["vm"].overhead["memory"], "160Mi");
        assert!(classes["c"].overhead.is_empty());
    }

    #[test]
    fn what_is_unknown_or_wrong_is_named() {
        for (body, named) in [
            ("process: {}", "process"),
            ("policyPath: policy.toml", "policyPath"),
            ("localObjectsPath: objects", "localObjectsPath"),
            ("pullCredentialsPath: a.json", "pullCredentialsPath"),
            ("runtimeClasses: {vm: {}}", "runtimeClasses.vm"),
            (
                "runtimeClasses: {vm: {handler: a/b}}",
                "runtimeClasses.vm.handler",
            ),
            ("runtimeClasses: {V: {handler: a}}", "runtimeClasses.V"),
            (
                "runtimeClasses: {vm: {handler: a, scheduling: {}}}",
                "scheduling",
            ),
            (
                "runtimeClasses: {vm: {handler: a, overhead: {cpu: x}}}",
                "runtimeClasses.vm.overhead[cpu]",
            ),
            ("processes: {pleg: {openFile: 1}}", "openFile"),
            ("processes: {plegg: {}}", "processes.plegg"),
            ("processes: {supervisor: {}}", "processes.supervisor"),
            (
                "processes: {pleg: {openFiles: 1}}",
                "processes.pleg.openFiles",
            ),
            (
                "processes: {pleg: {openFiles: -1}}",
                "processes.pleg.openFiles",
            ),
            (
                "processes: {pleg: {maxRestartWait: 1h}}",
                "processes.pleg.maxRestartWait",
            ),
            (
                "processes: {pleg: {maxRestartWait: 5}}",
                "processes.pleg.maxRestartWait",
            ),
            (
                "processes: {pleg: {logFilter: \"a\\nb\"}}",
                "processes.pleg.logFilter",
            ),
            (
                "processes: {pod-worker-pool: {logFilter: verbose}}",
                "processes.pod-worker-pool.logFilter: \"verbose\" is neither",
            ),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(named), "{body}: {error}");
        }
    }
}
