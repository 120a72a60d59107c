//! The Services of the cluster, as far as containers are told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::service_change::Change;

/// Bytes of all Services together: ten thousand, which is what a cluster can have, need some
/// 2 MiB.
const MAX_BYTES: usize = 8 << 20;

/// Where every pod finds the API server, whatever its namespace.
const API_SERVER: (&str, &str) = ("default", "kubernetes");

/// Services that have an address, by UID.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Services {
    known: BTreeMap<String, Arc<v1::Service>>,
    bytes: usize,
}

impl Services {
    /// Takes in what fits; whether that changed anything.
    fn insert(&mut self, service: v1::Service) -> bool {
        if self
            .known
            .get(&service.uid)
            .is_some_and(|it| **it == service)
        {
            return false;
        }
        let has_gone = self.remove(&service.uid);
        let bytes = bytes_of(&service);
        let fits = self.bytes + bytes <= MAX_BYTES;
        if fits {
            self.bytes += bytes;
            self.known.insert(service.uid.clone(), Arc::new(service));
        }
        has_gone || fits
    }

    fn remove(&mut self, uid: &str) -> bool {
        let gone = self.known.remove(uid);
        self.bytes -= gone.as_ref().map_or(0, |gone| bytes_of(gone));
        gone.is_some()
    }

    /// Those that a pod of a namespace is told of: the API server's, and, if it wants `links`,
    /// those of its namespace, by name.
    #[must_use]
    pub fn of_pod(&self, namespace: &str, links: bool) -> Vec<&v1::Service> {
        let mut by_name = BTreeMap::new();
        for service in self.known.values() {
            if (&*service.namespace, &*service.name) == API_SERVER {
                by_name.entry(&service.name).or_insert(service);
            } else if links && service.namespace == namespace {
                by_name.insert(&service.name, service);
            }
        }
        by_name.into_values().map(|service| &**service).collect()
    }

    /// What makes them of those that were sent before; a snapshot where none were.
    #[must_use]
    pub fn changes_since(&self, sent: Option<&Services>) -> Vec<v1::ServiceChange> {
        let change = |change| v1::ServiceChange {
            change: Some(change),
        };
        let service = |it: &Arc<v1::Service>| change(Change::Service(v1::Service::clone(it)));
        let Some(sent) = sent else {
            let begin = change(Change::SnapshotBegin(v1::SnapshotBegin {}));
            let end = change(Change::SnapshotEnd(v1::SnapshotEnd {}));
            let all = self.known.values().map(service);
            return [begin].into_iter().chain(all).chain([end]).collect();
        };
        let gone = sent.known.keys();
        let gone = gone.filter(|uid| !self.known.contains_key(*uid));
        let gone = gone.map(|uid| change(Change::RemovedUid(uid.clone())));
        let new = self.known.iter();
        let new = new.filter(|(uid, it)| sent.known.get(*uid) != Some(it));
        gone.chain(new.map(|(_, it)| service(it))).collect()
    }
}

/// What one takes, roughly.
fn bytes_of(service: &v1::Service) -> usize {
    let v1::Service {
        uid,
        namespace,
        name,
        cluster_ip,
        ports,
    } = service;
    let texts = uid.len() + namespace.len() + name.len() + cluster_ip.len();
    let ports = ports.iter();
    let ports = ports.map(|port| port.name.len() + port.protocol.len() + size_of_val(port));
    texts + size_of_val(service) + ports.sum::<usize>()
}

/// Services that arrive, as a snapshot and then changes.
#[derive(Debug, Default)]
pub struct ServiceReader {
    listed: Option<Services>,
    arriving: Option<Services>,
}

impl ServiceReader {
    /// A new stream begins. What is known stands until its snapshot is complete.
    pub fn begin_anew(&mut self) {
        self.arriving = None;
    }

