//! Manifests as people write them: what is decoded, what is refused, and
//! whether the message helps to find the mistake.

use pod_manifest::{DecodedPod, decode};

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

#[test]
fn a_value_of_the_wrong_type_is_named() {
    let manifest = POD.replace("image: i:1", "image: i:1\n    command: sh");
    let found = messages(&manifest);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("spec.containers[0].command: invalid type: string"),
        "{found:?}"
    );
    // YAML makes a bool of an unquoted yes, and a number of 1.
    let manifest = POD.replace("image: i:1", "image: i:1\n    args: [yes]");
    assert!(
        messages(&manifest)[0].starts_with("spec.containers[0].args[0]: invalid type: boolean")
    );
    let manifest = POD.replace("{name: a}", "{name: 1}");
    assert!(messages(&manifest)[0].starts_with("metadata.name: invalid type: integer"));
}

#[test]
fn a_bad_quantity_is_named() {
    for (quantity, text) in [
        ("1K", "suffix"),
        ("a", "regular expression"),
        ("[1]", "a list"),
    ] {
        let manifest = POD.replace(
            "image: i:1",
            &format!("image: i:1\n    resources: {{limits: {{memory: {quantity}}}}}"),
        );
        let found = messages(&manifest);
        assert!(
            found[0].starts_with("spec.containers[0].resources.limits[memory]: "),
            "{found:?}"
        );
        assert!(found[0].contains(text), "{found:?}");
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
        ("a: 1\na: 2\n", "not valid YAML"),
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
