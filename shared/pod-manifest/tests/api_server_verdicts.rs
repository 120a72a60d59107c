//! Agreement with a real API server (1.26.1): its verdict on each of the pods in
//! `tests/data/pod-validation.jsonl`, the fields that it names, and the spec
//! that it stores.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

const CASES: &str = include_str!("../../../tests/data/pod-validation.jsonl");

/// Cases where we go with newer API servers, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "sc/8",
        "1.26 takes any procMount for the default; later ones know the field and refuse what is \
         no value of it",
    ),
    (
        "env/2",
        "1.26 takes no variable whose name begins with a digit; later ones take any printable one",
    ),
];

/// Cases of what is refused whatever it says. Whoever makes one of them supported takes
/// it from here, and gives it the API server's rules.
const NOT_SUPPORTED: &[&str] = &[
    "vol-csi/1",
    "vol-nfs/1",
    "vol-projected/6",
    "vol-projected/7",
    "vol-projected/8",
];

#[derive(Deserialize)]
struct Case {
    id: String,
    pod: Value,
    accepted: bool,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    fields: BTreeSet<String>,
    #[serde(default)]
    spec: Value,
}

enum Verdict {
    Accepted(Value),
    /// Not even a pod: the API server's code 400.
    NotDecoded,
    NotSupported,
    Refused(BTreeSet<String>),
}

fn judge(id: &str, pod: &Value) -> Verdict {
    let Ok(mut pods) = pod_manifest::decode(pod.to_string().as_bytes()) else {
        return Verdict::NotDecoded;
    };
    assert_eq!(pods.len(), 1);
    let mut decoded = pods.remove(0);
    // The namespace of the request's path.
    match decoded.pod.metadata.namespace.as_deref() {
        None => decoded.pod.metadata.namespace = Some("default".to_owned()),
        Some("default") => {}
        Some(_) => return Verdict::NotDecoded,
    }
    let errors = decoded.validate();
    if errors.is_empty() && NOT_SUPPORTED.contains(&id) {
        assert_ne!(decoded.unsupported_fields(), [], "{id}");
        Verdict::NotSupported
    } else if errors.is_empty() {
        serde_json::to_value(&decoded.pod.spec).map_or(Verdict::NotDecoded, Verdict::Accepted)
    } else {
        Verdict::Refused(errors.into_iter().map(|error| error.field).collect())
    }
}

/// Go prints an absent list as null where it does not leave it out.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn every_verdict_is_the_api_servers() {
    let mut disagreements = Vec::new();
    let mut cases = 0;
    for line in CASES.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        cases += 1;
        let problem = match (judge(&case.id, &case.pod), case.accepted) {
            (Verdict::Accepted(spec), true) => {
                let expected = without_nulls(case.spec);
                (spec != expected).then(|| format!("spec\n  {spec}\nand not\n  {expected}"))
            }
            (Verdict::Accepted(_), false) => Some(format!("accepted, not {:?}", case.fields)),
            (Verdict::NotSupported, false) => None,
            (Verdict::NotSupported, true) => Some("not supported".to_owned()),
            (Verdict::NotDecoded, false) if case.code == 400 => None,
            (Verdict::NotDecoded, _) => Some("not decoded".to_owned()),
            (Verdict::Refused(fields), false) => (case.code == 422 && fields != case.fields)
                .then(|| format!("fields {fields:?}, not {:?}", case.fields)),
            (Verdict::Refused(fields), true) => Some(format!("refused for {fields:?}")),
        };
        let is_known = DIFFERENCES.iter().any(|(id, _)| *id == case.id);
        if is_known && problem.is_none() {
            disagreements.push(format!("{}: no difference any more", case.id));
        }
        if let Some(problem) = problem.filter(|_| !is_known) {
            disagreements.push(format!("{}: {problem}", case.id));
        }
    }
    assert!(cases >= 246, "only {cases} cases");
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
