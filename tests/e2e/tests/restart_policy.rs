//! What happens to containers that ended: started again, and when, or left.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::ground::spec;
use e2e::workload::{JOURNALS, container, script};
use serde_json::{Value, json};
use test_support::observe::{condition, container_status};
use topology::Process;

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

#[test]
fn a_crashing_container_waits_longer_each_time_and_says_so() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    // Ends twice, then runs.
    let count = format!("{JOURNALS}/count");
    let text = format!(
        "n=$(cat {count} 2>/dev/null || echo 0); echo instance $n; echo $((n + 1)) > {count}; \
         [ $n -lt 2 ] && exit 3; trap 'exit 0' TERM; while true; do sleep 1 & wait; done"
    );
    let observer = container("observer", "observer", &[]);
    ground.apply("loop", spec(&ground, &[script("app", &text), observer]))?;
    let waiting = crash_looping(&ground, "loop", 1)?;
    let last = &waiting["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(3), &json!("Error"))
    );
    assert_eq!(waiting["ready"], false);

    let pod = ground.pod("loop")?;
    assert_eq!(
        pod["status"]["phase"], "Running",
        "the other container runs"
    );
    let back_off = ground.event("loop", "BackOff", "app")?;
    assert!(
        back_off.starts_with("Back-off restarting failed container"),
        "{back_off}"
    );
    let table = ground.printed(&["pods", "loop"])?;
    assert!(
        table.contains("CrashLoopBackOff") && table.contains("1/2"),
        "{table}"
    );
    let described = ground.printed(&["describe", "loop"])?;
    assert!(
        described.contains("back-off 10s restarting failed container"),
        "{described}"
    );
    let log = ground.logged(&["loop", "-c", "app"], "instance 1\n")?;
    assert_eq!(log, "instance 1\n");

    let pod = ground.ready("loop")?;
    let status = container_status(&pod, "app").context("no status")?;
    assert_eq!(status["restartCount"], 2, "{status}");
    let first = seconds(&status["lastState"]["terminated"]["finishedAt"])?;
    let second = seconds(&status["state"]["running"]["startedAt"])?;
    // Times in a status are whole seconds.
    let waited = Duration::from_secs(second.saturating_sub(first));
    let wait = FIRST_WAIT - Duration::from_secs(1)..FIRST_WAIT + LATE;
    assert!(wait.contains(&waited), "waited {waited:?}");
    for (words, printed) in [
        (&["loop", "-c", "app"][..], "instance 2\n"),
        (&["--previous", "loop", "-c", "app"][..], "instance 1\n"),
    ] {
        assert_eq!(ground.logged(words, printed)?, printed, "{words:?}");
    }
    let never_ended =
        ground
            .bulkhead
            .command_line(&["logs", "--previous", "loop", "-c", "observer"])?;
    assert!(!never_ended.status.success(), "{}", never_ended.stdout);
    assert_eq!(ground.noted("observer", "started")?, 1);
    Ok(())
}

#[test]
fn the_wait_after_a_crash_outlives_the_worker_that_keeps_it() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let words = ["--exit-after-ms", "100", "--exit-code", "1"];
    ground.apply("loop", ground.app("loop", &words))?;
    let exited = ground.note("loop", "exit 1", 2)?;
    crash_looping(&ground, "loop", 1)?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    ground.bulkhead.kill(Process::StatusSyncer)?;
    let started = ground.note("loop", "started", 3)?;
    let waited = between(exited, started)?;
    let wait = FIRST_WAIT..FIRST_WAIT + LATE;
    assert!(wait.contains(&waited), "waited {waited:?}");
    ground.bulkhead.wait_until_ready()?;
    let waiting = crash_looping(&ground, "loop", 2)?;
    let message = waiting["state"]["waiting"]["message"].to_string();
    assert!(message.contains("back-off 20s restarting"), "{message}");
    // Another content is another pod, which does not wait.
    ground.apply("loop", ground.app("mended", &[]))?;
    ground.note("mended", "started", 1)?;
    Ok(())
}

