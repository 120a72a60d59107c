//! ConfigMaps, Secrets and PersistentVolumes in a manifest, as an API server would take
//! them. No error shows a value of a ConfigMap or Secret.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use local_objects::{LocalObject, MAX_OBJECT_KEYS, ObjectBytes, ObjectKind, ObjectRef};
use pod::identity::{check_label, check_name};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use value_errors::{nearest, shown};

use crate::persistent_volume;

/// What a manifest of objects may have.
const KINDS: &str = "ConfigMap, Secret or PersistentVolume";

/// Most bytes of all values of an object, as with an API server.
pub const MAX_OBJECT_BYTES: usize = 1 << 20;

/// Longest key.
const MAX_KEY_BYTES: usize = 253;

/// Where an object is that names no namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// An object of a manifest. Displays with what people know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedObject {
    /// Its name in the manifest. A PersistentVolume is referred to by its claim instead.
    pub name: String,
    /// The object.
    pub object: LocalObject,
    /// Whether its content may not change any more.
    pub immutable: bool,
}

impl fmt::Display for DecodedObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = &self.object.reference;
        match reference.kind {
            ObjectKind::PersistentVolume => {
                write!(formatter, "{} {}", reference.kind.name(), self.name)
            }
            ObjectKind::ConfigMap | ObjectKind::Secret => reference.fmt(formatter),
        }
    }
}

/// The objects of a manifest.
///
/// # Errors
/// What is wrong with the manifest: one bad document makes all of it bad.
pub fn local_objects(bytes: &[u8]) -> Result<Vec<DecodedObject>, String> {
    let documents = documents::parse(bytes)?;
    if documents.values.is_empty() {
        // Most likely it is just being written.
        return Err("the manifest is empty".to_owned());
    }
    let repeated = documents.repeated_keys.iter();
    let mut problems: Vec<String> = repeated
        .map(|it| format!("document {}: {it}", it.document))
        .collect();
    let mut objects = Vec::new();
    for (index, document) in documents.values.into_iter().enumerate() {
        match decoded(document) {
            Ok(object) => objects.push(object),
            Err(found) => {
                let found = found.into_iter();
                problems.extend(found.map(|it| format!("document {}: {it}", index + 1)));
            }
        }
    }
    if problems.is_empty() {
        return Ok(objects);
    }
    problems.truncate(MAX_PROBLEMS);
    Err(problems.join("; "))
}

/// Most problems of a manifest that are named.
const MAX_PROBLEMS: usize = 20;

fn decoded(document: Value) -> Result<DecodedObject, Vec<String>> {
    let (kind, mut fields) = of_kind(document).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let metadata = fields.remove("metadata");
    if kind == ObjectKind::PersistentVolume {
        noted(check_annotations(metadata.as_ref()), &mut problems);
    }
    let reference = noted(reference(kind, metadata), &mut problems);
    let immutable = noted(
        is_immutable(kind, fields.remove("immutable")),
        &mut problems,
    );
    let name = reference.as_ref().map(|reference| reference.name.clone());
    let mut claim = None;
    let mut data = BTreeMap::new();
    let mut binary_keys = BTreeSet::new();
    match kind {
        ObjectKind::ConfigMap => {
            binary_keys = add_config_map(&mut data, &mut fields, &mut problems);
        }
        ObjectKind::Secret => add_secret(&mut data, &mut fields, &mut problems),
        ObjectKind::PersistentVolume => {
            // Who binds and releases volumes keeps notes there; here nobody does.
            fields.remove("status");
            let bound = persistent_volume::decoded(fields.remove("spec"));
            if let Some(bound) = noted(bound, &mut problems) {
                claim = Some(bound.claim);
                data = bound.volume.data();
            }
        }
    }
    problems.extend(fields.keys().map(|name| unknown_field(kind, name)));
    let size: usize = data.values().map(|value| value.as_slice().len()).sum();
    if size > MAX_OBJECT_BYTES {
        problems.push(format!("data: {size} bytes, more than {MAX_OBJECT_BYTES}"));
    }
    let (Some(mut reference), Some(name), Some(immutable), true) =
        (reference, name, immutable, problems.is_empty())
    else {
        return Err(problems);
    };
    if let Some((namespace, name)) = claim {
        (reference.namespace, reference.name) = (namespace, name);
    }
    let version = version_of(&data, &binary_keys);
    let object = LocalObject {
        reference,
        version,
        data,
        binary_keys,
    };
    Ok(DecodedObject {
        name,
        object,
        immutable,
    })
}

