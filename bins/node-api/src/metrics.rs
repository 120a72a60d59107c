//! `/metrics/resource`: what `kubectl top` lives on (kubelet,
//! `pkg/kubelet/metrics/collectors/resource_metrics.go`). Pure.

use std::fmt::Write as _;

use bulkhead_api::v1;

use crate::usage::{self, Look};

/// A value with its labels, and when it was read.
struct Sample {
    labels: String,
    value: f64,
    at_unix_nanos: i64,
}

/// The text, in the format of Prometheus.
pub(crate) fn resource(look: &Look) -> String {
    let node = |value: Option<f64>| {
        let value = value.map(|value| Sample {
            labels: String::new(),
            value,
            at_unix_nanos: look.node.at_unix_nanos,
        });
        value.into_iter().collect()
    };
    let of_node = look.node.memory.unwrap_or_default();
    let started = |container: &v1::ContainerUsage| {
        let start = look.starts.containers.get(&container.id)?;
        Some(start.as_duration().as_secs_f64())
    };
    let cpu = |container: &v1::ContainerUsage| container.cpu_nanos;
    let memory = |container: &v1::ContainerUsage| container.memory_bytes;
    let of = |name: &str, kind: &str, what: &str, samples: Vec<Sample>| {
        metric(name, kind, what, &samples)
    };
    [
        of(
            "container_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the container in core-seconds",
            of_containers(look, |container| cpu(container).map(core_seconds)),
        ),
        of(
            "container_memory_working_set_bytes",
            "gauge",
            "Current working set of the container in bytes",
            of_containers(look, |container| memory(container).map(number)),
        ),
        of(
            "container_start_time_seconds",
            "gauge",
            "Start time of the container since unix epoch in seconds",
            of_containers(look, started),
        ),
        of(
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the node in core-seconds",
            node(look.node.cpu_nanos.map(core_seconds)),
        ),
        of(
            "node_memory_working_set_bytes",
            "gauge",
            "Current working set of the node in bytes",
            node(of_node.working_set_bytes.map(number)),
        ),
        of(
            "pod_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time consumed by the pod in core-seconds",
            of_pods(look, cpu, core_seconds),
        ),
        of(
            "pod_memory_working_set_bytes",
            "gauge",
            "Current working set of the pod in bytes",
            of_pods(look, memory, number),
        ),
        SCRAPED.to_owned(),
    ]
    .concat()
}

/// Where there is an error, there is no answer.
const SCRAPED: &str = "\
# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
# HELP scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE scrape_error gauge
scrape_error 0
";

fn metric(name: &str, kind: &str, what: &str, samples: &[Sample]) -> String {
    let mut text = String::new();
    if samples.is_empty() {
        return text;
    }
    let _ = writeln!(text, "# HELP {name} [STABLE] {what}\n# TYPE {name} {kind}");
    for sample in samples {
        let millis = sample.at_unix_nanos / 1_000_000;
        let _ = writeln!(text, "{name}{} {} {millis}", sample.labels, sample.value);
    }
    text
}

fn of_containers(look: &Look, value: impl Fn(&v1::ContainerUsage) -> Option<f64>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for pod in &look.pods {
        let reference = pod.pod.clone().unwrap_or_default();
        for container in &pod.containers {
            samples.extend(value(container).map(|value| Sample {
                labels: format!(
                    "{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}}",
                    container.name, reference.namespace, reference.name
                ),
                value,
                at_unix_nanos: container.cpu_at_unix_nanos,
            }));
        }
    }
    samples
}

fn of_pods(
    look: &Look,
    part: impl Fn(&v1::ContainerUsage) -> Option<u64>,
    value: impl Fn(u64) -> f64,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for pod in &look.pods {
        let reference = pod.pod.clone().unwrap_or_default();
        let newest = pod.containers.iter().map(|it| it.cpu_at_unix_nanos).max();
        samples.extend(usage::sum(pod, &part).map(|sum| Sample {
            labels: format!(
                "{{namespace=\"{}\",pod=\"{}\"}}",
                reference.namespace, reference.name
            ),
            value: value(sum),
            at_unix_nanos: newest.unwrap_or_default(),
        }));
    }
    samples
}

fn core_seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

/// Amounts of memory are exact up to 8 PiB.
fn number(bytes: u64) -> f64 {
    let (high, low) = (bytes >> 32, bytes & u64::from(u32::MAX));
    let exact = |part: u64| f64::from(u32::try_from(part).unwrap_or(u32::MAX));
    exact(high) * 4_294_967_296.0 + exact(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Starts;

    #[test]
    fn what_is_known_is_said_with_its_time() {
        let container = v1::ContainerUsage {
            id: "1".to_owned(),
            name: "c".to_owned(),
            cpu_nanos: Some(1_500_000_000),
            cpu_at_unix_nanos: 2_000_000_000,
            memory_bytes: Some(4096),
            layer_bytes: None,
        };
        let pod = v1::PodUsage {
            pod: Some(v1::PodReference {
                uid: "u".to_owned(),
                namespace: "d".to_owned(),
                name: "p".to_owned(),
            }),
            containers: vec![container],
            network: None,
        };
        let mut starts = Starts::default();
        let start = jiff::Timestamp::from_second(1).unwrap();
        starts.containers.insert("1".to_owned(), start);
        let look = Look {
            node: v1::NodeUsage::default(),
            pods: vec![pod],
            starts,
        };
        let text = resource(&look);
        let lines: Vec<&str> = text.lines().filter(|it| !it.starts_with('#')).collect();
        let labels = "container=\"c\",namespace=\"d\",pod=\"p\"";
        let expected = [
            format!("container_cpu_usage_seconds_total{{{labels}}} 1.5 2000"),
            format!("container_memory_working_set_bytes{{{labels}}} 4096 2000"),
            format!("container_start_time_seconds{{{labels}}} 1 2000"),
            "pod_cpu_usage_seconds_total{namespace=\"d\",pod=\"p\"} 1.5 2000".to_owned(),
            "pod_memory_working_set_bytes{namespace=\"d\",pod=\"p\"} 4096 2000".to_owned(),
            "resource_scrape_error 0".to_owned(),
            "scrape_error 0".to_owned(),
        ];
        assert_eq!(lines, expected);
    }
}