#[test]
fn a_failed_init_container_ends_a_pod_that_is_never_restarted() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let mut pod = spec(&ground, &[container("app", "app", &[])]);
    let fails = &["--exit-after-ms", "100", "--exit-code", "2"];
    pod["restartPolicy"] = json!("Never");
    pod["initContainers"] = json!([
        container("first", "first", fails),
        container("second", "second", &[])
    ]);
    ground.apply("broken", pod.clone())?;
    pod["restartPolicy"] = json!("OnFailure");
    pod["initContainers"][0] = container("first", "retried", fails);
    ground.apply("retried", pod)?;

    let broken = ground.phase("broken", "Failed")?;
    let first = container_status(&broken, "first").context("no status")?;
    assert_eq!(first["state"]["terminated"]["exitCode"], 2, "{first}");
    assert_eq!(condition(&broken, "Initialized"), Some(false));
    let table = ground.printed(&["pods", "broken"])?;
    assert!(table.contains("Init:Error"), "{table}");

    ground.note("retried", "exit 2", 2)?;
    let waiting = ground
        .bulkhead
        .wait_for_pod("retried", "to wait", TIMEOUT, |pod| {
            let status = container_status(pod, "first").ok_or("no status")?;
            let reason = &status["state"]["waiting"]["reason"];
            (reason == "CrashLoopBackOff")
                .then(|| pod.clone())
                .ok_or(reason.to_string())
        })?;
    assert_eq!(waiting["status"]["phase"], "Pending");
    let table = ground.printed(&["pods", "retried"])?;
    assert!(table.contains("Init:CrashLoopBackOff"), "{table}");
    for never in ["second", "app"] {
        assert_eq!(ground.noted(never, "started")?, 0, "{never}");
    }
    assert_eq!(ground.noted("first", "started")?, 1);
    Ok(())
}

#[test]
fn an_exit_that_a_rule_names_starts_all_containers_again_in_place() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    // Ends with 42 the first time, then runs, and counts its instances in a volume.
    let text = "n=$(cat /work/count 2>/dev/null || echo 0); echo $((n + 1)) > /work/count; \
        [ $n -lt 1 ] && sleep 3 && exit 42; \
        trap 'exit 0' TERM; while true; do sleep 1 & wait; done";
    let mut trigger = script("trigger", text);
    trigger["volumeMounts"] = json!([{"name": "work", "mountPath": "/work"}]);
    trigger["restartPolicy"] = json!("Never");
    trigger["restartPolicyRules"] = json!([{
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    }]);
    let slow = container("slow", "slow", &["--term-delay-ms", "60000"]);
    let ends = &["--exit-after-ms", "100", "--exit-code", "0"];
    let mut pod = spec(&ground, &[trigger, slow, container("done", "done", ends)]);
    let mut helper = container("helper", "helper", &[]);
    helper["restartPolicy"] = json!("Always");
    pod["initContainers"] = json!([container("first", "first", ends), helper]);
    pod["restartPolicy"] = json!("Never");
    pod["terminationGracePeriodSeconds"] = json!(60);
    let volumes = pod["volumes"].as_array_mut().context("no volumes")?;
    volumes.push(json!({"name": "work", "emptyDir": {}}));
    ground.apply("again", pod)?;

    ground.note("slow", "started", 1)?;
    let before = ground.pod("again")?;
    let asked = ground.note("slow", "SIGTERM", 1)?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    ground.bulkhead.wait_until_ready()?;
    let again = ["first", "helper", "slow", "done"];
    let started = again.map(|name| ground.note(name, "started", 2));
    let started = started.into_iter().collect::<Result<Vec<u128>>>()?;
    let first_of_others = started[1..].iter().min();
    assert!(Some(&started[0]) < first_of_others, "{started:?}");
    // It got two seconds, and not the grace of the pod.
    assert!(between(asked, started[0])? < 3 * LATE);

    let settled = |pod: &Value| {
        let counts = ["first", "helper", "trigger", "slow", "done"]
            .map(|name| container_status(pod, name).map(|it| it["restartCount"].clone()));
        let is_counted = counts.iter().all(|count| *count == Some(json!(1)));
        let is_over = condition(pod, "AllContainersRestarting") == Some(false);
        match is_counted && is_over && pod["status"]["phase"] == "Running" {
            true => Ok(pod.clone()),
            false => Err(format!("{counts:?} {}", pod["status"]["conditions"])),
        }
    };
    let after = ground
        .bulkhead
        .wait_for_pod("again", "to run again", TIMEOUT, settled)
        .with_context(|| ground.bulkhead.log_ends())?;
    let ended = container_status(&after, "trigger").context("no status")?;
    assert_eq!(ended["lastState"]["terminated"]["exitCode"], 42, "{ended}");
    assert_eq!(before["status"]["podIP"], after["status"]["podIP"]);
    assert_eq!(ground.sandboxes("again")?.len(), 1);
    assert_eq!(
        ground.exec("again", "trigger", &["cat", "/work/count"])?,
        "2\n"
    );
    for name in again {
        assert_eq!(ground.noted(name, "started")?, 2, "{name}");
    }
    Ok(())
}

