//! Merge patches, and strategic merge patches as far as nodes send them. Pure.

use serde_json::{Map, Value};

/// The lists that a strategic merge patch merges, and by which field; it replaces all others.
const MERGE_KEYS: [(&str, &str); 4] = [
    ("conditions", "type"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("addresses", "type"),
];

/// What a strategic merge patch does with an item, or with a list if the item has nothing else.
const DIRECTIVE: &str = "$patch";

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    merge_with(target, patch, &|_, _, _| false);
}

/// The same, but some lists are merged by a key.
pub(super) fn strategic_merge(target: &mut Value, patch: &Value) {
    merge_with(target, patch, &merge_list);
}

/// `lists` merges a list of this name, or says that it is to be replaced.
fn merge_with(
    target: &mut Value,
    patch: &Value,
    lists: &impl Fn(&str, &mut Value, &[Value]) -> bool,
) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, new) in fields {
        if field.starts_with('$') {
            continue;
        }
        let old = &mut target[field];
        match new {
            Value::Null => {
                target.as_object_mut().map(|target| target.remove(field));
            }
            Value::Array(items) if lists(field, old, items) => {}
            new => merge_with(old, new, lists),
        }
    }
}

fn merge_list(field: &str, target: &mut Value, items: &[Value]) -> bool {
    let Some((_, key)) = MERGE_KEYS.iter().find(|(list, _)| *list == field) else {
        return false;
    };
    let mut list = target.as_array().cloned().unwrap_or_default();
    let is_replaced = |it: &Value| it[DIRECTIVE] == "replace" && it[*key].is_null();
    if items.iter().any(is_replaced) {
        list = items
            .iter()
            .filter(|it| !is_replaced(it))
            .cloned()
            .collect();
        *target = list.into();
        return true;
    }
    for item in items {
        let place = list.iter().position(|it| it[*key] == item[*key]);
        match (place, item[DIRECTIVE] == "delete") {
            (Some(place), true) => drop(list.remove(place)),
            (None, true) => {}
            (Some(place), false) => strategic_merge(&mut list[place], item),
            (None, false) => {
                let mut new = Value::Null;
                strategic_merge(&mut new, item);
                list.push(new);
            }
        }
    }
    *target = list.into();
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_merge_by_their_key_and_others_are_replaced() {
        let ready = json!({"type": "Ready", "status": "False", "reason": "r"});
        let other = json!({"type": "Other", "status": "True"});
        for (field, old, patch, expected) in [
            (
                "conditions",
                json!([ready, other]),
                json!([{"type": "Ready", "status": "True", "reason": null}]),
                json!([{"type": "Ready", "status": "True"}, other]),
            ),
            (
                "conditions",
                json!([ready, other]),
                json!([{"type": "Ready", "$patch": "delete"}, {"type": "N", "reason": null}]),
                json!([other, {"type": "N"}]),
            ),
            (
                "podIPs",
                json!([{"ip": "1"}]),
                json!([{"ip": "2"}, {"ip": "1", "$patch": "delete"}]),
                json!([{"ip": "2"}]),
            ),
            (
                "addresses",
                json!([{"type": "InternalIP", "address": "1"}]),
                json!([{"type": "Hostname", "address": "n"}, {"$patch": "replace"}]),
                json!([{"type": "Hostname", "address": "n"}]),
            ),
            (
                "containerStatuses",
                json!([{"name": "a", "x": 1}]),
                json!([{"name": "b"}]),
                json!([{"name": "b"}]),
            ),
        ] {
            let mut object = json!({"status": {field: old, "phase": "Running"}});
            let order = format!("$setElementOrder/{field}");
            let patch = json!({"status": {field: patch, order: [], "gone": null}});
            strategic_merge(&mut object, &patch);
            let expected = json!({"status": {field: expected, "phase": "Running"}});
            assert_eq!(object, expected, "{patch}");
        }
    }

    #[test]
    fn a_merge_patch_replaces_every_list() {
        let mut object = json!({"spec": {"a": 1, "b": 2}, "conditions": [{"type": "x"}]});
        merge(
            &mut object,
            &json!({"spec": {"a": null}, "conditions": [{"type": "y"}]}),
        );
        assert_eq!(
            object,
            json!({"spec": {"b": 2}, "conditions": [{"type": "y"}]})
        );
    }
}
