//! Manifests as people write them: what is decoded, what is refused, and
//! whether the message helps to find the mistake.

use pod_manifest::{DecodedPod, Origin, decode, static_pods};

fn messages(manifest: &str) -> Vec<String> {
    match decode(manifest.as_bytes()) {
        Ok(pods) => panic!("{} pods decoded of {manifest}", pods.len()),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

fn pods(manifest: &str) -> Vec<DecodedPod> {
    decode(manifest.as_bytes()).unwrap_or_else(|errors| panic!("{manifest}: {errors:?}"))
}

fn names(manifest: &str) -> Vec<String> {
    pods(manifest)
        .into_iter()
        .filter_map(|each| each.pod.metadata.name)
        .collect()
}

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i:1\n";

#[test]
fn an_unknown_field_is_named() {
    let manifest = POD.replace("image: i:1", "image: i:1\n    comand: [a]");
    assert_eq!(
        messages(&manifest),
        ["spec.containers[0].comand: unknown field: did you mean command?"]
    );
    let manifest = format!("{POD}bogus: 1\n");
    assert_eq!(messages(&manifest), ["bogus: unknown field"]);
    let manifest = format!("{POD}  bogus: null\n  hostname: h\n  wrong: {{a: 1}}\n");
    assert_eq!(
        messages(&manifest),
        ["spec.bogus: unknown field", "spec.wrong: unknown field"]
    );
}

/// A pod with one more line in its container.
fn with(line: &str) -> String {
    POD.replace("image: i:1", &format!("image: i:1\n    {line}"))
}

/// A line of a container, and what is said of a field in it.
const MISTAKES: &[(&str, &str)] = &[
    (
        "command: sh",
        "command: expected a list, found the text \"sh\"",
    ),
    (
        "env: [{name: a, value: 8080}]",
        "env[0].value: expected a text, found the number 8080: put it in quotation marks",
    ),
    (
        "env: [{name: n}]",
        "env[0].name: expected a text, found false: YAML reads n, no and off as false: put it in quotation marks",
    ),
    (
        "args: [yes]",
        "args[0]: expected a text, found true: YAML reads y, yes and on as true: put it in quotation marks",
    ),
    (
        "args: [null]",
        "args[0]: expected a text, found nothing: YAML reads null and ~ as nothing: put it in quotation marks",
    ),
    (
        "ports: [{containerPort: \"8081\"}]",
        "ports[0].containerPort: expected a whole number, found the text \"8081\": take the \
             quotation marks away",
    ),
    (
        "ports: [{containerPort: 99999999999}]",
        "ports[0].containerPort: 99999999999 is out of range: it must be from -2147483648 to \
             2147483647",
    ),
    (
        "ports: [{containerPort: 1e30}]",
        "ports[0].containerPort: 1e+30 is out of range: it must be from -2147483648 to \
             2147483647",
    ),
    (
        "ports: [{containerPort: 80.5}]",
        "ports[0].containerPort: expected a whole number, found the number 80.5",
    ),
    (
        "stdin: \"true\"",
        "stdin: expected true or false, found the text \"true\": take the quotation marks away",
    ),
    (
        "stdin: tRue",
        "stdin: expected true or false, found the text \"tRue\"",
    ),
    (
        "resources: 5",
        "resources: expected a mapping, found the number 5",
    ),
    (
        "resources: {limits: {memory: 64MB}}",
        "resources.limits[memory]: \"64MB\" is not a quantity: did you mean 64M?",
    ),
    (
        "resources: {limits: {memory: 128 Mi}}",
        "resources.limits[memory]: \"128 Mi\" is not a quantity: did you mean 128Mi?",
    ),
    (
        "resources: {limits: {cpu: a}}",
        "resources.limits[cpu]: \"a\" is not a quantity like 500m, 1.5, 64M or 64Mi",
    ),
    (
        "resources: {limits: {cpu: [1]}}",
        "resources.limits[cpu]: expected a quantity, found a list",
    ),
    (
        "image: i:2",
        "image: the key image is given twice, in line 7 and in line 8",
    ),
];

#[test]
fn a_value_that_its_field_cannot_have_is_said_with_what_helps() {
    for (line, expected) in MISTAKES {
        let expected = format!("spec.containers[0].{expected}");
        assert_eq!(messages(&with(line)), [expected]);
    }
}

#[test]
fn words_and_numbers_of_yaml_mean_what_they_mean_for_a_kubelet() {
    let pod = pods(&with(
        "env: [{name: tRue, value: nULL}, {name: yEs, value: oFF}, {name: A, value: null}]\n    \
         ports: [{containerPort: 1e3}, {containerPort: 08}, {containerPort: 5.}]",
    ));
    let container = pod[0].pod.spec.clone().unwrap().containers.remove(0);
    let env: Vec<_> = container.env.unwrap();
    let env = env.iter().map(|it| (&*it.name, it.value.as_deref()));
    let expected = [("tRue", Some("nULL")), ("yEs", Some("oFF")), ("A", None)];
    assert!(env.eq(expected));
    let ports = container.ports.unwrap();
    let ports = ports.iter().map(|it| it.container_port);
    assert!(ports.eq([1000, 8, 5]));
    // In JSON they are no integers for it either.
    let json = r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"ports":[{"containerPort":1e3}]}]}}"#;
    assert_eq!(
        messages(json),
        [
            "spec.containers[0].ports[0].containerPort: expected a whole number, found the number 1000.0"
        ]
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: Web}\nspec:\n  hostNetwork: maybe\n  \
                    restartPolcy: Always\n  containers:\n  - name: 5\n    imgae: i:1\n    \
                    command: [1, a, 2]\n    command: [b]\n    imagePullPolicy: Sometimes\n    \
                    volumeMounts: [{name: v, mountPath: /v}]\n    \
                    resources: {limits: {memory: 64MB, cpu: 100 m}}\n    \
                    ports: [{containerPort: 99999}, {containerPort: \"80\"}]\n";
    let found = static_pods(manifest.as_bytes(), Origin::File("/m"), &"node".into());
    let found: Vec<_> = found.unwrap_err().iter().map(ToString::to_string).collect();
    let expected = [
        "spec.containers[0].command: the key command is given twice, in line 10 and in line 11",
        "spec.containers[0].resources.limits[cpu]: \"100 m\" is not a quantity: did you mean 100m?",
        "spec.containers[0].resources.limits[memory]: \"64MB\" is not a quantity: did you mean 64M?",
        "spec.containers[0].command[0]: expected a text, found the number 1: put it in quotation \
         marks",
        "spec.containers[0].command[2]: expected a text, found the number 2: put it in quotation \
         marks",
        "spec.containers[0].name: expected a text, found the number 5: put it in quotation marks",
        "spec.containers[0].ports[1].containerPort: expected a whole number, found the text \"80\": \
         take the quotation marks away",
        "spec.hostNetwork: expected true or false, found the text \"maybe\"",
        "spec.containers[0].imgae: unknown field: did you mean image?",
        "spec.restartPolcy: unknown field: did you mean restartPolicy?",
        "metadata.name: Invalid value: \"Web-node\": ",
        "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": ",
        "spec.containers[0].ports[0].containerPort: Invalid value: \"99999\": ",
    ];
    let is_expected = |(found, expected): (&String, &&str)| found.starts_with(expected);
    assert!(found.len() == expected.len(), "{found:#?}");
    assert!(found.iter().zip(&expected).all(is_expected), "{found:#?}");
    // Of each kind not more than anybody reads.
    let numbers = vec!["1"; 1000].join(", ");
    assert_eq!(messages(&with(&format!("args: [{numbers}]"))).len(), 20);
}

#[test]
fn no_mistake_is_hidden_by_one_in_a_field_whose_name_begins_alike() {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  \
                    restartPolicyy: Always\n  restartPolicy: Maybe\n  containers:\n  \
                    - {name: c, image: 5, imagePullPolicy: Sometimes}\n";
    let found = static_pods(manifest.as_bytes(), Origin::File("/m"), &"node".into());
    let found: Vec<_> = found.unwrap_err().iter().map(ToString::to_string).collect();
    for field in [
        "spec.restartPolicyy: ",
        "spec.restartPolicy: ",
        "spec.containers[0].image: ",
        "spec.containers[0].imagePullPolicy: ",
    ] {
        assert!(
            found.iter().any(|it| it.starts_with(field)),
            "{field} {found:?}"
        );
    }
}

#[test]
fn quantities_may_be_numbers() {
    let manifest = POD.replace(
        "image: i:1",
        "image: i:1\n    resources: {limits: {cpu: 1, memory: 1073741824}, requests: {cpu: 0.5}}",
    );
    let pod = pods(&manifest).remove(0).pod;
    let resources = pod.spec.unwrap().containers[0].resources.clone().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "1");
    assert_eq!(resources.limits.unwrap()["memory"].0, "1073741824");
    assert_eq!(resources.requests.unwrap()["cpu"].0, "500m");
}

