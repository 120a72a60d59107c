//! What the downward API tells of a pod: fields of its metadata, and requests and limits
//! of its containers. Variables and files are made of the same values.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::accessors::PodExt;
use crate::huge_pages::HUGE_PAGES_PREFIX;
use crate::quantity::Quantity;
use crate::resources::{
    CPU, EPHEMERAL_STORAGE, MEMORY, container_limits_in_pod, container_requests,
};

/// Why there is no such value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DownwardError {
    /// The divisor is no quantity.
    #[error("{0}")]
    Divisor(String),
    /// It is nothing that is told of a container.
    #[error("unsupported container resource : {0}")]
    Resource(String),
}

/// A field of the pod's metadata as text: `None` if the path names none. All labels or
/// annotations come one to a line, as the kubelet writes them into files.
#[must_use]
pub fn metadata_field(pod: &Pod, path: &str) -> Option<String> {
    let metadata = &pod.metadata;
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return None,
        };
        let value = map.as_ref().and_then(|map| map.get(key)).cloned();
        return Some(value.unwrap_or_default());
    }
    Some(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_owned(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        _ => return None,
    })
}

/// `metadata.labels['key']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// `key="value"` by line, in the order of keys.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines: Vec<String> = lines
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// The text as a string literal of Go, which is how the kubelet writes it (`%q`).
fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for letter in text.chars() {
        match letter {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\u{7}' => literal.push_str("\\a"),
            '\u{8}' => literal.push_str("\\b"),
            '\u{c}' => literal.push_str("\\f"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            '\u{b}' => literal.push_str("\\v"),
            letter if u32::from(letter) < 0x20 || letter == '\u{7f}' => {
                literal.push_str(&format!("\\x{:02x}", u32::from(letter)));
            }
            letter if letter == '\'' || is_printable(letter) => literal.push(letter),
            letter if u32::from(letter) < 0x1_0000 => {
                literal.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => literal.push_str(&format!("\\U{:08x}", u32::from(letter))),
        }
    }
    literal.push('"');
    literal
}

/// As the standard library has it, which prints a mark that follows a letter, as Go does.
fn is_printable(letter: char) -> bool {
    let mut bytes = [b'a'; 5];
    let letter_bytes = letter.encode_utf8(&mut bytes[1..]).len();
    let after_a_letter = str::from_utf8(&bytes[..=letter_bytes]).unwrap_or_default();
    after_a_letter.escape_debug().eq(after_a_letter.chars())
}

/// A request or limit of a container in units of the divisor, rounded up. A limit that
/// is not stated is that of the pod as a whole, or else what the node has for pods.
///
/// # Errors
/// When the selector names nothing that is told, or has a divisor that is no quantity.
pub fn resource_value(
    (pod, container): (&Pod, &Container),
    selector: &ResourceFieldSelector,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, DownwardError> {
    let stated = selector.divisor.as_ref().map(Quantity::from_api);
    let stated = stated
        .transpose()
        .map_err(|error| DownwardError::Divisor(error.to_string()))?;
    let divisor = stated
        .filter(|divisor| !divisor.is_zero())
        .unwrap_or(Quantity::from_millis(1000));
    let resource = selector.resource.as_str();
    let amount = match resource.split_once('.') {
        Some(("limits", name)) if is_exposed(name) => {
            let stated = container_limits_in_pod(pod, container)
                .get(name)
                .filter(|amount| !amount.is_zero());
            stated.or_else(|| allocatable.get(name).copied())
        }
        Some(("requests", name)) if is_exposed(name) => container_requests(container).get(name),
        _ => return Err(DownwardError::Resource(resource.to_owned())),
    };
    let amount = amount.unwrap_or(Quantity::ZERO);
    let (amount, divisor) = if resource.ends_with(".cpu") {
        (amount.milli_value(), divisor.milli_value())
    } else {
        (amount.value(), divisor.value())
    };
    Ok(rounded_up(amount, divisor).to_string())
}

fn is_exposed(name: &str) -> bool {
    matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE) || name.starts_with(HUGE_PAGES_PREFIX)
}

fn rounded_up(amount: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    amount / divisor + i64::from(amount % divisor > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let text = r#"{"metadata":{"name":"p","namespace":"n","uid":"u",
            "labels":{"b":"2","a":"1"},
            "annotations":{"note":"a \"b\"\\\n\tü\u0001\u00a0","plain":"x"}}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn fields_of_metadata_are_told_as_the_kubelet_writes_them() {
        for (path, expected) in [
            ("metadata.name", Some("p")),
            ("metadata.namespace", Some("n")),
            ("metadata.uid", Some("u")),
            ("metadata.labels", Some("a=\"1\"\nb=\"2\"")),
            (
                "metadata.annotations",
                Some("note=\"a \\\"b\\\"\\\\\\n\\tü\\x01\\u00a0\"\nplain=\"x\""),
            ),
            ("metadata.labels['a']", Some("1")),
            ("metadata.labels['none']", Some("")),
            ("metadata.annotations['plain']", Some("x")),
            ("metadata.finalizers['x']", None),
            ("status.podIP", None),
            ("", None),
        ] {
            let found = metadata_field(&pod(), path);
            assert_eq!(found.as_deref(), expected, "{path}");
        }
        let bare = Pod::default();
        assert_eq!(
            metadata_field(&bare, "metadata.labels").as_deref(),
            Some("")
        );
    }

    /// As a kubelet since 1.35: a container without a limit has that of its pod as a whole,
    /// whatever the node has, and without one what the node has for pods. Requests, and
    /// huge pages, are the container's own.
    #[test]
    fn limits_that_a_container_does_not_state_are_those_of_its_pod_or_of_the_node() {
        let value = |of_pod: &str, own: &str, resource: &str| {
            let pod: Pod = serde_json::from_str(&format!(
                r#"{{"spec":{{"resources":{of_pod},
                    "containers":[{{"name":"c","resources":{own}}}]}}}}"#
            ))
            .unwrap();
            let selector: ResourceFieldSelector =
                serde_json::from_str(&format!(r#"{{"resource":"{resource}"}}"#)).unwrap();
            let node = [("cpu", "4"), ("memory", "4096"), ("ephemeral-storage", "9")];
            let node = node.map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
            resource_value((&pod, &pod.containers()[0]), &selector, &node.into()).unwrap()
        };
        let pod = r#"{"limits":{"cpu":"2","memory":"1000","hugepages-2Mi":"4Mi"},
            "requests":{"cpu":"2","memory":"500","hugepages-2Mi":"4Mi"}}"#;
        let larger = r#"{"limits":{"memory":"8192"}}"#;
        let own = r#"{"limits":{"cpu":"1","memory":"100"},"requests":{"cpu":"1"}}"#;
        let zero = r#"{"limits":{"cpu":"0","memory":"0"}}"#;
        for (of_pod, of_container, resource, expected) in [
            (pod, own, "limits.cpu", "1"),
            (pod, own, "limits.memory", "100"),
            (pod, "{}", "limits.cpu", "2"),
            (pod, "{}", "limits.memory", "1000"),
            (pod, zero, "limits.cpu", "2"),
            (pod, "{}", "limits.ephemeral-storage", "9"),
            (pod, "{}", "limits.hugepages-2Mi", "0"),
            (pod, "{}", "requests.cpu", "0"),
            (pod, "{}", "requests.memory", "0"),
            (larger, "{}", "limits.memory", "8192"),
            (larger, "{}", "limits.cpu", "4"),
            (zero, "{}", "limits.memory", "4096"),
            ("{}", "{}", "limits.memory", "4096"),
            ("{}", zero, "limits.cpu", "4"),
        ] {
            let found = value(of_pod, of_container, resource);
            assert_eq!(found, expected, "{of_pod} {of_container} {resource}");
        }
    }

    #[test]
    fn a_mark_after_a_letter_is_printed_and_what_has_no_picture_is_escaped() {
        for (text, expected) in [
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{200b}", r#""\u200b""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("\u{7f}\u{7}\u{8}\u{b}\u{c}\r", r#""\x7f\a\b\v\f\r""#),
            ("'", "\"'\""),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
