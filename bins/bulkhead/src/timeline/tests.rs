//! What is drawn of which pod, and how that looks.

use serde_json::{Value, json};

use super::chart::Lane;
use super::*;

const SECOND: i64 = 1_000_000_000;

fn time(seconds: i64) -> String {
    timestamp(UnixNanos(seconds * SECOND))
}

fn decoded(json: Value) -> Option<ListedPod> {
    ListedPod::decode(json.to_string().as_bytes())
}

fn pod(phase: &str, init: Value, containers: Value, ready: Option<(&str, i64)>) -> ListedPod {
    let spec = |statuses: &Value| -> Vec<Value> {
        let statuses = statuses.as_array().unwrap().iter();
        statuses
            .map(|it| json!({"name": it["name"], "image": "web:1"}))
            .collect()
    };
    let conditions: Vec<Value> = ready
        .into_iter()
        .map(|(status, at)| {
            json!({"type": "Ready", "status": status, "lastTransitionTime": time(at),
                   "reason": "ContainersNotReady"})
        })
        .collect();
    decoded(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"initContainers": spec(&init), "containers": spec(&containers)},
        "status": {
            "phase": phase, "startTime": time(100), "conditions": conditions,
            "initContainerStatuses": init, "containerStatuses": containers,
        },
    }))
    .unwrap()
}

fn status(name: &str, restarts: i32, state: Value, last: Value) -> Value {
    json!({"name": name, "image": "web:1", "imageID": "", "ready": false,
           "restartCount": restarts, "state": state, "lastState": last})
}

fn ended(code: i32, begin: i64, end: i64) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {"exitCode": code, "reason": reason,
                          "startedAt": time(begin), "finishedAt": time(end)}})
}

