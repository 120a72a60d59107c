//! What happens to containers that ended: started again, and when, or left.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::ground::spec;
use e2e::workload::script;
use serde_json::{Value, json};
use test_support::observe::{condition, container_status};

/// First wait of the crash-loop back-off.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// How much later than due something may be on a machine that is busy with
/// other tests.
const LATE: Duration = Duration::from_secs(8);

#[test]
fn the_policy_and_the_exit_code_decide_what_starts_again() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    for policy in ["Always", "OnFailure", "Never"] {
        for code in ["0", "1"] {
            let name = name_of(policy, code);
            let words = ["--exit-after-ms", "200", "--exit-code", code];
            let mut pod = ground.app(&name, &words);
            pod["restartPolicy"] = json!(policy);
            ground.apply(&name, pod)?;
        }
    }
    let again = [("Always", "0"), ("Always", "1"), ("OnFailure", "1")];
    for (policy, code) in again {
        let name = name_of(policy, code);
        // The first time at once, then with a wait.
        let exited = ground.note(&name, &format!("exit {code}"), 1)?;
        let started = ground.note(&name, "started", 2)?;
        assert!(between(exited, started)? < LATE, "{name}");
        let waiting = crash_looping(&ground, &name, 1)?;
        let last = &waiting["lastState"]["terminated"];
        assert_eq!(last["exitCode"], json!(code.parse::<i32>()?), "{waiting}");
    }
    let left = [
        ("OnFailure", "0", "Succeeded"),
        ("Never", "0", "Succeeded"),
        ("Never", "1", "Failed"),
    ];
    let as_left = |ground: &Ground| -> Result<()> {
        for (policy, code, phase) in left {
            let name = name_of(policy, code);
            let pod = ground.phase(&name, phase)?;
            let status = container_status(&pod, "app").context("no status")?;
            let ended = &status["state"]["terminated"];
            let reason = if code == "0" { "Completed" } else { "Error" };
            assert_eq!(ended["exitCode"], json!(code.parse::<i32>()?), "{status}");
            assert_eq!(ended["reason"], reason, "{status}");
            assert_eq!(status["restartCount"], 0, "{status}");
            assert_eq!(status["ready"], false);
            assert_eq!(condition(&pod, "Ready"), Some(false));
            assert_eq!(ground.noted(&name, "started")?, 1, "{name}");
            assert_eq!(ground.running(&name)?, 0, "{name}");
        }
        Ok(())
    };
    as_left(&ground)?;
    // They stay as they are while the others go on, and over a new beginning.
    for (policy, code) in again {
        ground.note(&name_of(policy, code), "started", 3)?;
    }
    as_left(&ground)?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    as_left(&ground)?;
    ground.apply("later", ground.app("later", &[]))?;
    ground.ready("later")?;
    as_left(&ground)?;
    let table = ground.printed(&["pods"])?;
    let shown = |policy: &str, code: &str| -> Result<String> {
        let name = ground.full_name(&name_of(policy, code));
        let row = table.lines().find(|row| row.contains(&name));
        Ok(row.with_context(|| table.clone())?.to_owned())
    };
    assert!(shown("Never", "0")?.contains("Completed"), "{table}");
    assert!(shown("Never", "1")?.contains("Error"), "{table}");
    // The files are still there; without them the pods go.
    for (policy, code, _) in left {
        let name = name_of(policy, code);
        ground.take_away(&name)?;
        ground.gone(&name)?;
    }
    Ok(())
}

/// Longest message from a file, in bytes, as the kubelet has it.
const LONGEST_MESSAGE: usize = 4096;

/// Most lines of a log that become a message.
const LOG_LINES: u32 = 80;

#[test]
fn what_a_container_leaves_to_be_told_is_in_its_status() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let file = "/dev/termination-log";
    let tail: Vec<String> = (201 - LOG_LINES..=200)
        .map(|line| format!("{line}\n"))
        .collect();
    // Name, script, what the spec adds to the defaults, and the message.
    let cases = [
        (
            "file",
            format!("echo -n gone > {file}; exit 3"),
            json!({}),
            "gone".to_owned(),
        ),
        (
            "own-path",
            "echo -n away > /tmp/last-words; exit 3".to_owned(),
            json!({"terminationMessagePath": "/tmp/last-words"}),
            "away".to_owned(),
        ),
        (
            "log-only",
            "echo lost; exit 3".to_owned(),
            json!({}),
            String::new(),
        ),
        (
            "from-log",
            "seq 1 200; exit 3".to_owned(),
            from_logs(),
            tail.concat(),
        ),
        (
            "file-first",
            format!("echo log; echo -n file > {file}; exit 3"),
            from_logs(),
            "file".to_owned(),
        ),
        (
            "no-error",
            "echo fine; exit 0".to_owned(),
            from_logs(),
            String::new(),
        ),
    ];
    let containers = cases.iter().map(|(name, lines, more, _)| {
        let mut container = script(name, lines);
        for (field, value) in more.as_object().into_iter().flatten() {
            container[field] = value.clone();
        }
        container
    });
    let mut pod = spec(&ground, &containers.collect::<Vec<_>>());
    pod["restartPolicy"] = json!("Never");
    ground.apply("ended", pod)?;
    let long = format!("head -c 5000 /dev/zero | tr '\\0' x > {file}; exit 3");
    ground.apply("again", spec(&ground, &[script("app", &long)]))?;

    let ended = ground.phase("ended", "Failed")?;
    for (name, _, _, message) in &cases {
        let status = container_status(&ended, name).context("no status")?;
        let told = &status["state"]["terminated"]["message"];
        assert_eq!(told.as_str().unwrap_or_default(), message, "{name}");
    }
    // What the instance before the newest left is told too, cut to the limit of
    // a pod with few containers.
    let looping = crash_looping(&ground, "again", 1)?;
    let told = &looping["lastState"]["terminated"]["message"];
    assert_eq!(*told, "x".repeat(LONGEST_MESSAGE));
    Ok(())
}

fn from_logs() -> Value {
    json!({"terminationMessagePolicy": "FallbackToLogsOnError"})
}

fn name_of(policy: &str, code: &str) -> String {
    format!("{}-{code}", policy.to_lowercase())
}

/// Waits until the container `app` waits in a crash loop after so many restarts,
/// in the kubelet's words, and returns its status.
fn crash_looping(ground: &Ground, name: &str, restarts: u64) -> Result<Value> {
    let what = format!("to be crash-looping after {restarts} restarts");
    let (uid, status) = ground
        .bulkhead
        .wait_for_pod(name, &what, TIMEOUT, |pod| {
            let status = container_status(pod, "app").ok_or("no status")?;
            let reason = &status["state"]["waiting"]["reason"];
            if reason == "CrashLoopBackOff" && status["restartCount"] == restarts {
                Ok((pod["metadata"]["uid"].clone(), status.clone()))
            } else {
                Err(format!("{reason}"))
            }
        })
        .with_context(|| ground.bulkhead.log_ends())?;
    let wait = FIRST_WAIT.as_secs() << (restarts - 1);
    let expected = format!(
        "back-off {wait}s restarting failed container=app pod={}_default({})",
        ground.full_name(name),
        uid.as_str().unwrap_or_default()
    );
    assert_eq!(status["state"]["waiting"]["message"], expected.as_str());
    Ok(status)
}

/// Time between two entries of a journal.
fn between(earlier: u128, later: u128) -> Result<Duration> {
    let nanoseconds = later.checked_sub(earlier).context("the other way round")?;
    Ok(Duration::from_nanos(u64::try_from(nanoseconds)?))
}
