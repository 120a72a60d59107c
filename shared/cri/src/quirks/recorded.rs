//! Answers of runtimes, word for word but for ids that are cut, and what they mean. Some
//! are made up from what the sources of a runtime put together; they say so.

use tonic::{Code, Status};

use super::{FailedPull, FailedStart, failed_start};
use crate::{RuntimeError, RuntimeErrorKind, v1};

/// A refused call: who said it, the call, the words and what they mean.
const REFUSALS: [(&str, &str, &str, RuntimeErrorKind); 11] = [
    (
        "containerd 1.6",
        "RunPodSandbox",
        r#"failed to reserve sandbox name "n_d_u_0": name "n_d_u_0" is reserved for "6c1c""#,
        RuntimeErrorKind::AlreadyExists,
    ),
    (
        "containerd 1.6",
        "CreateContainer",
        r#"failed to reserve container name "c_n_d_u_0": name "c_n_d_u_0" is reserved for "6c1c""#,
        RuntimeErrorKind::AlreadyExists,
    ),
    (
        "CRI-O 1.19",
        "RunPodSandbox",
        "Kubelet may be retrying requests that are timing out in CRI-O due to system load: \
         error reserving pod name k8s_n_d_u_1 for id b421: name is reserved",
        RuntimeErrorKind::AlreadyExists,
    ),
    (
        "CRI-O 1.29",
        "CreateContainer",
        "error reserving ctr name k8s_c_n_d_u_0 for id 924e: name is reserved",
        RuntimeErrorKind::AlreadyExists,
    ),
    (
        "containerd 1.6",
        "StartContainer",
        r#"failed to set starting state for container "12": container is already in starting state"#,
        RuntimeErrorKind::NotStartable,
    ),
    (
        "containerd 1.6",
        "StartContainer",
        r#"failed to set starting state for container "12": container is in CONTAINER_EXITED state"#,
        RuntimeErrorKind::NotStartable,
    ),
    (
        "containerd 1.6",
        "StartContainer",
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: \
         runc create failed: unable to create new parent process: namespace path: \
         lstat /proc/0/ns/ipc: no such file or directory: unknown",
        RuntimeErrorKind::NoSandboxProcess,
    ),
    (
        "containerd 1.6",
        "RemoveContainer",
        r#"failed to set removing state for container "12": container is in starting state, can't be removed"#,
        RuntimeErrorKind::BeingStarted,
    ),
    (
        "containerd 1.6",
        "RemoveContainer",
        "failed to delete containerd container: cannot delete running task 12: failed precondition",
        RuntimeErrorKind::Other,
    ),
    // Words of the pod's choice, which is to say the name of its program.
    (
        "containerd 1.6",
        "StartContainer",
        r#"exec: "failed to set starting state": executable file not found in $PATH"#,
        RuntimeErrorKind::Other,
    ),
    (
        "containerd 1.6",
        "StartContainer",
        r#"exec: "name is reserved for context canceled": executable file not found in $PATH"#,
        RuntimeErrorKind::Other,
    ),
];

#[test]
fn a_refusal_without_a_code_is_told_by_its_words() {
    for (runtime, method, message, kind) in REFUSALS {
        for code in [Code::Unknown, Code::Internal] {
            let error = RuntimeError::from_status(method, &Status::new(code, message));
            assert_eq!(error.kind, kind, "{runtime} {method} {message}");
        }
        // With a code, the code counts.
        let status = Status::not_found(message);
        assert!(RuntimeError::from_status(method, &status).is_not_found());
    }
}

#[test]
fn words_count_only_in_answers_to_the_calls_that_they_belong_to() {
    for (_, of, message, _) in REFUSALS {
        for method in ["StopContainer", "ExecSync", "PullImage"] {
            let error = RuntimeError::refused(method, message);
            assert_eq!(error.kind, RuntimeErrorKind::Other, "{of} {message}");
        }
    }
}

/// Why a pull failed, and what was said beyond that.
type Why = Option<(FailedPull, &'static str)>;

/// Who said it of a pull, the words, and what they mean.
const FAILED_PULLS: [(&str, &str, Why); 4] = [
    (
        "CRI-O, by its sources",
        "RegistryUnavailable: pinging container registry localhost:5000: \
         dial tcp [::1]:5000: connect: connection refused",
        Some((
            FailedPull::RegistryUnavailable,
            ": pinging container registry localhost:5000: \
             dial tcp [::1]:5000: connect: connection refused",
        )),
    ),
    (
        "CRI-O, by its sources",
        "SignatureValidationFailed: Source image rejected: \
         A signature was required, but no signature exists",
        Some((
            FailedPull::SignatureInvalid,
            ": Source image rejected: A signature was required, but no signature exists",
        )),
    ),
    (
        "containerd 1.6",
        r#"failed to pull and unpack image "a.io/b:1": failed to resolve reference "a.io/b:1": connect: connection refused"#,
        None,
    ),
    // Of several credentials.
    (
        "CRI-O, by its sources",
        "[RegistryUnavailable: a, denied]",
        None,
    ),
];

#[test]
fn a_pull_that_failed_for_a_reason_that_cri_names_is_told_by_its_first_word() {
    for (runtime, message, expected) in FAILED_PULLS {
        let error = RuntimeError::refused("PullImage", message);
        assert_eq!(error.failed_pull(), expected, "{runtime} {message}");
        // With a code, the code counts.
        let status = Status::not_found(message);
        let error = RuntimeError::from_status("PullImage", &status);
        assert_eq!(error.failed_pull(), None, "{runtime} {message}");
    }
}

/// containerd 1.6: when the instance was started, reason, message.
const FAILED_STARTS: [(i64, &str, &str, Option<FailedStart>); 6] = [
    (
        0,
        "StartError",
        "failed to create containerd task: context canceled: unknown",
        Some(FailedStart::Abandoned),
    ),
    (
        0,
        "StartError",
        "failed to create containerd task: failed to create shim task: start failed: : \
         signal: killed: unknown",
        Some(FailedStart::Abandoned),
    ),
    (
        0,
        "StartError",
        "runc create failed: unable to create new parent process: namespace path: \
         lstat /proc/0/ns/ipc: no such file or directory",
        Some(FailedStart::Abandoned),
    ),
    (
        0,
        "StartError",
        r#"exec: "x": executable file not found in $PATH: unknown"#,
        Some(FailedStart::Refused),
    ),
    (5, "StartError", "context canceled", None),
    (0, "Error", "context canceled", None),
];

#[test]
fn a_start_that_was_abandoned_is_told_from_one_that_was_refused() {
    for (started_at, reason, message, expected) in FAILED_STARTS {
        let status = v1::ContainerStatus {
            started_at,
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..v1::ContainerStatus::default()
        };
        assert_eq!(failed_start(&status), expected, "{reason} {message}");
    }
}