fn running(since: i64) -> Value {
    json!({"running": {"startedAt": time(since)}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

/// Container, reason, time of the first and of the last in milliseconds, how often.
fn event(container: &str, reason: &str, first: i64, last: i64, count: u32) -> v1::Event {
    let bad = reason.starts_with("Failed") || reason == "Unhealthy";
    v1::Event {
        container: container.to_owned(),
        reason: reason.to_owned(),
        message: format!("{reason} message"),
        r#type: if bad {
            v1::EventType::Warning
        } else {
            v1::EventType::Normal
        }
        .into(),
        first_unix_nanos: first * 1_000_000,
        unix_nanos: last * 1_000_000,
        count,
        ..v1::Event::default()
    }
}

fn once(container: &str, reason: &str, at: i64) -> v1::Event {
    event(container, reason, at, at, 1)
}

/// The lanes as lines: name, then spans as `begin-end kind`, then marks as `at tone`, in
/// seconds since the epoch.
fn told(listed: &ListedPod, events: &[v1::Event]) -> Vec<String> {
    let chart = chart_of(listed, events, UnixNanos(200 * SECOND)).unwrap();
    let seconds = |at: UnixNanos| format!("{}", at.0 as f64 / 1e9);
    let line = |lane: &Lane| {
        let mut line = format!("{}:", lane.name);
        for span in &lane.spans {
            let end = span.end.map_or("now".to_owned(), seconds);
            line += &format!(" {}-{end} {:?}", seconds(span.begin), span.kind);
        }
        for mark in &lane.marks {
            line += &format!(" {} {:?}", seconds(mark.at), mark.tone);
        }
        line
    };
    chart.lanes.iter().map(line).collect()
}

#[test]
fn a_pod_that_came_up_is_told_from_its_pull_until_it_is_ready() {
    let init = json!([status("i", 0, ended(0, 103, 105), json!({}))]);
    let containers = json!([status("c", 0, running(108), json!({}))]);
    let listed = pod("Running", init, containers, Some(("True", 108)));
    let events = [
        once("i", "Pulled", 102_500),
        once("c", "Pulling", 105_500),
        once("c", "Pulled", 107_500),
        once("c", "Created", 108_100),
        once("c", "Started", 108_300),
    ];
    assert_eq!(
        told(&listed, &events),
        [
            "pod: 100-now Running",
            "sandbox: 100-102.5 Preparing",
            "i: 103-105 Running",
            "c: pull: 105.5-107.5 Pulling",
            // The event's time is more exact than the status', also for what follows.
            "c: 108.3-now Running",
            "ready: 108.3-now Running",
        ]
    );
}

#[test]
fn a_crash_loop_shows_the_last_instance_the_wait_and_earlier_starts() {
    let last = ended(1, 150, 160);
    let containers = json!([status("c", 4, waiting("CrashLoopBackOff"), last)]);
    let listed = pod("Running", json!([]), containers, Some(("False", 160)));
    let events = [
        event("c", "Started", 101_000, 150_200, 5),
        event("c", "BackOff", 110_000, 165_000, 9),
        event("c", "Unhealthy", 120_000, 155_000, 3),
        once("c", "Killing", 159_000),
        once("c", "FailedPostStartHook", 130_000),
    ];
    assert_eq!(
        told(&listed, &events),
        [
            "pod: 100-now Running",
            "c, 4 restarts: 150.2-160 Failed 160-now Waiting 101 Plain 159 Notable",
            "c: hooks: 130 Bad",
            "c: probes: 120 Bad 155 Bad",
            "ready: 160-now Failed",
        ]
    );
}

#[test]
fn an_event_of_a_container_that_the_pod_has_no_more_names_it() {
    let containers = json!([status("c", 0, running(108), json!({}))]);
    let listed = pod("Running", json!([]), containers, Some(("True", 108)));
    let events = [
        once("gone", "Killing", 101_000),
        once("c", "Killing", 102_000),
    ];
    let chart = chart_of(&listed, &events, UnixNanos(200 * SECOND)).unwrap();
    let marks = chart.lanes.iter().flat_map(|lane| &lane.marks);
    let titles: Vec<&str> = marks.map(|mark| mark.title.as_str()).collect();
    let expected = ["Killing: gone: Killing message", "Killing: Killing message"];
    for title in expected {
        assert!(titles.contains(&title), "{titles:?}");
    }
}

#[test]
fn a_restart_is_told_with_the_time_between() {
    let containers = json!([status("c", 1, running(130), ended(3, 101, 110))]);
    let listed = pod("Running", json!([]), containers, None);
    assert_eq!(
        told(&listed, &[]),
        [
            "pod: 100-now Running",
            "sandbox: 100-101 Preparing",
            "c, 1 restart: 101-110 Failed 110-130 Waiting 130-now Running",
        ]
    );
}

#[test]
fn only_a_container_that_waits_is_still_pulled_for() {
    let pulling = [once("c", "Pulling", 102_000)];
    for (phase, state, expected) in [
        (
            "Pending",
            waiting("ContainerCreating"),
            "c: pull: 102-now Pulling",
        ),
        // The event of the end is lost.
        ("Running", running(120), "c: pull: 102-102 Pulling"),
        (
            "Failed",
            waiting("ContainerCreating"),
            "c: pull: 102-102 Pulling",
        ),
    ] {
        let containers = json!([status("c", 0, state, json!({}))]);
        let listed = pod(phase, json!([]), containers, None);
        let told = told(&listed, &pulling);
        assert!(told.contains(&expected.to_owned()), "{phase}: {told:?}");
    }
}

#[test]
fn a_pod_that_is_over_ends_with_its_last_container() {
    let containers = json!([
        status("a", 0, ended(0, 101, 120), json!({})),
        status("b", 0, ended(2, 101, 140), json!({})),
    ]);
    let listed = pod("Failed", json!([]), containers, Some(("False", 140)));
    let chart = chart_of(&listed, &[], UnixNanos(10_000 * SECOND)).unwrap();
    assert_eq!((chart.end, chart.goes_on), (UnixNanos(140 * SECOND), false));
    assert_eq!(
        told(&listed, &[]),
        [
            "pod: 100-140 Failed",
            "sandbox: 100-101 Preparing",
            "a: 101-120 Running",
            "b: 101-140 Failed",
        ]
    );
}

#[test]
fn what_nobody_knows_any_more_is_not_drawn() {
    // Started often, and no event is left: when the sandbox was done is not known.
    let containers = json!([status("c", 7, running(190), ended(1, 180, 185))]);
    let listed = pod("Running", json!([]), containers, None);
    let told = told(&listed, &[once("c", "Pulled", 189_000)]);
    assert!(
        !told.iter().any(|line| line.starts_with("sandbox")),
        "{told:?}"
    );
    // Nothing at all.
    let listed = decoded(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"},
    }));
    let text = as_text(&listed.unwrap(), &[], UnixNanos(0), PLAIN);
    assert_eq!(
        text,
        "default/web: Pending, nothing has happened to it yet\n"
    );
}

#[test]
fn trouble_before_the_first_container_is_in_the_lane_of_the_sandbox() {
    let containers = json!([status("c", 0, waiting("ContainerCreating"), json!({}))]);
    let listed = pod("Pending", json!([]), containers, None);
    let events = [
        event("", "FailedMount", 101_000, 150_000, 3),
        once("", "SpecNotApplied", 160_000),
        once("gone", "Started", 170_000),
    ];
    assert_eq!(
        told(&listed, &events),
        [
            "pod: 100-now Waiting 160 Notable 170 Notable",
            "sandbox: 100-now Preparing 101 Bad 150 Bad",
            "c: 100-now Waiting",
        ]
    );
}

const PLAIN: Look = Look {
    width: 72,
    colours: false,
    ascii: true,
};

/// A pod with a crash, an image pull and a message that would steer a terminal.
fn example() -> (ListedPod, Vec<v1::Event>) {
    let mut crashed = ended(1, 108, 115);
    crashed["terminated"]["reason"] = json!("Err<\u{1b}[2J&");
    let containers = json!([status("c", 1, running(130), crashed)]);
    let listed = pod("Running", json!([]), containers, Some(("True", 131)));
    let mut unhealthy = once("c", "Unhealthy", 112_000);
    unhealthy.message = "\u{9b}31m\u{ffff}\"why\"".to_owned();
    let events = vec![
        once("c", "Pulling", 102_000),
        once("c", "Pulled", 107_500),
        unhealthy,
    ];
    (listed, events)
}