#[test]
fn a_pod_is_active_for_as_long_as_its_deadline_allows() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let mut pod = ground.app("limited", &["--term-delay-ms", "100"]);
    pod["activeDeadlineSeconds"] = json!(4);
    ground.apply("limited", pod)?;
    // One that is done in time, and one that crashes all along.
    let mut pod = ground.app("quick", &["--exit-after-ms", "100"]);
    pod["activeDeadlineSeconds"] = json!(30);
    pod["restartPolicy"] = json!("Never");
    ground.apply("quick", pod)?;
    let mut pod = ground.app("crashing", &["--exit-after-ms", "100", "--exit-code", "1"]);
    pod["activeDeadlineSeconds"] = json!(4);
    ground.apply("crashing", pod)?;

    let started = ground.note("limited", "started", 1)?;
    let ended = |ground: &Ground| -> Result<()> {
        for name in ["limited", "crashing"] {
            let pod = ground.phase(name, "Failed")?;
            assert_eq!(pod["status"]["reason"], "DeadlineExceeded", "{pod}");
            assert_eq!(
                pod["status"]["message"],
                "Pod was active on the node longer than the specified deadline"
            );
            assert_eq!(ground.running(name)?, 0, "{name}");
        }
        assert_eq!(ground.noted("limited", "started")?, 1);
        ensure!(
            ground.noted("crashing", "started")? <= 2,
            "waits for 10 s before the third"
        );
        ground.phase("quick", "Succeeded")?;
        Ok(())
    };
    let asked = ground.note("limited", "SIGTERM", 1)?;
    // The pod was active a little before its container.
    let active = between(started, asked)?;
    let limit = Duration::from_secs(4);
    assert!(active < limit + LATE, "{active:?}");
    assert!(active + LATE > limit, "{active:?}");
    ended(&ground)?;
    let pod = ground.pod("limited")?;
    let begun = seconds(&pod["status"]["startTime"])?;
    let asked = u64::try_from(asked / 1_000_000_000)?;
    assert!(asked >= begun + 4, "active from {begun} to {asked}");
    ground.event("limited", "DeadlineExceeded", "")?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    ended(&ground)
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

/// Unix seconds of a time in a status.
fn seconds(time: &Value) -> Result<u64> {
    let text = time.as_str().with_context(|| format!("no time: {time}"))?;
    let time: jiff::Timestamp = text.parse()?;
    Ok(u64::try_from(time.as_second())?)
}