/// What is right; what is wrong is kept with the other problems.
fn noted<T>(result: Result<T, String>, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

/// The kind of a document, and its other fields.
fn of_kind(document: Value) -> Result<(ObjectKind, Map<String, Value>), String> {
    let Value::Object(mut fields) = document else {
        return Err(format!("expected a {KINDS}"));
    };
    let kind = fields.remove("kind");
    let kind = kind.as_ref().and_then(Value::as_str);
    let kind = kind.and_then(ObjectKind::parse);
    let version = fields.remove("apiVersion");
    match (kind, version.as_ref().and_then(Value::as_str)) {
        (Some(kind), Some("v1")) => Ok((kind, fields)),
        _ => Err(format!("expected a v1 {KINDS}")),
    }
}

fn is_immutable(kind: ObjectKind, value: Option<Value>) -> Result<bool, String> {
    match (kind, value) {
        // Where a volume is may not change, as with an API server.
        (ObjectKind::PersistentVolume, None) => Ok(true),
        (ObjectKind::PersistentVolume, Some(_)) => Err("immutable: unknown field".to_owned()),
        (_, None | Some(Value::Null)) => Ok(false),
        (_, Some(Value::Bool(immutable))) => Ok(immutable),
        (_, Some(_)) => Err("immutable: expected true or false".to_owned()),
    }
}

fn unknown_field(kind: ObjectKind, name: &str) -> String {
    let known: &[&str] = match kind {
        ObjectKind::ConfigMap => &["metadata", "immutable", "data", "binaryData"],
        ObjectKind::Secret => &["metadata", "immutable", "data", "stringData", "type"],
        ObjectKind::PersistentVolume => &["metadata", "spec"],
    };
    let meant = nearest(name, known.iter().copied());
    let hint = meant.map_or_else(String::new, |known| format!(": did you mean {known}?"));
    format!("{}: unknown field{hint}", shown(name))
}

/// Adds what a ConfigMap has; answers with the keys of what is not text.
fn add_config_map(
    data: &mut BTreeMap<String, ObjectBytes>,
    fields: &mut Map<String, Value>,
    problems: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut add = |field, form| {
        let values = fields.remove(field);
        add(data, (field, values), form, Again::Refused, problems)
    };
    add("data", Form::Text);
    add("binaryData", Form::Base64)
}

/// Adds what a Secret has.
fn add_secret(
    data: &mut BTreeMap<String, ObjectBytes>,
    fields: &mut Map<String, Value>,
    problems: &mut Vec<String>,
) {
    let (bytes, texts) = (fields.remove("data"), fields.remove("stringData"));
    let before = problems.len();
    add(
        data,
        ("data", bytes),
        Form::Base64,
        Again::Refused,
        problems,
    );
    add(
        data,
        ("stringData", texts),
        Form::Text,
        Again::Wins,
        problems,
    );
    let kind = fields.remove("type");
    // What could not be read may be what its type asks for.
    if problems.len() == before {
        noted(
            check_type(kind.as_ref().and_then(Value::as_str), data),
            problems,
        );
    }
}

/// The group that a kubelet gives to every container of a pod with the volume.
const GROUP_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";

/// Of a volume's annotations one would change how pods run.
fn check_annotations(metadata: Option<&Value>) -> Result<(), String> {
    let group = metadata.and_then(|it| it.get("annotations")?.get(GROUP_ANNOTATION));
    match group {
        None => Ok(()),
        Some(_) => Err(format!(
            "metadata.annotations[{GROUP_ANNOTATION}]: not supported: give the pod supplementalGroups"
        )),
    }
}

fn reference(kind: ObjectKind, metadata: Option<Value>) -> Result<ObjectRef, String> {
    let Some(Value::Object(metadata)) = metadata else {
        return Err("metadata: required".to_owned());
    };
    let text = |field: &str| match metadata.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("metadata.{field}: expected a text")),
    };
    let name = text("name")?.ok_or("metadata.name: required")?;
    let namespace = text("namespace")?.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    check_name("object name", &name).map_err(|error| format!("metadata.name: {error}"))?;
    check_label("namespace", &namespace).map_err(|error| format!("metadata.namespace: {error}"))?;
    Ok(ObjectRef {
        kind,
        namespace,
        name,
    })
}