    /// Takes in what the stream says; whether all Services are known and have changed.
    pub fn take(&mut self, message: v1::ServiceChange) -> bool {
        match message.change {
            None => false,
            Some(Change::SnapshotBegin(_)) => {
                self.arriving = Some(Services::default());
                false
            }
            Some(Change::SnapshotEnd(_)) => {
                let arrived = self.arriving.take();
                let is_new = arrived.is_some() && arrived != self.listed;
                self.listed = arrived.or(self.listed.take());
                is_new
            }
            Some(Change::Service(service)) => self.change(|all| all.insert(service)),
            Some(Change::RemovedUid(uid)) => self.change(|all| all.remove(&uid)),
        }
    }

    /// All Services, once they are known.
    #[must_use]
    pub fn services(&self) -> Option<&Services> {
        self.listed.as_ref()
    }

    fn change(&mut self, change: impl FnOnce(&mut Services) -> bool) -> bool {
        let is_visible = self.arriving.is_none();
        let all = self.arriving.as_mut().or(self.listed.as_mut());
        all.is_some_and(change) && is_visible
    }
}

/// The environment variables that tell a container of Services: the kubelet's, and those of
/// Docker's links.
#[must_use]
pub fn service_variables(services: &[&v1::Service]) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for service in services {
        let (ip, prefix) = (&service.cluster_ip, variable_name(&service.name));
        let host = match ip.contains(':') {
            true => format!("[{ip}]"),
            false => ip.clone(),
        };
        let mut set = |suffix: &str, value: String| {
            variables.insert(format!("{prefix}_{suffix}"), value);
        };
        set("SERVICE_HOST", ip.clone());
        for (index, port) in service.ports.iter().enumerate() {
            let v1::ServicePort {
                name,
                port,
                protocol,
            } = port;
            let protocol = match protocol.is_empty() {
                true => "TCP",
                false => protocol,
            };
            let lower = protocol.to_lowercase();
            let url = format!("{lower}://{host}:{port}");
            if index == 0 {
                set("SERVICE_PORT", port.to_string());
                set("PORT", url.clone());
            }
            if !name.is_empty() {
                let name = variable_name(name);
                set(&format!("SERVICE_PORT_{name}"), port.to_string());
            }
            let of_port = format!("PORT_{port}_{}", protocol.to_uppercase());
            set(&of_port, url);
            set(&format!("{of_port}_PROTO"), lower);
            set(&format!("{of_port}_PORT"), port.to_string());
            set(&format!("{of_port}_ADDR"), ip.clone());
        }
    }
    variables
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Ports as (name, number, protocol).
    fn service(
        (namespace, name): (&str, &str),
        cluster_ip: &str,
        ports: &[(&str, u32, &str)],
    ) -> v1::Service {
        let port = |(name, port, protocol): &(&str, u32, &str)| v1::ServicePort {
            name: (*name).to_owned(),
            port: *port,
            protocol: (*protocol).to_owned(),
        };
        v1::Service {
            uid: format!("{namespace}-{name}"),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster_ip: cluster_ip.to_owned(),
            ports: ports.iter().map(port).collect(),
        }
    }

    fn in_d(name: &str) -> v1::Service {
        service(("d", name), "1.2.3.4", &[("", 80, "TCP")])
    }

    /// The kubelet's own case (`envvars_test.go`).
    #[test]
    fn variables_of_services_are_the_kubelets() {
        for (name, ip, ports, expected) in [
            (
                "foo-bar",
                "1.2.3.4",
                &[("", 8080, "")][..],
                "FOO_BAR_SERVICE_HOST=1.2.3.4 FOO_BAR_SERVICE_PORT=8080 \
                 FOO_BAR_PORT=tcp://1.2.3.4:8080 FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080 \
                 FOO_BAR_PORT_8080_TCP_PROTO=tcp FOO_BAR_PORT_8080_TCP_PORT=8080 \
                 FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4",
            ),
            (
                "a",
                "5.6.7.8",
                &[("u-d-p", 8081, "UDP"), ("t", 8082, "TCP")],
                "A_SERVICE_HOST=5.6.7.8 A_SERVICE_PORT=8081 A_SERVICE_PORT_U_D_P=8081 \
                 A_SERVICE_PORT_T=8082 A_PORT=udp://5.6.7.8:8081 \
                 A_PORT_8081_UDP=udp://5.6.7.8:8081 A_PORT_8081_UDP_PROTO=udp \
                 A_PORT_8081_UDP_PORT=8081 A_PORT_8081_UDP_ADDR=5.6.7.8 \
                 A_PORT_8082_TCP=tcp://5.6.7.8:8082 A_PORT_8082_TCP_PROTO=tcp \
                 A_PORT_8082_TCP_PORT=8082 A_PORT_8082_TCP_ADDR=5.6.7.8",
            ),
            (
                "v6",
                "2001:DB8::",
                &[("", 777, "SCTP")],
                "V6_SERVICE_HOST=2001:DB8:: V6_SERVICE_PORT=777 V6_PORT=sctp://[2001:DB8::]:777 \
                 V6_PORT_777_SCTP=sctp://[2001:DB8::]:777 V6_PORT_777_SCTP_PROTO=sctp \
                 V6_PORT_777_SCTP_PORT=777 V6_PORT_777_SCTP_ADDR=2001:DB8::",
            ),
        ] {
            let variables = service_variables(&[&service(("d", name), ip, ports)]);
            let told = variables
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            let expected: BTreeSet<String> = expected.split(' ').map(str::to_owned).collect();
            assert_eq!(told.collect::<BTreeSet<_>>(), expected);
        }
    }

    /// The kubelet's `TestMakeEnvironmentVariables`, as far as it is of Services.
    #[test]
    fn a_pod_is_told_of_the_api_server_and_by_links_of_its_namespace() {
        let of = |namespace, name| service((namespace, name), "1.2.3.4", &[]);
        let mut services = Services::default();
        for service in [
            of("default", "kubernetes"),
            of("default", "web"),
            of("d", "web"),
            of("own", "kubernetes"),
        ] {
            services.insert(service);
        }
        for (namespace, links, expected) in [
            ("d", true, &["default-kubernetes", "d-web"][..]),
            ("d", false, &["default-kubernetes"]),
            ("default", true, &["default-kubernetes", "default-web"]),
            ("none", true, &["default-kubernetes"]),
            ("own", true, &["own-kubernetes"]),
            ("own", false, &["default-kubernetes"]),
        ] {
            let told = services.of_pod(namespace, links).into_iter();
            let told: Vec<&str> = told.map(|it| &*it.uid).collect();
            assert_eq!(told, expected, "{namespace} {links}");
        }
    }

    #[test]
    fn what_was_sent_is_what_is_read_and_only_a_whole_snapshot_says_what_is_gone() {
        let mut first = Services::default();
        first.insert(in_d("a"));
        first.insert(in_d("b"));
        let mut second = first.clone();
        second.remove("d-a");
        second.insert(v1::Service {
            cluster_ip: "5.6.7.8".to_owned(),
            ..in_d("b")
        });
        second.insert(in_d("c"));
        let mut reader = ServiceReader::default();
        let read = |reader: &mut ServiceReader, changes: Vec<v1::ServiceChange>| {
            let changed: Vec<bool> = changes.into_iter().map(|it| reader.take(it)).collect();
            let is_new = changed.contains(&true);
            is_new.then(|| reader.services().cloned()).flatten()
        };
        assert_eq!(
            read(&mut reader, first.changes_since(None)),
            Some(first.clone())
        );
        let changes = second.changes_since(Some(&first));
        assert_eq!(changes.len(), 3);
        assert_eq!(read(&mut reader, changes), Some(second.clone()));
        // A snapshot that breaks off, and one that says nothing new.
        let mut broken = first.changes_since(None);
        broken.pop();
        assert_eq!(read(&mut reader, broken), None);
        reader.begin_anew();
        assert_eq!(read(&mut reader, second.changes_since(None)), None);
        let all_gone = Services::default().changes_since(None);
        assert_eq!(read(&mut reader, all_gone), Some(Services::default()));
    }

    #[test]
    fn services_beyond_the_bound_are_left_out() {
        let mut services = Services::default();
        let long = "x".repeat(1 << 20);
        for index in 0..9 {
            services.insert(v1::Service {
                uid: format!("{index}{long}"),
                ..in_d("a")
            });
        }
        assert_eq!(services.known.len(), 7);
    }
}
