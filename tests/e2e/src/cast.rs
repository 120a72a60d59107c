//! Pods in every state that they stay in by themselves, for tests that disturb
//! the node: none of them may notice. And pods that insist on their grace.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use test_support::{journal, wait_for};
use topology::Process;

use crate::ground::spec;
use crate::ground::{Ground, TIMEOUT};
use crate::witness::{Look, Testimony};
use crate::workload::{JOURNALS, container, script};

/// The first wait of a crash loop; each further one is twice as long, up to the longest.
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(300);

/// How much less than its grace a stubborn pod may seem to have had: it shows
/// that it lives ten times a second, and less often on a busy machine.
const BEAT: Duration = Duration::from_secs(1);

/// Grace of a [`web`] pod.
const WEB_GRACE: Duration = Duration::from_secs(20);

/// How much of a grace may run while everything is dead, before a signal is sent.
const NOBODY_THERE: Duration = Duration::from_secs(5);

/// The pods that stay as they are, with the phase of each and how often its
/// container starts.
const STEADY: [(&str, &str, usize); 6] = [
    ("web", "Running", 1),
    ("shell", "Running", 1),
    ("plain", "Running", 1),
    ("done", "Succeeded", 1),
    ("failed", "Failed", 1),
    ("rejected", "Failed", 0),
];

/// The pods as they were before the disturbance.
#[derive(Debug)]
pub struct Cast {
    steady: Vec<Value>,
}

impl Cast {
    /// How many pods there are.
    pub const PODS: usize = STEADY.len();

    /// Those that run until the end.
    pub const RUNNING: [&str; 3] = ["web", "shell", "plain"];

    /// Starts all of them, and `looping`, which crashes again and again.
    ///
    /// # Errors
    /// When one does not get into its state.
    pub fn enter(ground: &Ground) -> Result<Self> {
        let mut web = container("app", "web", &["--http", "8080"]);
        let page = json!({"path": "/healthz", "port": 8080});
        web["readinessProbe"] = patient(&json!({"httpGet": page}));
        web["livenessProbe"] = patient(&json!({"httpGet": page}));
        web["livenessProbe"]["failureThreshold"] = json!(3);
        ground.apply("web", spec(ground, &[web]))?;

        let mut shell = container("app", "shell", &[]);
        shell["image"] = json!(test_support::images::BUSYBOX);
        shell["command"] = json!(["sh", "-c", noting("shell", "while :; do sleep 1; done")]);
        shell.as_object_mut().map(|it| it.remove("args"));
        for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
            shell[probe] = patient(&json!({"exec": {"command": ["true"]}}));
        }
        ground.apply("shell", spec(ground, &[shell]))?;

        let mut plain = ground.app("plain", &[]);
        plain["initContainers"] = json!([container(
            "first",
            "plain-first",
            &["--exit-after-ms", "50"]
        )]);
        ground.apply("plain", plain)?;

        for (name, code) in [("done", "0"), ("failed", "3")] {
            let mut once = ground.app(name, &["--exit-after-ms", "100", "--exit-code", code]);
            once["restartPolicy"] = json!("Never");
            ground.apply(name, once)?;
        }
        let mut rejected = ground.app("rejected", &[]);
        rejected["containers"][0]["resources"] = json!({"requests": {"cpu": "10k"}});
        ground.apply("rejected", rejected)?;
        crash_loop(ground, "looping")?;

