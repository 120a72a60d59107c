//! The crash-loop back-off, its words, and the restart counts.

use pod::PodIdentity;

use super::*;

#[test]
fn the_crash_loop_back_off_doubles_to_its_cap_and_waits_from_the_exit() {
    // What the exited instance carries, how long ago it exited, what follows.
    for (carried, exited_for, starts, next) in [
        (0, 0, true, 10),
        (10, 3, false, 0),
        (10, 10, true, 20),
        (20, 19, false, 0),
        (20, 21, true, 40),
        (160, 160, true, 300),
        (300, 299, false, 0),
        (300, 300, true, 300),
    ] {
        let mut case = Case::new("Always");
        case.has("a", exited_ago(0, exited_for));
        case.container("a").created_at = ago(exited_for + 1);
        case.container("a").restart_wait = Some(Duration::from_secs(carried));
        let work = case.work();
        if starts {
            let next = Duration::from_secs(next);
            assert_eq!(case.new_instance().restart_wait, next, "{carried}");
            assert!(work.waits.is_empty());
        } else {
            let wait = &work.waits[0];
            assert_eq!(wait.wait, Duration::from_secs(carried));
            assert_eq!(wait.until, ago(exited_for).plus(wait.wait));
            assert_eq!(work.wake_at, Some(wait.until));
            assert!(work.has_nothing_to_do_now());
        }
    }
}

#[test]
fn a_long_run_or_a_new_definition_ends_the_back_off() {
    let mut case = Case::new("Always");
    case.has("a", exited_ago(1, 1));
    case.container("a").restart_wait = Some(Duration::from_secs(300));
    case.container("a").created_at = ago(602);
    assert_eq!(case.new_instance().restart_wait, Duration::from_secs(10));
    case.container("a").created_at = ago(2);
    assert!(case.starts().is_empty());
    case.pod["spec"]["containers"][0]["image"] = json!("i:2");
    assert_eq!(case.new_instance().restart_wait, Duration::from_secs(10));
}

/// As where its manifest was moved away and back again.
#[test]
fn a_pod_that_has_begun_anew_waits_for_no_back_off_of_before() {
    for (begun_anew, starts) in [(false, false), (true, true)] {
        let mut case = Case::new("Always");
        case.has("a", exited_ago(137, 1));
        case.container("a").created_at = ago(2);
        case.container("a").restart_wait = Some(Duration::from_secs(300));
        case.container("a").restart_count = 5;
        case.observation.first_round = u32::from(begun_anew);
        for name in ["b", "c"] {
            case.container(name).round = u32::from(begun_anew);
        }
        assert_eq!(!case.starts().is_empty(), starts);
        if starts {
            let instance = case.new_instance();
            assert_eq!(instance.restart_wait, Duration::ZERO);
            assert_eq!(instance.restart_count, 6, "its name is its own");
        }
    }
}

#[test]
fn a_short_longest_wait_ends_no_back_off_sooner() {
    let mut case = Case::new("Always");
    case.longest_restart_wait = Duration::from_secs(10);
    case.has("a", exited_ago(1, 1));
    case.container("a").restart_wait = Some(Duration::from_secs(10));
    case.container("a").created_at = ago(26);
    assert!(
        case.starts().is_empty(),
        "a container that dies every 25 s waits"
    );
    case.container("a").created_at = ago(602);
    assert_eq!(case.starts().len(), 1);
}

#[test]
fn a_clock_that_was_set_back_neither_lengthens_the_wait_nor_repeats_it() {
    let mut case = Case::new("Always");
    case.has("a", exited_ago(1, 0));
    case.container("a").restart_wait = Some(Duration::from_secs(40));
    let mut exit_in = |seconds| {
        let exited_at = NOW.plus(Duration::from_secs(seconds));
        case.container("a").created_at = exited_at;
        if let ContainerState::Exited(exit) = &mut case.container("a").state {
            exit.finished_at = exited_at;
        }
        case.work()
    };
    for seconds in [0, 1, 40] {
        let wake_at = NOW.plus(Duration::from_secs(40));
        assert_eq!(exit_in(seconds).wake_at, Some(wake_at), "{seconds}");
    }
    for seconds in [41, 3600, 10 * 365 * 86_400] {
        let work = exit_in(seconds);
        assert_eq!(work.starts.len(), 1, "{seconds}");
        assert_eq!(work.waits, [], "{seconds}");
    }
}

#[test]
fn the_kubelets_words_for_a_crash_loop() {
    let wait = RestartWait {
        name: "c".into(),
        container_id: "c-0".into(),
        wait: Duration::from_secs(160),
        until: NOW,
    };
    assert_eq!(
        wait.message(&PodIdentity::new("u1", "default", "p").unwrap()),
        "back-off 2m40s restarting failed container=c pod=p_default(u1)"
    );
    for (seconds, text) in [(10, "10s"), (60, "1m0s"), (300, "5m0s"), (3700, "1h1m40s")] {
        assert_eq!(go_duration(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn restart_counts_go_on_from_instances_or_from_the_names_of_logs() {
    let mut case = Case::new("Always");
    case.has("a", exited(1));
    case.container("a").restart_count = 4;
    let mut older = case.container("a").clone();
    older.id = "older".into();
    older.restart_count = 3;
    case.observation.containers.push(older);
    assert_eq!(case.new_instance().restart_count, 5);
    case.observation
        .containers
        .retain(|container| container.name != "a");
    assert_eq!(case.new_instance().restart_count, 0);
    case.observation.starts_in_logs.insert("a".into(), 6);
    assert_eq!(case.new_instance().restart_count, 6);
}
