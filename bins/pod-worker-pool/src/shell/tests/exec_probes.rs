//! Which command an exec probe has run, and how many run at once.

use super::*;

/// A pod whose liveness probe checks this.
fn checking(word: &str) -> Value {
    let mut value = pod_running("a", "u1", &["run"]);
    let container = &mut value["spec"]["containers"][0];
    container["env"] = json!([{"name": "WORD", "value": "well"}]);
    container["livenessProbe"] = json!({"exec": {"command": ["check", word]}});
    value
}

fn liveness(id: &str) -> v1::ExecProbeRequest {
    v1::ExecProbeRequest {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        container_id: id.into(),
        kind: v1::ProbeKind::Liveness.into(),
    }
}

/// What the command checks when the container is probed.
async fn probed(pool: &Pool, id: &str) -> String {
    let answer = pool.targets().exec_probe(liveness(id)).await.unwrap();
    assert_eq!(answer.into_inner().error, "");
    let history = pool.runtime.history().to_vec();
    let command = history.into_iter().rev().find_map(|it| match it.happening {
        Happening::Executed { command } => Some(command),
        _ => None,
    });
    command.unwrap().remove(1)
}

#[tokio::test(start_paused = true)]
async fn a_probes_command_has_the_variables_of_its_container() {
    let pool = Pool::start();
    let observation = pool.run(&checking("$(WORD)")).await;
    let id = &observation.containers[0].id;
    assert_eq!(probed(&pool, id).await, "well");
}

/// The prober has a bound of its own, which an attacker who runs code in it does not keep to.
#[tokio::test(start_paused = true)]
async fn the_65th_command_of_a_probe_at_once_is_not_run() {
    const AT_ONCE: usize = 64;
    let pool = Pool::start();
    let mut value = checking("well");
    value["spec"]["containers"][0]["livenessProbe"]["timeoutSeconds"] = json!(60);
    let observation = pool.run(&value).await;
    let asked = liveness(&observation.containers[0].id);
    let executed = || executed(&pool);
    pool.runtime
        .set_exec_result("c", 7, Duration::from_secs(50));
    let client = pool.targets();
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (mut client, asked) = (client.clone(), asked.clone());
        running.spawn(async move { client.exec_probe(asked).await });
    }
    eventually("all of them run", || executed() == AT_ONCE).await;

    // It waits for a place, and says then that it had none, which is nothing of the container.
    let begun = tokio::time::Instant::now();
    let answer = client.clone().exec_probe(asked.clone()).await.unwrap();
    let error = "too many exec probes run at once".to_owned();
    let expected = v1::ExecProbeResponse {
        error,
        ..v1::ExecProbeResponse::default()
    };
    assert_eq!(answer.into_inner(), expected);
    let waited = begun.elapsed().as_secs();
    assert!((3..10).contains(&waited), "{waited} s");
    assert_eq!(executed(), AT_ONCE);

    for answer in running.join_all().await {
        assert_eq!(answer.unwrap().into_inner().exit_code, 7);
    }
    let answer = client.clone().exec_probe(asked).await.unwrap();
    assert_eq!(answer.into_inner().exit_code, 7);
}

/// The runtime kills a command after its timeout, and answers when its children have ended.
#[tokio::test(start_paused = true)]
async fn a_command_whose_child_goes_on_has_timed_out_and_few_of_them_are_left_at_the_runtime() {
    let pool = Pool::start();
    let observation = pool.run(&checking("well")).await;
    let asked = liveness(&observation.containers[0].id);
    pool.runtime
        .set_exec_result("c", 0, Duration::from_secs(60));
    // When the verdict comes, by when the command starts: 1 s of timeout, 3 s for the answer.
    for (start, verdict) in [(0, 4), (10, 14), (24, 28), (0, 4)] {
        pool.runtime.set_faults(Faults {
            exec_delay: Duration::from_secs(start),
            exec_output_delay: Duration::from_secs(600),
            ..Faults::NONE
        });
        let begun = tokio::time::Instant::now();
        let answer = pool.targets().exec_probe(asked.clone()).await.unwrap();
        assert!(answer.into_inner().timed_out, "{start}");
        assert_eq!(begun.elapsed().as_secs(), verdict, "{start}");
    }
    // Four are left there: no fifth is begun, which says nothing of the container.
    let answer = pool.targets().exec_probe(asked.clone()).await.unwrap();
    let error = "the runtime has not ended earlier commands of this probe".to_owned();
    let expected = v1::ExecProbeResponse {
        error,
        ..v1::ExecProbeResponse::default()
    };
    assert_eq!(answer.into_inner(), expected);
    assert_eq!(executed(&pool), 4);
    // Their children have ended.
    tokio::time::sleep(Duration::from_secs(600)).await;
    pool.runtime.set_faults(Faults::NONE);
    pool.runtime.set_exec_result("c", 0, Duration::ZERO);
    let answer = pool.targets().exec_probe(asked).await.unwrap();
    assert_eq!(answer.into_inner(), v1::ExecProbeResponse::default());
    assert_eq!(executed(&pool), 5);
}

/// That another command has started in its container says nothing of this one.
#[tokio::test(start_paused = true)]
async fn a_command_that_starts_late_has_its_time_though_another_one_starts_meanwhile() {
    let pool = Pool::start();
    let observation = pool.run(&checking("well")).await;
    let asked = liveness(&observation.containers[0].id);
    pool.runtime
        .set_exec_result("c", 0, Duration::from_millis(500));
    pool.runtime.set_faults(Faults {
        exec_delay: Duration::from_secs(20),
        ..Faults::NONE
    });
    let (mut client, late) = (pool.targets(), asked.clone());
    let late = tokio::spawn(async move { client.exec_probe(late).await });
    eventually("it is begun", || executed(&pool) == 1).await;
    pool.runtime.set_faults(Faults::NONE);
    let other = pool.targets().exec_probe(asked).await.unwrap();
    assert_eq!(other.into_inner(), v1::ExecProbeResponse::default());
    let answer = late.await.unwrap().unwrap().into_inner();
    assert_eq!(answer, v1::ExecProbeResponse::default());
}

/// A runtime that stands still says nothing of the command that it has started.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_fails_no_probe() {
    let pool = Pool::start();
    let observation = pool.run(&checking("well")).await;
    let asked = liveness(&observation.containers[0].id);
    pool.runtime.set_faults(Faults {
        exec_output_delay: Duration::from_secs(20),
        ..Faults::NONE
    });
    pool.runtime.set_exec_result("c", 0, Duration::ZERO);
    let mut client = pool.targets();
    let asking = tokio::spawn(async move { client.exec_probe(asked).await });
    eventually("it runs", || executed(&pool) == 1).await;
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    let answer = asking.await.unwrap().unwrap().into_inner();
    assert_eq!(answer, v1::ExecProbeResponse::default());
}

/// How many commands the runtime has begun.
fn executed(pool: &Pool) -> usize {
    let history = pool.runtime.history().to_vec().into_iter();
    let commands = history.filter(|it| matches!(it.happening, Happening::Executed { .. }));
    commands.count()
}