#[test]
fn lists_and_several_documents_are_taken_apart() {
    let second = POD.replace("name: a", "name: b");
    assert_eq!(names(&format!("{POD}---\n{second}")), ["a", "b"]);
    for kind in ["PodList", "List"] {
        let item = |name| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[]}}}}"#
            )
        };
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"resourceVersion":"1"}},"items":[{},{}]}}"#,
            item("a"),
            item("b")
        );
        assert_eq!(names(&list), ["a", "b"], "{kind}");
        assert_eq!(
            names(&format!(
                r#"{{"apiVersion":"v1","kind":"{kind}","items":null}}"#
            )),
            [""; 0]
        );
    }
    let typed = r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}"#;
    assert_eq!(names(typed), ["a"]);
}

#[test]
fn errors_in_lists_and_documents_say_where() {
    let second = POD.replace("name: a", "name: b").replace("image", "imgae");
    assert_eq!(
        messages(&format!("{POD}---\n{second}")),
        ["document 2: spec.containers[0].imgae: unknown field: did you mean image?"]
    );
    let list =
        r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service"}]}"#;
    assert_eq!(
        messages(list),
        [r#"items[0]: expected a v1 Pod, found apiVersion "v1" and kind "Service""#]
    );
    let list = r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"},"spec":{"containers":[{"name":"A"}]}}]}"#;
    let fields: Vec<_> = pods(list)[0]
        .validate()
        .into_iter()
        .map(|error| error.field)
        .collect();
    assert!(
        fields.contains(&"items[0].spec.containers[0].name".to_owned()),
        "{fields:?}"
    );
    assert!(
        fields.contains(&"items[0].metadata.namespace".to_owned()),
        "{fields:?}"
    );
}

#[test]
fn what_is_no_pod_is_refused() {
    for (manifest, text) in [
        ("just text", "expected a Pod, found a text"),
        ("- a\n- b\n", "expected a Pod, found a list"),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            r#"kind "Deployment""#,
        ),
        ("kind: Pod\n", "no apiVersion"),
        ("apiVersion: v1\nkind: Pood\n", r#"kind "Pood""#),
        (r#"{"apiVersion":"v1","kind":"Pod""#, "not valid JSON"),
        ("a: [", "not valid YAML"),
        (
            "a: 1\na: 2\n",
            "a: the key a is given twice, in line 1 and in line 2",
        ),
    ] {
        let found = messages(manifest);
        assert!(found[0].contains(text), "{manifest}: {found:?}");
    }
}

#[test]
fn an_empty_manifest_is_a_mistake_and_an_empty_list_is_not() {
    for empty in ["", "\n", "# to be written\n---\n"] {
        assert_eq!(messages(empty), ["the manifest is empty"]);
    }
    assert!(pods("apiVersion: v1\nkind: PodList\nitems: []\n").is_empty());
}

#[test]
fn what_differs_only_in_zero_values_is_equal() {
    let plain = pods(POD).remove(0).pod;
    let written_out = POD.replace(
        "image: i:1",
        "image: i:1\n    tty: false\n    env: []\n    command: null\n    resources: {limits: {}}",
    ) + "  hostname: \"\"\n  restartPolicy: Always\n";
    assert_eq!(pods(&written_out).remove(0).pod, plain);
}

#[test]
fn a_list_with_too_many_pods_is_refused() {
    let items = vec![r#"{"metadata":{"name":"a"}}"#; pod_manifest::MAX_PODS + 1].join(",");
    let list = format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{items}]}}"#);
    assert!(messages(&list)[0].contains("more than"));
    let documents = vec![POD; 600].join("---\n");
    assert_eq!(pods(&documents).len(), 600);
}

#[test]
fn a_manifest_full_of_mistakes_gives_a_bounded_list() {
    let fields: String = (0..100_000)
        .map(|number| format!("x{number}: 1\n"))
        .collect();
    assert!(messages(&format!("{POD}{fields}")).len() <= pod_validation::MAX_ERRORS);
}

#[test]
fn the_pods_of_a_manifest_have_a_bound_for_all_of_them() {
    let volumes = vec!["{name: v}"; 900].join(", ");
    let pod = format!("{POD}  volumes: [{volumes}]\n");
    assert_eq!(pods(&[&*pod; 11].join("---\n")).len(), 11);
    let found = messages(&[&*pod; 12].join("---\n"));
    let expected = "document 12: the pods of a manifest have more than 100000 items in lists";
    assert!(found[0].starts_with(expected), "{found:?}");
}