/// Types of Secrets that have something certain in them, as far as a node uses it.
const TYPES: [(&str, &str); 2] = [
    ("kubernetes.io/dockerconfigjson", ".dockerconfigjson"),
    ("kubernetes.io/dockercfg", ".dockercfg"),
];

/// As an API server: the key is there, with a JSON object.
fn check_type(kind: Option<&str>, data: &BTreeMap<String, ObjectBytes>) -> Result<(), String> {
    let known = TYPES.into_iter().find(|(name, _)| kind == Some(*name));
    let Some((name, key)) = known else {
        return Ok(());
    };
    let value = data.get(key);
    let value = value.ok_or(format!("data[{key}]: required for the type {name}"))?;
    let json: Result<Map<String, Value>, _> = serde_json::from_slice(value.as_slice());
    json.map_err(|_| format!("data[{key}]: not a JSON object"))?;
    Ok(())
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Base64,
}

/// What becomes of a key that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Refused,
    Wins,
}

/// Adds the values of a field; answers with the keys that were not there before.
fn add(
    data: &mut BTreeMap<String, ObjectBytes>,
    (field, values): (&str, Option<Value>),
    form: Form,
    again: Again,
    problems: &mut Vec<String>,
) -> BTreeSet<String> {
    let mut added = BTreeSet::new();
    let values: Map<String, Value> = match values {
        None | Some(Value::Null) => return added,
        Some(Value::Object(values)) => values,
        Some(_) => {
            problems.push(format!("{field}: expected a mapping"));
            return added;
        }
    };
    for (key, value) in values {
        let Some(bytes) = noted(bytes_of(field, &key, value, form), problems) else {
            continue;
        };
        let before = data.insert(key.clone(), bytes.into());
        if before.is_some() && again == Again::Refused {
            problems.push(format!("{field}[{key}]: the key is there twice"));
        }
        if before.is_none() {
            added.insert(key);
        }
        if data.len() > MAX_OBJECT_KEYS {
            problems.push(format!("{field}: more than {MAX_OBJECT_KEYS} keys"));
            break;
        }
    }
    added
}

fn bytes_of(field: &str, key: &str, value: Value, form: Form) -> Result<Vec<u8>, String> {
    if !is_key(key) {
        return Err(format!(
            "{field}: \"{}\" is no key: it has letters, digits, '-', '_' and '.' only, and \
             neither is '.' nor begins with '..'",
            shown(key)
        ));
    }
    let text = match value {
        Value::String(text) => text,
        // A key without a value has the empty one, for an API server too.
        Value::Null => String::new(),
        Value::Number(_) | Value::Bool(_) => {
            let advice = "put it in quotation marks";
            return Err(format!("{field}[{key}]: expected a text: {advice}"));
        }
        _ => return Err(format!("{field}[{key}]: expected a text")),
    };
    match form {
        Form::Text => Ok(text.into_bytes()),
        Form::Base64 => base64(text).ok_or(format!("{field}[{key}]: not base64")),
    }
}

/// The decoder of the API's own types; like that of an API server it passes over line breaks,
/// which `base64` writes and a YAML block ends with.
fn base64(mut text: String) -> Option<Vec<u8>> {
    text.retain(|character| !matches!(character, '\r' | '\n'));
    let bytes: Option<pod::ByteString> = serde_json::from_value(Value::String(text)).ok();
    bytes.map(|bytes| bytes.0)
}

fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !key.is_empty()
        && key.len() <= MAX_KEY_BYTES
        && key.bytes().all(is_allowed)
        && key != "."
        && !key.starts_with("..")
}