        let mut steady = Vec::new();
        for (name, phase, _) in STEADY {
            steady.push(if phase == "Running" {
                ground.ready(name)?
            } else {
                ground.phase(name, phase)?
            });
        }
        ground.note("looping", "started", 2)?;
        Ok(Self { steady })
    }

    /// That none of them changed, as far as anybody could see.
    ///
    /// # Errors
    /// With what changed.
    pub fn is_unharmed(&self, ground: &Ground, testimony: &Testimony) -> Result<()> {
        let journal = ground.journal()?;
        for (before, (name, _, starts)) in self.steady.iter().zip(STEADY) {
            let now = ground.pod(name)?;
            ensure!(
                now["metadata"]["uid"] == before["metadata"]["uid"],
                "{name} is another pod"
            );
            let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
            let what_was_noted = || lines_about(ground, uid);
            // First when it changed, if it was seen to.
            testimony
                .never_changed(before)
                .with_context(what_was_noted)?;
            let is_same = Look::of(&now) == Look::of(before);
            ensure!(is_same, "{name} is now {now}\n{}", what_was_noted());
            let started = journal::count(&journal, name, "started");
            ensure!(started == starts, "{name} started {started} times");
            let asked = journal::count(&journal, name, "SIGTERM");
            ensure!(asked == 0, "{name} was asked to end");
        }
        let first = journal::count(&journal, "plain-first", "started");
        ensure!(first == 1, "an init container ran {first} times");
        crash_loop_waited(ground, "looping")
    }
}

/// A pod that crashes again and again.
fn crash_loop(ground: &Ground, name: &str) -> Result<()> {
    let pod = ground.app(name, &["--exit-after-ms", "100", "--exit-code", "1"]);
    ground.apply(name, pod)
}

/// Checks that every restart of a [`crash_loop`] pod was counted and waited for as
/// long as is due, however the node was disturbed meanwhile.
fn crash_loop_waited(ground: &Ground, name: &str) -> Result<()> {
    starts_waited(ground, name)
        .and_then(|()| starts_are_counted(ground, name))
        .with_context(|| all_lines_about(ground, name))
}

/// What the parts and containerd logged of a pod.
fn all_lines_about(ground: &Ground, name: &str) -> String {
    let parts = lines_about(ground, &ground.full_name(name));
    parts + &containerd_lines_about(ground, name)
}

/// What containerd logged of the containers of a pod.
fn containerd_lines_about(ground: &Ground, name: &str) -> String {
    let log = ground.containerd.log();
    let ids = containers_of(&log, &ground.full_name(name));
    let lines = log
        .lines()
        .filter(|line| ids.iter().any(|id| line.contains(id)));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("[containerd]\n{lines}")
}

