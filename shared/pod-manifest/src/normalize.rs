//! Zero values: the API does not tell `""`, `0`, `false` and an empty list from
//! an absent field, except where it says so. Without them equal pods are equal
//! as JSON, whatever their author wrote out.

use serde_json::Value;

/// Fields with keys of the author's: what is in them is kept as it is.
const MAPPINGS: &[&str] = &[
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "limits",
    "requests",
    "overhead",
    "volumeAttributes",
    "fieldsV1",
];

/// Mappings whose values are texts, where nothing means the empty text.
const TEXT_MAPPINGS: &[&str] = &[
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "volumeAttributes",
];

/// Fields where a zero value is not the same as none: the field's name, with
/// the name of the field that holds it where only that one is meant.
const KEPT: &[(&str, &str)] = &[
    ("", "activeDeadlineSeconds"),
    ("", "allowPrivilegeEscalation"),
    ("", "apiGroup"),
    ("", "automountServiceAccountToken"),
    ("", "blockOwnerDeletion"),
    ("", "cachingMode"),
    ("", "controller"),
    ("", "defaultMode"),
    ("", "deletionGracePeriodSeconds"),
    ("", "enableServiceLinks"),
    ("", "expirationSeconds"),
    ("", "fsGroup"),
    ("", "fsGroupChangePolicy"),
    ("", "gmsaCredentialSpec"),
    ("", "gmsaCredentialSpecName"),
    ("", "hostProcess"),
    ("", "hostUsers"),
    ("", "initiatorName"),
    ("", "localhostProfile"),
    ("", "lun"),
    ("", "minDomains"),
    ("", "mode"),
    ("", "mountPropagation"),
    ("", "nodeAffinityPolicy"),
    ("", "nodeTaintsPolicy"),
    ("", "optional"),
    ("", "preemptionPolicy"),
    ("", "priority"),
    ("", "privileged"),
    ("", "procMount"),
    ("", "readOnlyRootFilesystem"),
    ("", "recursiveReadOnly"),
    ("", "resourceClaimName"),
    ("", "resourceClaimTemplateName"),
    ("", "runAsGroup"),
    ("", "runAsNonRoot"),
    ("", "runAsUser"),
    ("", "runAsUserName"),
    ("", "runtimeClassName"),
    ("", "seLinuxChangePolicy"),
    ("", "service"),
    ("", "setHostnameAsFQDN"),
    ("", "shareProcessNamespace"),
    ("", "signerName"),
    ("", "sources"),
    ("", "storageClassName"),
    ("", "supplementalGroupsPolicy"),
    ("", "terminationGracePeriodSeconds"),
    ("", "tolerationSeconds"),
    ("", "volumeAttributesClassName"),
    ("", "volumeMode"),
    ("azureDisk", "fsType"),
    ("azureDisk", "kind"),
    ("azureDisk", "readOnly"),
    ("clusterTrustBundle", "name"),
    ("containers", "restartPolicy"),
    ("csi", "fsType"),
    ("csi", "readOnly"),
    ("dataSourceRef", "namespace"),
    ("ephemeralContainers", "restartPolicy"),
    ("hostPath", "type"),
    ("initContainers", "restartPolicy"),
    ("options", "value"),
];

/// Makes empty texts of the nulls in mappings of texts.
pub(crate) fn fill_map_values(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(fill_map_values),
        Value::Object(fields) => {
            for (name, inner) in fields {
                if TEXT_MAPPINGS.contains(&name.as_str()) {
                    for entry in inner
                        .as_object_mut()
                        .into_iter()
                        .flat_map(|map| map.values_mut())
                    {
                        if entry.is_null() {
                            *entry = Value::String(String::new());
                        }
                    }
                } else if !MAPPINGS.contains(&name.as_str()) {
                    fill_map_values(inner);
                }
            }
        }
        _ => {}
    }
}

/// Removes every field whose value means the same as its absence.
pub(crate) fn drop_zero_values(value: &mut Value) {
    drop_within("", value);
}

fn drop_within(parent: &str, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| drop_within(parent, item)),
        Value::Object(fields) => fields.retain(|name, inner| {
            if MAPPINGS.contains(&name.as_str()) {
                return inner.as_object().is_some_and(|map| !map.is_empty());
            }
            drop_within(name, inner);
            !is_zero(inner) || (!inner.is_null() && is_kept(parent, name))
        }),
        _ => {}
    }
}

fn is_kept(parent: &str, name: &str) -> bool {
    KEPT.iter()
        .any(|(only_in, kept)| *kept == name && (only_in.is_empty() || *only_in == parent))
}

/// A mapping is never zero: an empty one chooses, as `emptyDir: {}` does.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dropped(mut value: Value) -> Value {
        drop_zero_values(&mut value);
        value
    }

    #[test]
    fn zero_values_are_dropped_where_they_mean_nothing() {
        assert_eq!(
            dropped(
                json!({"spec": {"hostname": "", "hostNetwork": false, "tolerations": [],
                "nodeSelector": {}, "restartPolicy": "",
                "containers": [{"name": "c", "tty": false, "ports": [{"hostPort": 0}],
                                "env": [{"name": "A", "value": ""}], "command": null}]}})
            ),
            json!({"spec": {"containers": [{"name": "c", "ports": [{}], "env": [{"name": "A"}]}]}})
        );
    }

    #[test]
    fn zero_values_are_kept_where_they_mean_something() {
        for kept in [
            json!({"spec": {"terminationGracePeriodSeconds": 0, "shareProcessNamespace": false}}),
            json!({"volumes": [{"hostPath": {"path": "/a", "type": ""}}, {"emptyDir": {}}]}),
            json!({"securityContext": {"runAsUser": 0, "privileged": false}}),
            json!({"metadata": {"labels": {"a": "", "tty": ""}}}),
            json!({"dnsConfig": {"options": [{"name": "a", "value": ""}]}}),
        ] {
            assert_eq!(dropped(kept.clone()), kept);
        }
    }

    #[test]
    fn nothing_is_the_empty_text_in_labels() {
        let mut value = json!({"metadata": {"labels": {"a": null}}, "spec": {"hostname": null}});
        fill_map_values(&mut value);
        assert_eq!(
            value,
            json!({"metadata": {"labels": {"a": ""}}, "spec": {"hostname": null}})
        );
    }
}
