//! What is kept of a Service: what the variables of containers say of it. Pure.

use bulkhead_api::v1;
use serde::{Deserialize, Serialize};

use crate::object::Object;

/// Selects those that have addresses of their own.
pub(crate) const SELECTOR: &str = "spec.clusterIP%21%3DNone";

/// Most ports of one that are passed on.
const MAX_PORTS: usize = 500;

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    ports: Vec<Port>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Port {
    name: String,
    port: u16,
    protocol: String,
}

/// A Service without what is not passed on of it. A cluster may have ten thousand.
pub(crate) fn kept(object: Object) -> Object {
    let spec: Spec = serde_json::from_str(object.spec()).unwrap_or_default();
    let spec = serde_json::to_string(&spec).unwrap_or_default();
    object.with_spec_alone(spec)
}

/// A Service as it is passed on; none if it has no address.
pub(crate) fn service(object: &Object) -> Option<v1::Service> {
    let spec: Spec = serde_json::from_str(object.spec()).ok()?;
    let has_address = !matches!(&*spec.cluster_ip, "" | "None") && !spec.ports.is_empty();
    let ports = spec.ports.into_iter().take(MAX_PORTS);
    has_address.then(|| v1::Service {
        uid: object.uid.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        cluster_ip: spec.cluster_ip,
        ports: ports
            .map(|port| v1::ServicePort {
                name: port.name,
                port: port.port.into(),
                protocol: port.protocol,
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_kept_without_what_is_not_passed_on() {
        let object = |spec: serde_json::Value| {
            let json = json!({"metadata": {"uid": "u", "namespace": "d", "name": "web",
                "resourceVersion": "7", "annotations": {"a": "b"}}, "spec": spec});
            kept(Object::parse(&json.to_string()).unwrap())
        };
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
        let web = object(json!({"clusterIP": "10.0.0.1", "ports": ports, "selector": {"a": "b"}}));
        assert_eq!(web.version, "7");
        let text = String::from_utf8(web.json()).unwrap();
        assert!(!text.contains("\"b\"") && !text.contains("8080"), "{text}");
        let web = service(&web).unwrap();
        assert_eq!((&*web.uid, &*web.namespace, &*web.name), ("u", "d", "web"));
        assert_eq!((&*web.cluster_ip, web.ports[0].port), ("10.0.0.1", 80));
        for spec in [
            json!({"clusterIP": "None", "ports": ports}),
            json!({"type": "ExternalName", "externalName": "a.example"}),
        ] {
            assert_eq!(service(&object(spec)), None);
        }
    }
}