const EXPECTED: &str = "\
default/web: Running, since 1970-01-01T00:01:40Z (100s ago)

              0s    +2.0s   +7.5s            +15s      +30s          now
pod           =========================================================>
sandbox       ------
c: pull             ~~~~~~~~
c, 1 restart                   ##############..........================>
c: probes                             !
ready                                                      ============>

- preparing   ~ pulling   . waiting   = running or ready   # failed or not ready
> goes on   ! trouble   * event   | earlier start
The axis is not to scale: long times are drawn shorter.

AT      WHAT           HAPPENED
+0s     pod            on the node: Running (100s until now)
+0s     sandbox        sandbox and volumes, until the first word of a container (2.0s)
+2.0s   c: pull        Pulled message (5.5s)
+8.0s   c, 1 restart   ran, ended with exit code 1 (Err<^[[2J&) (7.0s)
+12s    c: probes      Unhealthy: <U+009B>31m\u{ffff}\"why\"
+15s    c, 1 restart   waited before its next start (15s)
+30s    c, 1 restart   runs (70s until now)
+31s    ready          ready (69s until now)
";

#[test]
fn the_text_shows_lanes_legend_and_words() {
    let (listed, events) = example();
    let text = as_text(&listed, &events, UnixNanos(200 * SECOND), PLAIN);
    assert_eq!(text, EXPECTED, "{text}");
}

#[test]
fn no_line_of_the_picture_is_wider_than_asked_for() {
    let (mut listed, events) = example();
    let spec = listed.pod.spec.as_mut().unwrap();
    spec.containers[0].name = "n".repeat(63);
    let status = listed.pod.status.as_mut().unwrap();
    status.container_statuses.as_mut().unwrap()[0].name = "n".repeat(63);
    for width in [40, 72, 200] {
        for colours in [false, true] {
            let look = Look {
                width,
                colours,
                ascii: colours,
            };
            let text = as_text(&listed, &events, UnixNanos(200 * SECOND), look);
            let picture = text.split("\n\n").nth(1).unwrap();
            for line in picture.lines() {
                let bare: String = line
                    .split('\u{1b}')
                    .map(|part| {
                        part.split_once('m').map_or(part, |(code, rest)| {
                            if code.starts_with('[') { rest } else { part }
                        })
                    })
                    .collect();
                assert!(bare.chars().count() <= width, "{width}: {bare}");
            }
        }
    }
}

#[test]
fn nothing_in_names_or_messages_steers_a_terminal() {
    let (listed, events) = example();
    for ascii in [true, false] {
        let look = Look { ascii, ..PLAIN };
        let text = as_text(&listed, &events, UnixNanos(200 * SECOND), look);
        let steers = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(steers), "{text:?}");
        assert!(!text.is_ascii(), "the message is shown: {text}");
    }
}

#[test]
fn the_svg_is_a_file_of_its_own_with_a_title_for_each_bar() {
    let (mut listed, events) = example();
    listed.pod.metadata.name = Some("<web>&\u{1b}".to_owned());
    let svg = as_svg(&listed, &events, UnixNanos(200 * SECOND));
    assert!(svg.starts_with("<?xml"), "{svg}");
    assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
    assert!(svg.contains("prefers-color-scheme:dark"));
    assert!(svg.contains("default/&lt;web&gt;&amp;^[: Running"), "{svg}");
    assert!(svg.contains("Err&lt;^[[2J&amp;"), "{svg}");
    assert!(svg.contains("&quot;why&quot;"), "{svg}");
    assert!(!svg.contains(['\u{1b}', '\u{9b}', '\u{ffff}']));
    let bars = svg.lines().filter(|line| line.contains("height=\"16\""));
    let bars: Vec<&str> = bars.collect();
    assert_eq!(bars.len(), 7, "{svg}");
    assert!(bars.iter().all(|bar| bar.contains("<title>+")), "{svg}");
    well_formed(&svg);
}

#[test]
fn the_svg_of_a_pod_without_a_history_says_so() {
    let listed = decoded(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {"containers": []},
    }));
    let svg = as_svg(&listed.unwrap(), &[], UnixNanos(SECOND));
    assert!(svg.contains("nothing has happened"), "{svg}");
    well_formed(&svg);
}

/// Every element is closed, in order; no letter stands where only an entity may.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap();
        assert!(!text.contains('>'), "{part}");
        for entity in text.split('&').skip(1).chain(tag.split('&').skip(1)) {
            let (name, _) = entity.split_once(';').unwrap();
            assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "{part}");
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with(['/', '?']) {
            open.push(tag.split_whitespace().next().unwrap());
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
