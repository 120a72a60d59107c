//! What is told of manifests, and that the grants which are printed are enough.

use std::fs;
use std::path::PathBuf;

use super::*;

const NETWORK: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  containers:
  - name: c
    image: localhost/web:1
    volumeMounts: [{name: v, mountPath: /v, readOnly: true}]
  volumes: [{name: v, hostPath: {path: /proc}}]
";

const PLAIN: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: localhost/web:1}]}
";

fn found(manifests: &[(&str, &str)]) -> (tempfile::TempDir, Vec<PodsOfFile>) {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = manifests
        .iter()
        .map(|(name, text)| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        })
        .collect();
    let found = check::pods(&paths, &"n1".into());
    (directory, found)
}

#[test]
fn a_refused_pod_is_told_with_field_rule_and_grant() {
    let (_directory, found) = found(&[("a.yaml", NETWORK), ("b.yaml", PLAIN), ("c.yaml", "x")]);
    let policy = Policy::without_file(Protected::default());
    let text: Vec<String> = found
        .iter()
        .map(|(_, pods)| rendered(Path::new("f"), &verdicts(pods, &policy, "n1"), false))
        .collect();
    let network: Vec<&str> = text[0].lines().collect();
    assert_eq!(
        network[0],
        "f: default/web: refused: spec.hostNetwork: the node's network (hostNetwork) is not allowed \
         at level baseline; this grant would allow it: { pods = [\"default/web\"], sources = \
         [\"file\"], hostNetwork = true }"
    );
    assert!(
        network[1].contains("spec.volumes[0].hostPath.path: reading"),
        "{network:?}"
    );
    assert_eq!(network.len(), 2);
    assert_eq!(text[1], "f: default/plain: allowed\n");
    assert!(text[2].starts_with("f: not accepted: "), "{}", text[2]);
}

#[test]
fn the_printed_grants_appended_to_the_policy_allow_the_pods() {
    let (_directory, found) = found(&[("a.yaml", NETWORK), ("b.yaml", PLAIN)]);
    let before = "[sources]\nfile = \"baseline\"\n";
    let policy = Policy::parse(before, Protected::default()).unwrap();
    let (text, problems) = grants(&found, &policy, "n1");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(text.matches("[[grants]]").count(), 1, "{text}");
    assert!(text.contains("\n# This names something"), "{text}");
    let after = Policy::parse(&format!("{before}{text}"), Protected::default()).unwrap();
    for (_, pods) in &found {
        assert!(verdicts(pods, &after, "n1").iter().all(Verdict::is_good));
    }
    // Nothing is left to grant.
    assert_eq!(grants(&found, &after, "n1"), (String::new(), Vec::new()));
}

#[test]
fn a_manifest_that_cannot_be_read_is_a_problem_beside_the_grants() {
    let (_directory, found) = found(&[("a.yaml", NETWORK), ("c.yaml", "x")]);
    let policy = Policy::without_file(Protected::default());
    let (text, problems) = grants(&found, &policy, "n1");
    assert!(text.contains("hostNetwork = true"), "{text}");
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn what_is_shown_can_be_read_at_a_glance() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let file = PolicyFile::read(&path).unwrap();
    let text = shown(
        &file.description(),
        &file.policy(Protected::default()).unwrap(),
    );
    assert!(text.contains("there is no such file"), "{text}");
    assert!(text.contains("\nfile       baseline\n"), "{text}");
    assert!(
        text.contains("\nprotected  /proc  the node's /proc\n"),
        "{text}"
    );
    fs::write(
        &path,
        "mode = \"audit\"\n[[grants]]\npods = [\"a/b\"]\nhostPID = true\n",
    )
    .unwrap();
    let file = PolicyFile::read(&path).unwrap();
    let text = shown(
        &file.description(),
        &file.policy(Protected::default()).unwrap(),
    );
    assert!(text.contains("\nmode       audit"), "{text}");
    assert!(
        text.ends_with("[[grants]]\npods = [\"a/b\"]\nhostPID = true\n"),
        "{text}"
    );
}

#[test]
fn a_broken_policy_is_told_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, "mode = \"enforce\"\nnonsense = 1\n").unwrap();
    let file = PolicyFile::read(&path).unwrap();
    let failure = file.policy(Protected::default()).unwrap_err();
    let text = telemetry::chain(&failure);
    assert!(
        text.contains("policy.toml") && text.contains("line 2"),
        "{text}"
    );
}

#[test]
fn a_file_that_the_node_would_not_trust_is_told() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(
        PolicyFile::read(&path).unwrap().warnings(),
        Vec::<String>::new()
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    assert_eq!(PolicyFile::read(&path).unwrap().warnings().len(), 1);
}

#[test]
fn check_judges_by_a_given_policy_and_by_none_where_no_agent_has_run() {
    let directory = tempfile::tempdir().unwrap();
    let pods = decoded_network();
    let none = of_check(directory.path(), None, &[]).unwrap();
    assert!(none(&pods).is_empty());
    let path = directory.path().join("policy.toml");
    fs::write(&path, "").unwrap();
    let baseline = of_check(directory.path(), Some(&path), &[]).unwrap();
    let denials = baseline(&pods);
    assert!(denials[0].contains("spec.hostNetwork"), "{denials:?}");
    fs::write(&path, "mode = \"audit\"\n").unwrap();
    let audit = of_check(directory.path(), Some(&path), &[]).unwrap();
    assert!(audit(&pods).is_empty());
    assert!(of_check(directory.path(), Some(directory.path()), &[]).is_err());
}

fn decoded_network() -> Pod {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web.yaml");
    fs::write(&path, NETWORK).unwrap();
    let mut found = check::pods(&[path], &"n1".into());
    found.remove(0).1.unwrap().remove(0)
}