/// A digest of all keys and values.
fn version_of(data: &BTreeMap<String, ObjectBytes>, binary_keys: &BTreeSet<String>) -> String {
    let mut digest = Sha256::new();
    for (key, value) in data {
        for part in [key.as_bytes(), value.as_slice()] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
    }
    for key in binary_keys {
        digest.update(key.as_bytes());
        digest.update([0]);
    }
    format!("{:x}", digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<DecodedObject, String> {
        local_objects(text.as_bytes()).map(|mut objects| objects.remove(0))
    }

    fn values(decoded: &DecodedObject) -> Vec<(&str, &str)> {
        let data = decoded.object.data.iter();
        data.map(|(key, value)| (key.as_str(), str::from_utf8(value.as_slice()).unwrap()))
            .collect()
    }

    #[test]
    fn texts_and_bytes_of_both_kinds_are_read() {
        let config_map = one("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n\
             immutable: true\ndata: {a: one, b: \"\"}\nbinaryData: {c: dHdv}")
        .unwrap();
        assert_eq!(
            config_map.object.reference.to_string(),
            "ConfigMap default/c"
        );
        assert_eq!(values(&config_map), [("a", "one"), ("b", ""), ("c", "two")]);
        assert!(config_map.immutable);
        assert_eq!(config_map.object.binary_keys, ["c".to_owned()].into());
        let secret = one("apiVersion: v1\nkind: Secret\ntype: Opaque\n\
             metadata: {name: s.x, namespace: shop, labels: {a: b}}\n\
             data: {a: b25l, b: b25l}\nstringData: {b: two}")
        .unwrap();
        assert_eq!(secret.object.reference.to_string(), "Secret shop/s.x");
        assert_eq!(values(&secret), [("a", "one"), ("b", "two")]);
        assert!(!secret.immutable);
        let credentials = one("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n\
             type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{}'}");
        assert_eq!(values(&credentials.unwrap()), [(".dockerconfigjson", "{}")]);
    }

    #[test]
    fn line_breaks_in_base64_and_keys_without_a_value_are_taken() {
        let secret = one(
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  \
             a: |\n    b2\n    5l\n  b: \"dH\\r\\ndv\\n\"\n  c:\nstringData:\n  d:",
        )
        .unwrap();
        let expected = [("a", "one"), ("b", "two"), ("c", ""), ("d", "")];
        assert_eq!(values(&secret), expected);
        let config_map = one("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n\
             data: {a: null, b: \"x\\n\"}\nbinaryData: {c: \"dHdv\\n\", d: ~}")
        .unwrap();
        let expected = [("a", ""), ("b", "x\n"), ("c", "two"), ("d", "")];
        assert_eq!(values(&config_map), expected);
        // Nor does an API server take blanks.
        for text in ["b2 5l", "b25l ", "\\tb25l"] {
            let text = format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ndata: {{a: \"{text}\"}}"
            );
            assert_eq!(one(&text).unwrap_err(), "document 1: data[a]: not base64");
        }
    }

    #[test]
    fn a_volume_is_known_by_its_claim() {
        let volume = one(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk-1}\n\
             status: {phase: Bound}\n\
             spec: {local: {path: /srv/a}, claimRef: {namespace: shop, name: data}}",
        )
        .unwrap();
        let reference = volume.object.reference.to_string();
        assert_eq!(reference, "PersistentVolume of the claim shop/data");
        assert_eq!(volume.to_string(), "PersistentVolume disk-1");
        assert_eq!(
            values(&volume),
            [("local", ""), ("path", "/srv/a"), ("type", "Directory")]
        );
    }

    #[test]
    fn a_volume_whose_group_pods_would_lack_is_refused() {
        let volume = |annotation: &str| {
            one(&format!(
                "apiVersion: v1\nkind: PersistentVolume\n\
                 metadata: {{name: disk-1, annotations: {{{annotation}: \"5555\"}}}}\n\
                 spec: {{local: {{path: /srv/a}}, claimRef: {{namespace: shop, name: data}}}}",
            ))
        };
        assert!(volume("example.com/note").is_ok());
        let refused = volume("pv.beta.kubernetes.io/gid").unwrap_err();
        let field = "document 1: metadata.annotations[pv.beta.kubernetes.io/gid]: not supported";
        assert!(refused.starts_with(field), "{refused}");
    }

    #[test]
    fn a_manifest_may_have_several_objects() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\
            apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
        assert_eq!(local_objects(text.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn other_content_is_another_version() {
        let version = |data: &str| {
            let text =
                format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}");
            one(&text).unwrap().object.version
        };
        assert_eq!(version("{a: b}"), version("{a: b}"));
        let different = ["{}", "{a: b}", "{a: c}", "{ab: ''}", "{a: '', b: ''}"];
        let versions: BTreeSet<_> = different.map(version).into();
        assert_eq!(versions.len(), different.len());
    }

    #[test]
    fn what_is_wrong_is_said_without_any_value() {
        for (text, expected) in [
            (String::new(), "the manifest is empty"),
            (
                "[]".to_owned(),
                "document 1: expected a ConfigMap, Secret or PersistentVolume",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}".to_owned(),
                "document 1: expected a v1 ConfigMap, Secret or PersistentVolume",
            ),
            (
                "apiVersion: v1\nkind: Secret".to_owned(),
                "document 1: metadata: required",
            ),
            (
                "apiVersion: v1\nkind: Secret\nmetadata: {}".to_owned(),
                "document 1: metadata.name: required",
            ),
        ] {
            assert_eq!(one(&text).unwrap_err(), expected);
        }
    }

    #[test]
    fn all_that_is_wrong_with_an_object_is_said_at_once() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n\
                    data: {PORT: 8080, b: c, DEBUG: true}\nbinarydata: {}";
        let error = one(text).unwrap_err();
        for part in [
            "document 1: metadata.name: ",
            "document 1: data[DEBUG]: expected a text: put it in quotation marks; ",
            "document 1: data[PORT]: expected a text: put it in quotation marks; ",
            "document 1: binarydata: unknown field: did you mean binaryData?",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_is_wrong_with_data_is_said_without_any_value() {
        let head = |kind: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n");
        let large = "x".repeat(MAX_OBJECT_BYTES + 1);
        for (text, expected) in [
            (
                head("Secret") + "data: {password: hunter2!}",
                "document 1: data[password]: not base64",
            ),
            (
                head("Secret") + "type: kubernetes.io/dockerconfigjson\nstringData: {a: hunter2}",
                "document 1: data[.dockerconfigjson]: required for the type \
                 kubernetes.io/dockerconfigjson",
            ),
            (
                head("Secret") + "type: kubernetes.io/dockercfg\nstringData: {.dockercfg: hunter2}",
                "document 1: data[.dockercfg]: not a JSON object",
            ),
            (
                head("Secret") + "stringData: {password: 4711}",
                "document 1: stringData[password]: expected a text: put it in quotation marks",
            ),
            (
                head("ConfigMap") + "data: {a: [hunter2]}",
                "document 1: data[a]: expected a text",
            ),
            (
                head("ConfigMap") + "binarydata: {a: hunter2}",
                "document 1: binarydata: unknown field: did you mean binaryData?",
            ),
            (
                head("Secret")
                    + "data: {a: hunter2, a: hunter3}\n---\n"
                    + &head("Secret")
                    + "type: 5\nDATA: {}",
                "document 1: data.a: the key a is given twice in line 4; document 1: data[a]: not \
                 base64; document 2: DATA: unknown field: did you mean data?",
            ),
            (
                head("ConfigMap") + "stringData: {a: hunter2}",
                "document 1: stringData: unknown field",
            ),
            (
                head("ConfigMap") + "data: {a: hunter2}\nbinaryData: {a: aHVudGVyMg==}",
                "document 1: binaryData[a]: the key is there twice",
            ),
            (
                head("Secret") + "immutable: hunter2",
                "document 1: immutable: expected true or false",
            ),
            (
                head("ConfigMap") + "data: {a: " + &large + "}",
                "document 1: data: 1048577 bytes, more than 1048576",
            ),
        ] {
            assert_eq!(one(&text).unwrap_err(), expected);
        }
        for key in ["..", "..a", ".", "a/b", "ü", "''"] {
            let error =
                one(&(head("ConfigMap") + &format!("data: {{{key}: hunter2}}"))).unwrap_err();
            assert!(
                error.contains("is no key") && !error.contains("hunter2"),
                "{error}"
            );
        }
        for name in ["../a", "A", "''"] {
            let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}");
            assert!(one(&text).unwrap_err().contains("metadata.name"), "{name}");
        }
    }
}
