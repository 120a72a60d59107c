//! Whom a decision is about.

use pod::{Pod, PodExt as _, PodSource};

/// A pod as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Where it comes from.
    pub source: PodSource,
    /// Its namespace.
    pub namespace: String,
    /// Its name; of a static pod the name in its manifest, without the node's name.
    pub name: String,
    /// The images of its containers, as the pod names them.
    pub images: Vec<String>,
}

impl Subject {
    /// A pod of a source on a node. config-sourcer ends the names of static pods with
    /// `-NODE`: grants know them without it, so one policy serves many nodes.
    #[must_use]
    pub fn new(
        source: PodSource,
        namespace: &str,
        name: &str,
        node_name: &str,
        images: Vec<String>,
    ) -> Subject {
        let own = match source {
            PodSource::File | PodSource::Http => name
                .strip_suffix(node_name)
                .and_then(|rest| rest.strip_suffix('-')),
            PodSource::Api => None,
        };
        let name = own.filter(|own| !own.is_empty()).unwrap_or(name);
        Subject {
            source,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            images,
        }
    }

    /// The same of a whole pod.
    #[must_use]
    pub fn of(source: PodSource, pod: &Pod, node_name: &str) -> Subject {
        let spec = pod.spec_or_default();
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let images = pod
            .all_containers()
            .map(|(_, container)| &container.image)
            .chain(ephemeral.map(|container| &container.image))
            .map(|image| image.clone().unwrap_or_default());
        Subject::new(
            source,
            pod.namespace(),
            pod.name(),
            node_name,
            images.collect(),
        )
    }

    /// `NAMESPACE/NAME`, as grants name it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_pods_are_known_without_the_nodes_name() {
        for (source, name, expected) in [
            (PodSource::File, "web-n1", "web"),
            (PodSource::Http, "web-n1", "web"),
            (PodSource::Api, "web-n1", "web-n1"),
            (PodSource::File, "web", "web"),
            (PodSource::File, "web-n12", "web-n12"),
            (PodSource::File, "n1", "n1"),
            (PodSource::File, "-n1", "-n1"),
            (PodSource::File, "web-n1-n1", "web-n1"),
        ] {
            let subject = Subject::new(source, "default", name, "n1", Vec::new());
            assert_eq!(subject.name, expected, "{source} {name}");
        }
    }

    #[test]
    fn all_images_of_a_pod_count() {
        let pod: Pod = serde_json::from_str(
            r#"{"metadata":{"namespace":"a","name":"b"},"spec":{
                "initContainers":[{"name":"i","image":"x"}],
                "containers":[{"name":"c","image":"y"},{"name":"d"}],
                "ephemeralContainers":[{"name":"e","image":"z"}]}}"#,
        )
        .unwrap();
        let subject = Subject::of(PodSource::Api, &pod, "n");
        assert_eq!(subject.images, ["x", "y", "", "z"]);
        assert_eq!(subject.full_name(), "a/b");
    }
}