/// What the parts logged of a pod, by its UID or name.
#[must_use]
pub fn lines_about(ground: &Ground, pod: &str) -> String {
    let of_part = |part| {
        let log = ground.bulkhead.log(part);
        let lines = log
            .lines()
            .filter(|line| line.contains(pod) || line.contains("INFO started"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let parts = Process::ON_EVERY_NODE.into_iter();
    parts
        .filter(|part| *part != Process::Supervisor)
        .map(|part| format!("[{part}]\n{}", of_part(part)))
        .collect()
}

fn starts_of(ground: &Ground, name: &str) -> Result<Vec<u128>> {
    let journal = ground.journal()?.into_iter();
    let starts = journal.filter(|entry| entry.name == name && entry.event == "started");
    Ok(starts.map(|entry| entry.unix_nanoseconds).collect())
}

/// That each start of a crash-looping pod waited; none need do after a start that
/// containerd cut short.
fn starts_waited(ground: &Ground, name: &str) -> Result<()> {
    let starts = starts_of(ground, name)?;
    waited(&starts, starts_cut_short(ground, name)).context(name.to_owned())
}

/// The same of starts at these Unix nanoseconds.
fn waited(starts: &[u128], cut_short: usize) -> Result<()> {
    let mut early = 0;
    let mut due = FIRST_BACK_OFF;
    // The first restart comes at once.
    for pair in starts.windows(2).skip(1) {
        let waited = Duration::from_nanos(u64::try_from(pair[1] - pair[0])?);
        if waited < due {
            early += 1;
            ensure!(
                early <= cut_short,
                "it waited {waited:?} of {due:?}; containerd cut {cut_short} starts short"
            );
        } else {
            due = LONGEST_BACK_OFF.min(due * 2);
        }
    }
    Ok(())
}

/// That the restart count comes to what was started.
fn starts_are_counted(ground: &Ground, name: &str) -> Result<()> {
    let (cut_short, lost) = (starts_cut_short(ground, name), starts_lost(ground, name));
    let look = || -> Result<(u64, usize)> {
        let pod = ground.pod(name)?;
        let count = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
        let restarts = count.context("no restart count")?;
        Ok((restarts, starts_of(ground, name)?.len()))
    };
    wait_for("all starts to be counted", TIMEOUT, || {
        let (restarts, starts) = look().map_err(|error| format!("{error:#}"))?;
        let counted = usize::try_from(restarts + 1).unwrap_or(usize::MAX);
        // Those that were cut short are not counted, but may be noted; those that were lost
        // are counted, and not noted.
        if (counted.saturating_sub(lost)..=counted + cut_short).contains(&starts) {
            return Ok(());
        }
        Err(format!(
            "{restarts} restarts of {starts} starts, {cut_short} of them cut short; {lost} more lost"
        ))
    })?;
    Ok(())
}

/// A probe whose first failure counts, and which waits for an answer as long as any
/// test waits: on a machine with fifty other processes one that is made takes seconds.
fn patient(action: &Value) -> Value {
    let mut probe = action.clone();
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(1);
    probe["timeoutSeconds"] = json!(TIMEOUT.as_secs());
    probe
}

/// A server with a readiness probe that journals as `name`,
/// and takes a moment to end.
#[must_use]
pub fn web(ground: &Ground, name: &str) -> Value {
    let mut server = container("app", name, &["--http", "8080", "--term-delay-ms", "300"]);
    server["readinessProbe"] = patient(&json!({"httpGet": {"path": "/healthz", "port": 8080}}));
    let mut pod = spec(ground, &[server]);
    pod["terminationGracePeriodSeconds"] = json!(WEB_GRACE.as_secs());
    pod
}

/// Checks that a [`web`] pod which is gone, and during whose life everything was
/// killed, was started at most once and ended by itself when it was asked to, but
/// for what containerd alone is to blame for: a start that it cut short, and a
/// signal that it lost, after which the container had its whole grace.
///
/// # Errors
/// When it was not, with what was logged of the pod.
pub fn web_came_and_went(ground: &Ground, name: &str) -> Result<()> {
    ground.gone(name)?;
    let started = ground.noted(name, "started")?;
    let asked = ground.noted(name, "SIGTERM")?;
    let ended = ground.noted(name, "exit 0")?;
    let cut_short = starts_cut_short(ground, name);
    let grace = grace_after_signal(ground, name);
    let had_grace = grace.is_some_and(|grace| grace + NOBODY_THERE >= WEB_GRACE);
    let unheard = usize::from(asked == 0 && had_grace);
    ensure!(
        started <= 1 + cut_short && ended <= 1 && ended + cut_short + unheard >= started,
        "{name} was started {started} times, {cut_short} of them cut short, asked to end \
         {asked} times and ended by itself {ended} times\n{}",
        all_lines_about(ground, name)
    );
    Ok(())
}

/// A pod that ignores SIGTERM and shows all the time that it lives.
///
/// # Errors
/// When its manifest cannot be written.
pub fn stubborn(ground: &Ground, name: &str, grace: Duration) -> Result<()> {
    let trap = format!("trap 'touch {JOURNALS}/asked-{name}' TERM");
    let live = format!("while :; do touch {JOURNALS}/alive-{name}; sleep 0.1; done");
    let lines = format!("{trap}; {}", noting(name, &live));
    let mut pod = spec(ground, &[script("app", &lines)]);
    pod["terminationGracePeriodSeconds"] = json!(grace.as_secs());
    ground.apply(name, pod)
}

/// Removes the manifest of a [`stubborn`] pod, noting when.
///
/// # Errors
/// When there is none.
pub fn dismiss(ground: &Ground, name: &str) -> Result<()> {
    let note = ground
        .bulkhead
        .paths()
        .shared
        .join(format!("dismissed-{name}"));
    std::fs::write(note, "")?;
    ground.take_away(name)
}

/// Waits until a dismissed pod is gone and checks that it had its grace, and at
/// most `late` more.
///
/// # Errors
/// When it had not.
pub fn had_its_grace(ground: &Ground, name: &str, grace: Duration, late: Duration) -> Result<()> {
    let full_name = ground.full_name(name);
    in_time(ground, name, grace, late)
        .and_then(|()| was_asked(ground, name))
        .with_context(|| lines_about(ground, &full_name))
}

/// The same where everything was killed while it stopped the pod, perhaps in the
/// moment in which containerd loses the signal.
///
/// # Errors
/// When it had not its grace, or containerd was never told to send the signal.
pub fn had_its_grace_over_a_kill(
    ground: &Ground,
    name: &str,
    grace: Duration,
    late: Duration,
) -> Result<()> {
    let full_name = ground.full_name(name);
    in_time(ground, name, grace, late)
        .and_then(|()| was_asked(ground, name))
        .or_else(|error| match is_signal_lost(ground, name) {
            true => in_time(ground, name, grace, late),
            false => Err(error),
        })
        .with_context(|| lines_about(ground, &full_name))
}

fn was_asked(ground: &Ground, name: &str) -> Result<()> {
    let asked = time_of(ground, &format!("asked-{name}"));
    asked.map(drop).context("it was never asked to end")
}

fn in_time(ground: &Ground, name: &str, grace: Duration, late: Duration) -> Result<()> {
    ground.gone(name)?;
    // Right after a restart a pod may be in no list though its container runs.
    wait_for(&format!("nothing of {name} to run"), TIMEOUT, || {
        let running = ground.running(name);
        let running = running.map_err(|error| format!("{error:#}"))?;
        (running == 0).then_some(()).ok_or(format!("{running} run"))
    })?;
    let dismissed = time_of(ground, &format!("dismissed-{name}"))?;
    let Ok(lived) = time_of(ground, &format!("alive-{name}"))?.duration_since(dismissed) else {
        bail!("{name} ended before it was dismissed");
    };
    ensure!(lived + BEAT >= grace, "{name} had {lived:?} of {grace:?}");
    ensure!(lived <= grace + late, "{name} had {lived:?}, not {grace:?}");
    let started = ground.noted(name, "started")?;
    ensure!(started == 1, "{name} started {started} times");
    Ok(())
}

/// That the container of a pod was started once, although the whole node agent was
/// killed meanwhile; see [`starts_cut_short`].
///
/// # Errors
/// When it was started more often, or never.
pub fn started_once_over_a_kill(ground: &Ground, name: &str) -> Result<()> {
    let started = ground.noted(name, "started")?;
    let cut_short = starts_cut_short(ground, name);
    ensure!(
        (1..=1 + cut_short).contains(&started),
        "{name} was started {started} times, of which containerd cut {cut_short} short"
    );
    Ok(())
}

/// How many processes of a pod containerd says that it ended itself just after it
/// had started them. It does when the caller of StartContainer dies between the
/// start of the process and the end of the call, which no caller can help: the
/// process may have run for a moment.
fn starts_cut_short(ground: &Ground, name: &str) -> usize {
    let log = ground.containerd.log();
    let is_cut_short = |id: &&String| {
        let failed = format!("error=\"failed to start containerd task \\\"{id}\\\"");
        let mut lines = log.lines().filter(|line| line.contains(&failed));
        lines.any(|line| line.contains("context canceled") || line.contains("signal: killed"))
    };
    let containers = containers_of(&log, &ground.full_name(name));
    containers.iter().filter(is_cut_short).count()
}

/// How many processes of a pod containerd had made and not started when it was killed
/// itself: it cannot start such a container any more, which ends as one that failed.
fn starts_lost(ground: &Ground, name: &str) -> usize {
    let log = ground.containerd.log();
    let is_lost = |id: &&String| {
        let failed = format!("StartContainer for \\\"{id}\\\" failed");
        let mut lines = log.lines().filter(|line| line.contains(&failed));
        lines.any(|line| line.contains("already exists"))
    };
    let containers = containers_of(&log, &ground.full_name(name));
    containers.iter().filter(is_lost).count()
}

/// Whether containerd said that it sends the container of a pod its SIGTERM, and
/// lost it: it does when the caller dies at that moment, and never sends another
/// (1.6 and 1.7). No client of it can make that good; what is left to ask for is
/// that the container had its whole grace.
fn is_signal_lost(ground: &Ground, name: &str) -> bool {
    let log = ground.containerd.log();
    let containers = containers_of(&log, &ground.full_name(name));
    containers
        .iter()
        .any(|id| log.contains(&signal_announced(id)))
}

/// What containerd says when it is about to send a container its SIGTERM.
fn signal_announced(id: &str) -> String {
    format!("Stop container \\\"{id}\\\" with signal terminated")
}

/// The time from containerd's saying that it sends the container of a pod its SIGTERM
/// until it killed it; see [`is_signal_lost`].
fn grace_after_signal(ground: &Ground, name: &str) -> Option<Duration> {
    let log = ground.containerd.log();
    let at = |text: String| -> Option<Timestamp> {
        let line = log.lines().find(|line| line.contains(&text))?;
        let time = line.strip_prefix("time=\"")?.split('"').next()?;
        time.parse().ok()
    };
    let containers = containers_of(&log, &ground.full_name(name));
    containers.iter().find_map(|id| {
        let asked = at(signal_announced(id))?;
        let killed = at(format!("Kill container \\\"{id}\\\""))?;
        killed.duration_since(asked).try_into().ok()
    })
}

/// The ids of all containers that containerd made for a pod, from its log.
fn containers_of(log: &str, full_name: &str) -> Vec<String> {
    let made = |made_of: &str, words: &str| -> Vec<String> {
        let lines = log.lines().filter(|line| line.contains(made_of));
        let ids = lines.filter_map(|line| Some(line.split_once(words)?.1));
        ids.map(|id| id.trim_matches(['\\', '"', ' ']).to_owned())
            .collect()
    };
    let of_pod = format!("PodSandboxMetadata{{Name:{full_name},");
    let sandboxes = made(&of_pod, "returns sandbox id");
    let containers = sandboxes.iter().flat_map(|sandbox| {
        let in_sandbox = format!("CreateContainer within sandbox \\\"{sandbox}");
        made(&in_sandbox, "returns container id")
    });
    containers.collect()
}

/// A script that notes its start before it does anything.
fn noting(name: &str, then: &str) -> String {
    format!("echo \"$(date +%s)000000000 {name} started\" >> {JOURNALS}/journal; {then}")
}

fn time_of(ground: &Ground, file_name: &str) -> Result<SystemTime> {
    let path = ground.bulkhead.paths().shared.join(file_name);
    let metadata = std::fs::metadata(&path);
    Ok(metadata
        .with_context(|| path.display().to_string())?
        .modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loop_waits_twice_as_long_each_time_up_to_five_minutes() {
        let holds = |seconds: &[u128], cut_short| {
            let starts: Vec<u128> = seconds.iter().map(|it| it * 1_000_000_000).collect();
            waited(&starts, cut_short).is_ok()
        };
        let good = [0, 1, 11, 31, 71, 151, 311, 611, 911];
        assert!(holds(&good, 0));
        assert!(!holds(&[&good[..], &[1210]].concat(), 0), "299 s");
        assert!(!holds(&[0, 1, 11, 30], 0), "19 s");
        assert!(holds(&[0, 1, 11, 30, 50], 1), "once it may");
        assert!(!holds(&[0, 1, 11, 30, 49], 1), "not twice");
    }
}
