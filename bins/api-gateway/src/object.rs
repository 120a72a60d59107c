//! What is looked at of an object of the API server: its metadata. The rest stays as it came,
//! as JSON. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Error;
use serde_json::value::RawValue;

/// Largest object: what an API server stores, with its managed fields. A larger one is left
/// out.
pub(crate) const MAX_OBJECT_BYTES: usize = 3 << 20;

/// What an API server notes of changes and their authors; nothing here looks at it.
const MANAGED_FIELDS: &str = "managedFields";

type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// An object, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// The node that a pod is bound to; of other kinds empty.
    pub(crate) node_name: String,
    /// Without managed fields.
    metadata: Box<str>,
    spec: Box<str>,
    status: Box<str>,
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    metadata: Fields<'a>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: String,
    namespace: String,
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
}

#[derive(Serialize)]
struct Written<'a> {
    metadata: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a RawValue>,
}

impl Object {
    /// Takes an object apart.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn parse(json: &str) -> Result<Object, Error> {
        Object::parse_with_kind(json).map(|(_, object)| object)
    }

    /// The same with its kind, which is empty where it does not say it.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn parse_with_kind(json: &str) -> Result<(String, Object), Error> {
        let Whole {
            kind,
            mut metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        metadata.retain(|key, _| key != MANAGED_FIELDS);
        let metadata = serde_json::to_string(&metadata)?;
        let Metadata {
            uid,
            namespace,
            name,
            resource_version,
        } = serde_json::from_str(&metadata)?;
        let node_name = match spec {
            Some(spec) => serde_json::from_str::<PodSpec>(spec.get())?.node_name,
            None => String::new(),
        };
        let text = |part: Option<&RawValue>| part.map_or_else(Box::default, |it| it.get().into());
        let object = Object {
            uid,
            namespace,
            name,
            version: resource_version,
            node_name,
            metadata: metadata.into(),
            spec: text(spec),
            status: text(status),
        };
        Ok((kind, object))
    }

    /// The object with this spec, and nothing but its name beside it.
    pub(crate) fn with_spec_alone(self, spec: String) -> Object {
        Object {
            metadata: "{}".into(),
            spec: spec.into(),
            status: Box::default(),
            ..self
        }
    }

    /// Its metadata as JSON, without managed fields.
    pub(crate) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// Its spec as JSON; empty without one.
    pub(crate) fn spec(&self) -> &str {
        &self.spec
    }

    /// The object without managed fields.
    pub(crate) fn json(&self) -> Vec<u8> {
        self.written(&self.spec)
    }

    /// The same without its spec.
    pub(crate) fn json_without_spec(&self) -> Vec<u8> {
        self.written("")
    }

    fn written(&self, spec: &str) -> Vec<u8> {
        let part = |text: &str| (!text.is_empty()).then(|| raw(text));
        let (metadata, spec, status) = (raw(&self.metadata), part(spec), part(&self.status));
        let written = Written {
            metadata: &metadata,
            spec: spec.as_deref(),
            status: status.as_deref(),
        };
        // Each part was JSON when it came.
        serde_json::to_vec(&written).unwrap_or_default()
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap_or_default()
}

/// A list.
#[derive(Deserialize)]
pub(crate) struct List<'a> {
    #[serde(default)]
    pub(crate) kind: String,
    pub(crate) metadata: ListMetadata,
    #[serde(borrow, default)]
    pub(crate) items: Vec<&'a RawValue>,
}

/// Of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(crate) struct WatchEvent<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) object: &'a RawValue,
}

/// metav1.Status: why the API server refuses.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

impl Refusal {
    /// What a body says; where it says nothing, the body itself.
    pub(crate) fn of(code: u16, body: &[u8]) -> Refusal {
        let refusal: Option<Refusal> = serde_json::from_slice(body).ok();
        refusal.unwrap_or_else(|| Refusal {
            code,
            message: String::from_utf8_lossy(body).chars().take(256).collect(),
            details: Details::default(),
        })
    }

    /// Whether the version that was asked for is forgotten, or not reached yet.
    pub(crate) fn is_of_version(&self) -> bool {
        let mut causes = self.details.causes.iter();
        self.code == 410 || causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_all_but_its_managed_fields() {
        let json = r#"{"kind":"Pod","metadata":{"name":"a","namespace":"d","uid":"u",
            "resourceVersion":"7","managedFields":[{"manager":"x"}],"generation":2},
            "spec":{"nodeName":"n","x":1.50},"status":{"phase":"Pending"}}"#;
        let object = Object::parse(json).unwrap();
        assert_eq!((&*object.version, &*object.node_name), ("7", "n"));
        let text = String::from_utf8(object.json()).unwrap();
        assert!(!text.contains("manager") && text.contains("1.50"), "{text}");
        assert!(text.contains(r#""generation":2"#), "{text}");
        let text = String::from_utf8(object.json_without_spec()).unwrap();
        assert!(!text.contains("spec") && text.contains("Pending"), "{text}");
    }

    #[test]
    fn a_forgotten_version_is_distinguished_from_other_refusals() {
        let too_large =
            r#"{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        for (body, expected) in [
            (r#"{"code":410,"reason":"Expired"}"#, true),
            (too_large, true),
            (r#"{"code":403,"message":"no"}"#, false),
            ("<html>", false),
        ] {
            assert_eq!(Refusal::of(500, body.as_bytes()).is_of_version(), expected);
        }
    }
}
