//! Ephemeral containers: those that an API server adds to a pod that runs, to look into it.
//! They are containers in all but a few fields; here they become that.

use std::borrow::Cow;

use crate::PodExt;
use crate::core::{Container, EphemeralContainer, Pod};

/// Those of a pod, as the API has them.
#[must_use]
pub fn listed(pod: &Pod) -> &[EphemeralContainer] {
    let listed = pod.spec_or_default().ephemeral_containers.as_deref();
    listed.unwrap_or_default()
}

/// Those of a pod, as containers.
pub fn containers(pod: &Pod) -> impl Iterator<Item = Container> + '_ {
    listed(pod).iter().map(as_container)
}

/// The container of this name, whatever its kind, an ephemeral one too.
#[must_use]
pub fn any_container<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    if let Some((_, container)) = pod.container(name) {
        return Some(Cow::Borrowed(container));
    }
    let mut listed = listed(pod).iter();
    let found = listed.find(|it| it.name == name)?;
    Some(Cow::Owned(as_container(found)))
}

/// The container whose processes an ephemeral one is to see.
#[must_use]
pub fn target_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut listed = listed(pod).iter();
    let found = listed.find(|it| it.name == name)?;
    let target = found.target_container_name.as_deref();
    target.filter(|target| !target.is_empty())
}

/// All but its target: the API has no other field in which the two differ.
#[must_use]
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let json = serde_json::to_value(ephemeral);
    // Types of the API are always JSON, and a container needs its name alone.
    json.and_then(serde_json::from_value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ephemeral_container_is_found_as_a_container_and_counts_among_no_others() {
        let text = r#"{"spec":{"containers":[{"name":"c"}],"ephemeralContainers":[
            {"name":"e","image":"i","tty":true,"targetContainerName":"c"},
            {"name":"f","targetContainerName":""}]}}"#;
        let pod: Pod = serde_json::from_str(text).unwrap();
        assert_eq!(pod.all_containers().count(), 1);
        let found = any_container(&pod, "e").unwrap();
        assert_eq!((found.image.as_deref(), found.tty), (Some("i"), Some(true)));
        assert_eq!(any_container(&pod, "c").unwrap().name, "c");
        assert!(any_container(&pod, "x").is_none());
        let targets = ["c", "e", "f", "x"].map(|name| target_of(&pod, name));
        assert_eq!(targets, [None, Some("c"), None, None]);
    }
}
