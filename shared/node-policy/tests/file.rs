//! Policy files: what is read from them, and what is refused with its line.

use node_policy::{
    Grant, Level, MAX_GRANTS, MAX_POLICY_BYTES, Mode, Policy, PolicyError, Protected, RunningPods,
};
use pod::PodSource;

fn parse(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(text, Protected::default())
}

/// Has every key that there is.
const WHOLE: &str = r#"
mode = "audit"
runningPods = "end"

[sources]
file = "privileged"
http = "restricted"
api = "baseline"

[[grants]]
pods = ["kube-system/*", "default/web-?"]
images = ["registry.example/app"]
sources = ["file", "http", "api"]
hostNetwork = true
hostPID = true
hostIPC = true
hostProcess = true
privileged = true
hostPaths = [
    { prefix = "/srv", readOnly = true, followLinks = true, includesProtected = true },
    { prefix = "/var/log/app/" },
]
capabilities = ["NET_ADMIN", "cap_sys_time"]
defaultCapabilities = true
hostPorts = [80, "8000-8999"]
devices = ["/dev/fuse"]
sysctls = ["net.core.*", "kernel/msgmax"]
users = [0, "1000-1999"]
groups = [5]
privilegeEscalation = true
seccompUnconfined = true
appArmorUnconfined = true
seLinuxTypes = ["spc_t"]
seLinuxUsers = ["system_u"]
seLinuxRoles = ["system_r"]
unmaskedProc = true
volumeKinds = ["nfs"]
probeHosts = ["127.0.0.1"]
exec = true
"#;

#[test]
fn every_key_is_read_and_written_back() {
    let policy = parse(WHOLE).expect("it is a policy");
    assert_eq!(policy.mode(), Mode::Audit);
    assert_eq!(policy.running_pods(), RunningPods::End);
    let levels = PodSource::ALL.map(|source| policy.level(source));
    assert_eq!(
        levels,
        [Level::Privileged, Level::Restricted, Level::Baseline]
    );
    let grant = policy.grants().next().expect("there is a grant");
    assert_eq!(grant.capabilities, ["NET_ADMIN", "SYS_TIME"]);
    assert_eq!(grant.sysctls, ["net.core.*", "kernel.msgmax"]);
    let again = parse(&grant.to_toml()).expect("a grant is a policy");
    assert_eq!(again.grants().next(), Some(grant));
    let inline = format!("grants = [{}]", grant.to_inline_toml());
    let again = parse(&inline).expect("an inline grant is one");
    assert_eq!(again.grants().next(), Some(grant));
}

#[test]
fn every_key_of_a_grant_is_in_the_example_above() {
    let written = parse(WHOLE).expect("it is a policy");
    let text = written
        .grants()
        .next()
        .map(Grant::to_toml)
        .unwrap_or_default();
    let keys = text.lines().filter(|line| line.contains(" = ")).count();
    // The fields of `Grant`; a new one belongs into the example and into the documents.
    assert_eq!(keys, 26, "{text}");
}

fn each_is_refused<const N: usize>(table: [(&str, usize, &str); N]) {
    for (text, line, words) in table {
        match parse(text) {
            Err(PolicyError::Content {
                line: found,
                message,
            }) => {
                assert_eq!(found, line, "{text}: {message}");
                assert!(message.contains(words), "{text}: {message}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    each_is_refused([
        ("mode = \"off\"", 1, "off"),
        ("\nlevel = \"baseline\"", 2, "level"),
        (
            "[sources]\nfile = \"baseline\"\nftp = \"baseline\"",
            3,
            "ftp",
        ),
        ("[sources]\nfile = \"strict\"", 2, "strict"),
        ("runningPods = true", 1, "wanted string"),
        (
            "[[grants]]\npods = [\"a/b\"]\nhostnetwork = true",
            3,
            "unknown field `hostnetwork`: did you mean hostNetwork?",
        ),
        ("mode = \"audid\"", 1, "did you mean audit?"),
        (
            "[[grants]]\npods = [\"a\"]\nhostPID = true",
            2,
            "NAMESPACE/NAME",
        ),
        (
            "[[grants]]\nsources = [\"ftp\"]\npods = [\"a/b\"]\nhostPID = true",
            2,
            "ftp",
        ),
        ("\n[[grants]]\nhostPID = true", 2, "whom"),
        (
            "[[grants]]\npods = [\"a/b\"]\nhostPID = true\n[[grants]]\npods = [\"a/b\"]",
            4,
            "nothing",
        ),
    ]);
}

#[test]
fn a_value_that_cannot_be_is_told_with_its_line() {
    each_is_refused([
        (
            "[[grants]]\npods = [\"a/b\"]\nhostPaths = [{ prefix = \"a\" }]",
            3,
            "absolute",
        ),
        (
            "[[grants]]\npods = [\"a/b\"]\nhostPaths = [{ prefix = \"/a/..\" }]",
            3,
            "'..'",
        ),
        (
            "[[grants]]\npods = [\"a/b\"]\nhostPaths = [{ readOnly = true }]",
            3,
            "prefix",
        ),
        (
            "[[grants]]\npods = [\"a/b\"]\nhostPaths = [{ prefix = \"/\", ro = true }]",
            3,
            "ro",
        ),
        (
            "[[grants]]\npods = [\"a/b\"]\nusers = [-1]",
            3,
            "4294967295",
        ),
        ("[[grants]]\npods = [\"a/b\"]\nusers = [\"9-1\"]", 3, "9-1"),
        (
            "[[grants]]\npods = [\"a/b\"]\nsysctls = [\"*\"]",
            3,
            "sysctl",
        ),
        (
            "[[grants]]\npods = [\"a/b\"]\ncapabilities = [\"\"]",
            3,
            "NET_ADMIN",
        ),
        ("a = ", 1, ""),
    ]);
}

#[test]
fn size_and_number_of_grants_are_bounded() {
    let large = " ".repeat(MAX_POLICY_BYTES + 1);
    assert!(matches!(parse(&large), Err(PolicyError::TooLarge { .. })));
    let grant = "[[grants]]\npods = [\"a/b\"]\nhostPID = true\n";
    assert!(parse(&grant.repeat(MAX_GRANTS)).is_ok());
    let many = grant.repeat(MAX_GRANTS + 1);
    assert!(matches!(
        parse(&many),
        Err(PolicyError::TooManyGrants { .. })
    ));
}

#[test]
fn nesting_without_end_is_refused_and_overflows_nothing() {
    let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(&deep).is_err());
    let deep = format!("[{}a]\nb = 1", "a.".repeat(50_000));
    assert!(parse(&deep).is_err());
}
