//! What is said of mistakes in configuration files, whole.

use std::path::Path;

use config_files::bulkhead::BulkheadConfig;
use config_files::kubelet::KubeletConfig;
use node_config::{DirectoryLayout, NodeConfig};

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn of_kubelet(body: &str) -> String {
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let parsed = KubeletConfig::parse(Path::new("/k"), &format!("{header}{body}"));
    let directories = DirectoryLayout {
        run_dir: "/r".into(),
        state_dir: "/s".into(),
        root_dir: "/k".into(),
        log_dir: "/l".into(),
        bin_dir: "/b".into(),
    };
    let mut config = NodeConfig::with_defaults("node", directories);
    let applied = parsed.and_then(|parsed| parsed.apply(&mut config, 4));
    chain(&applied.expect_err("it is refused"))
}

fn of_bulkhead(body: &str) -> String {
    let header = "apiVersion: bulkhead/v1\nkind: BulkheadConfiguration\n";
    let parsed = BulkheadConfig::parse(Path::new("/b"), &format!("{header}{body}"));
    chain(&parsed.expect_err("it is refused"))
}

#[test]
fn what_keeps_a_kubelets_configuration_from_being_read_is_said_for_people() {
    let unread = "the kubelet's configuration cannot be read: ";
    for (body, expected) in [
        (
            "maxPods: 5\nmaxPods: 6\nevictionHard: {a: b, a: c}\n",
            format!(
                "{unread}/k: maxPods: the key maxPods is given twice, in line 3 and in line 4; \
                 evictionHard.a: the key a is given twice in line 5"
            ),
        ),
        (
            "a:\n\tb: 1\n",
            format!(
                "{unread}/k: not valid YAML: line 4: a tab in the indentation: YAML is indented \
                 with spaces only"
            ),
        ),
        (
            "maxPods: {{ .pods }}\n",
            format!(
                "{unread}/k: not valid YAML: line 3: {{{{ is left of a template: fill it in, or \
                 put the text in quotation marks"
            ),
        ),
        (
            "---\nmaxPods: 5\n",
            format!("{unread}/k: it has 2 documents, expected one"),
        ),
    ] {
        assert_eq!(of_kubelet(body), expected, "{body}");
    }
}

#[test]
fn a_field_that_a_kubelets_configuration_cannot_have_is_said_for_people() {
    for (body, expected) in [
        (
            "maxPod: 5",
            "/k: there is no field maxPod in a KubeletConfiguration: did you mean maxPods?",
        ),
        (
            "xyzzy: 5",
            "/k: there is no field xyzzy in a KubeletConfiguration",
        ),
        (
            "crashLoopBackOff: {maxContainerRestartPerod: 1s}",
            "/k: crashLoopBackOff.maxContainerRestartPerod: unknown field \
             `maxContainerRestartPerod`: did you mean maxContainerRestartPeriod?",
        ),
        (
            "maxPods: \"110\"",
            "/k: maxPods: expected a whole number, found the text \"110\": take the quotation \
             marks away",
        ),
        (
            "maxPods: 99999999999",
            "/k: maxPods: 99999999999 is out of range: it must be from -2147483648 to 2147483647",
        ),
        (
            "clusterDomain: no",
            "/k: clusterDomain: expected a text, found false: YAML reads n, no and off as false: put it in quotation marks",
        ),
        (
            "seccompDefault: tRue",
            "/k: seccompDefault: expected true or false, found the text \"tRue\"",
        ),
        (
            "syncFrequency: 60",
            "/k: syncFrequency: expected a duration like \"1m30s\", found the number 60",
        ),
        (
            "systemReserved: {memory: 100MB}",
            "/k: systemReserved.memory: \"100MB\" is not a quantity: did you mean 100M?",
        ),
        (
            "staticPodURLHeader: {Authorization: hunter2}",
            "/k: staticPodURLHeader.Authorization: expected a list",
        ),
    ] {
        assert_eq!(of_kubelet(body), expected, "{body}");
    }
}

#[test]
fn a_mistake_in_bulkheads_configuration_is_said_for_people() {
    for (body, expected) in [
        (
            "policyPth: /p",
            "/b: policyPth: unknown field `policyPth`: did you mean policyPath?",
        ),
        (
            "processes: {pleg: {openFile: 64}}",
            "/b: processes.pleg.openFile: unknown field `openFile`: did you mean openFiles?",
        ),
        (
            "processes: {pleg: {openFiles: -1}}",
            "/b: processes.pleg.openFiles: -1 is out of range: it must be from 0 to \
             18446744073709551615",
        ),
        (
            "minimumConfinement: [landlok]",
            "/b: minimumConfinement[0]: unknown variant `landlok`: did you mean landlock?",
        ),
        (
            "policyPath: 5",
            "/b: policyPath: expected a text, found the number 5: put it in quotation marks",
        ),
    ] {
        assert_eq!(of_bulkhead(body), expected, "{body}");
    }
}
