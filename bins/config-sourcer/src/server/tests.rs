//! What a consumer of WatchPods is told.

use futures_util::FutureExt;
use serde_json::json;

use super::*;

fn publication() -> Publication {
    let sources = [PodSource::File, PodSource::Http];
    Publication::new("boot", sources)
}

fn pods(pods: &[(&str, &str)]) -> Option<PodSet> {
    let pod = |uid: &str, image: &str| {
        let value = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": uid, "name": uid, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": image}]}});
        PodDocument::from_json(value.to_string().into_bytes(), PodSource::File)
            .unwrap()
            .0
    };
    Some(
        pods.iter()
            .map(|(uid, image)| ((*uid).to_owned(), pod(uid, image)))
            .collect(),
    )
}

/// Everything that waits for a consumer, in short.
fn read(consumer: &mut Consumer) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(response) = consumer.next().now_or_never() {
        let response = response.unwrap();
        assert_eq!(response.boot_id, "boot");
        texts.push(describe(response.message.unwrap()));
    }
    texts
}

fn describe(message: Message) -> String {
    let uid = |pod: Option<v1::Pod>| pod.unwrap().reference.unwrap().uid;
    match message {
        Message::Sources(sources) => format!("sources {}", sources.names.join(" ")),
        Message::SnapshotBegin(begin) => format!("begin {} {}", begin.source, begin.ready),
        Message::Pod(pod) => {
            assert_eq!(pod.source, "file");
            assert!(PodDocument::from_message(pod.pod.clone().unwrap()).is_ok());
            format!("pod {}", uid(pod.pod))
        }
        Message::ChangesBegin(begin) => format!("changes {}", begin.source),
        Message::SnapshotEnd(end) => format!("end {}", end.source),
        Message::Gone(gone) => {
            assert_eq!(gone.source, "file");
            format!("gone {}", gone.uid)
        }
        Message::Problems(problems) => {
            let texts: Vec<_> = problems
                .problems
                .iter()
                .map(|problem| problem.subject.as_str())
                .collect();
            format!("problems {} {}", problems.source, texts.join(" "))
        }
        Message::Node(node) => format!("node {}", node.exists),
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_begins_with_a_snapshot_of_each_source() {
    let publication = publication();
    publication.set(
        PodSource::File,
        true,
        pods(&[("1", "i"), ("2", "i")]),
        vec![Problem::new("x", "y")],
    );
    let mut consumer = Consumer::new(&publication);
    assert_eq!(
        read(&mut consumer),
        [
            "sources file http",
            "begin file true",
            "pod 1",
            "pod 2",
            "end file",
            "problems file x",
            "begin http false",
            "end http",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_node_comes_before_the_pods_and_again_when_it_changes() {
    let publication = publication();
    let mut before = Consumer::new(&publication);
    read(&mut before);
    let node = |label: &str| v1::ApiNode {
        exists: true,
        labels: [(label.to_owned(), String::new())].into(),
        ..v1::ApiNode::default()
    };
    publication.set_node(PodSource::File, node("a"));
    publication.set(PodSource::File, true, pods(&[("1", "i")]), Vec::new());
    let expected = ["node true", "begin file true", "pod 1", "end file"];
    assert_eq!(read(&mut before), expected);
    let mut after = Consumer::new(&publication);
    assert_eq!(read(&mut after)[1..5], expected);
    publication.set_node(PodSource::File, node("a"));
    assert_eq!(read(&mut before), [""; 0]);
    publication.set_node(PodSource::File, node("b"));
    assert_eq!(read(&mut before), ["node true"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_becomes_ready_by_a_further_snapshot() {
    let publication = publication();
    let mut consumer = Consumer::new(&publication);
    read(&mut consumer);
    // The first empty set is delivered: it says that there is nothing.
    publication.set(PodSource::File, true, pods(&[]), Vec::new());
    assert_eq!(read(&mut consumer), ["begin file true", "end file"]);
    publication.set(
        PodSource::Http,
        false,
        None,
        vec![Problem::new("u", "refused")],
    );
    assert_eq!(read(&mut consumer), ["problems http u"]);
}

#[tokio::test(start_paused = true)]
async fn changes_follow_the_snapshot() {
    let publication = publication();
    publication.set(
        PodSource::File,
        true,
        pods(&[("1", "i"), ("2", "i")]),
        Vec::new(),
    );
    let mut consumer = Consumer::new(&publication);
    read(&mut consumer);
    publication.set(
        PodSource::File,
        true,
        pods(&[("2", "j"), ("3", "i")]),
        Vec::new(),
    );
    // As one: what goes makes room for what comes.
    assert_eq!(
        read(&mut consumer),
        ["changes file", "gone 1", "pod 2", "pod 3", "end file"]
    );
    publication.set(PodSource::File, true, pods(&[("2", "j")]), Vec::new());
    assert_eq!(read(&mut consumer), ["gone 3"]);
    publication.set(PodSource::File, true, None, vec![Problem::new("x", "y")]);
    assert_eq!(read(&mut consumer), ["problems file x"]);
    publication.set(PodSource::File, true, None, Vec::new());
    assert_eq!(read(&mut consumer), ["problems file "]);
    assert!(read(&mut consumer).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_told_again_when_any_byte_of_it_differs() {
    // Its consumers name it by the hash of its bytes.
    let publication = publication();
    let seen = |time: &str| {
        let value = json!({"metadata": {"uid": "1", "name": "1", "namespace": "default",
            "annotations": {"kubernetes.io/config.seen": time}}});
        let json = value.to_string().into_bytes();
        let pod = PodDocument::from_json(json, PodSource::File).unwrap().0;
        Some(PodSet::from([("1".to_owned(), pod)]))
    };
    publication.set(PodSource::File, true, seen("then"), Vec::new());
    let mut consumer = Consumer::new(&publication);
    read(&mut consumer);
    publication.set(PodSource::File, true, seen("then"), Vec::new());
    assert!(read(&mut consumer).is_empty());
    publication.set(PodSource::File, true, seen("now"), Vec::new());
    assert_eq!(read(&mut consumer), ["pod 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_skips_what_was_in_between() {
    let publication = publication();
    publication.set(PodSource::File, true, pods(&[("0", "i")]), Vec::new());
    let mut slow = Consumer::new(&publication);
    read(&mut slow);
    for number in 1..1000 {
        let uid = number.to_string();
        publication.set(PodSource::File, true, pods(&[(&uid, "i")]), Vec::new());
    }
    assert_eq!(
        read(&mut slow),
        ["changes file", "gone 0", "pod 999", "end file"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_with_the_process() {
    let publication = publication();
    let mut consumer = Consumer::new(&publication);
    read(&mut consumer);
    drop(publication);
    assert!(consumer.next().await.is_none());
}

#[test]
fn long_texts_are_cut() {
    let problem = Problem::new("ä".repeat(5000), "r");
    let message = source_problem(&problem);
    assert_eq!(message.subject.len(), MAX_TEXT_BYTES);
    assert_eq!(message.reason, "r");
}
