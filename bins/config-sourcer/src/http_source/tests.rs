//! The URL source: errors never look like no pods.

use clock::UnixNanos;
use pod::PodExt;
use pod::metadata::CONFIG_SEEN_ANNOTATION;

use super::*;
use crate::publication::SourceState;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}"#;

fn source() -> (HttpSource, Publication) {
    let clock = WallClock::simulated(UnixNanos(1_000_000_000));
    let publication = Publication::new("boot", [PodSource::Http]);
    let settings = Settings {
        url: "http://user:secret@host/pods".to_owned(),
        headers: Default::default(),
        check_frequency: std::time::Duration::from_secs(20),
    };
    (
        HttpSource::new(settings, "node", clock, publication.clone()),
        publication,
    )
}

fn state(publication: &Publication) -> SourceState {
    publication.watch().borrow()[&PodSource::Http].clone()
}

fn reasons(publication: &Publication) -> Vec<String> {
    let state = state(publication);
    state
        .problems
        .iter()
        .map(|problem| problem.reason.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_answer_makes_the_source_ready() {
    let (mut source, publication) = source();
    assert!(!state(&publication).ready);
    source.judge(POD.as_bytes());
    let state = state(&publication);
    assert!(state.ready && state.problems.is_empty());
    let pod = state.pods.values().next().unwrap().decode().unwrap();
    assert_eq!(pod.name(), "a-node");
    assert_eq!(pod.annotation("kubernetes.io/config.source"), Some("http"));
    assert_eq!(
        pod.annotation(CONFIG_SEEN_ANNOTATION),
        Some("1970-01-01T00:00:01Z")
    );
}

#[tokio::test(start_paused = true)]
async fn no_error_looks_like_no_pods() {
    let (mut source, publication) = source();
    source.failed("refused".to_owned());
    assert!(!state(&publication).ready);
    source.judge(POD.as_bytes());
    for bad in [
        "",
        "   ",
        "{",
        "<html>",
        r#"{"kind":"Status"}"#,
        "[]",
        "null",
    ] {
        source.judge(bad.as_bytes());
        assert_eq!(state(&publication).pods.len(), 1, "{bad:?}");
        assert_eq!(reasons(&publication).len(), 1, "{bad:?}");
    }
    source.failed("refused".to_owned());
    assert_eq!(state(&publication).pods.len(), 1);
    assert_eq!(reasons(&publication), ["refused"]);
    // The same answer as before all this.
    source.judge(POD.as_bytes());
    assert!(reasons(&publication).is_empty());
    // No pods are a list without any.
    source.judge(br#"{"apiVersion":"v1","kind":"PodList","items":[]}"#);
    assert!(state(&publication).pods.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_invalid_pod_is_refused_with_its_field() {
    let (mut source, publication) = source();
    source.judge(POD.replace("i:1", "").as_bytes());
    let state = state(&publication);
    assert!(!state.ready && state.pods.is_empty());
    assert_eq!(state.problems[0].field, "spec.containers[0].image");
    assert_eq!(state.problems[0].subject, "http://host/pods");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_keeps_when_it_was_seen() {
    let (mut source, publication) = source();
    source.judge(POD.as_bytes());
    let before = state(&publication).pods;
    source.clock.jump(5_000_000_000);
    let second = POD.replace(r#""name":"a""#, r#""name":"b""#);
    let list = format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{POD},{second}]}}"#);
    source.judge(list.as_bytes());
    let after = state(&publication).pods;
    assert_eq!(after.len(), 2);
    let (uid, pod) = before.iter().next().unwrap();
    assert_eq!(after.get(uid), Some(pod));
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let settings = |url: &str, header: (&str, &str)| Settings {
        url: url.to_owned(),
        headers: [(header.0.to_owned(), vec![header.1.to_owned()])].into(),
        check_frequency: std::time::Duration::from_secs(20),
    };
    let good = request(&settings("http://h/", ("a", "b"))).unwrap();
    assert!(good.headers["a"].is_sensitive());
    assert!(request(&settings("http://h h/", ("a", "b"))).is_err());
    assert!(request(&settings("http://h/", ("a b", "b"))).is_err());
    assert!(request(&settings("http://h/", ("a", "b\n"))).is_err());
}
