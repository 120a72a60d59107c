//! Pods come from config-sourcer, whatever sync-loop says.

use tokio::time::Instant;

use super::source::message;
use super::*;

fn kill(value: &Value) -> v1::UpdatePodRequest {
    v1::UpdatePodRequest {
        r#type: v1::UpdateType::Kill.into(),
        ..update(value)
    }
}

/// How many containers run.
fn running(pool: &Pool) -> usize {
    let containers = pool.runtime.containers();
    containers.iter().filter(|it| it.running).count()
}

/// The code of the refusal.
async fn refused(pool: &Pool, request: v1::UpdatePodRequest) -> Code {
    let shown = format!("{request:?}");
    match pool.workers().update_pod(request).await {
        Ok(_) => panic!("it was taken: {shown}"),
        Err(status) => status.code(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_source_has_is_not_run() {
    let pool = Pool::start();
    let request = update(&pod_running("a", "u1", &["run"]));
    assert_eq!(refused(&pool, request).await, Code::NotFound);
    assert!(pool.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_its_source_does_not_have_is_not_run() {
    let pool = Pool::start();
    pool.source.put(&pod_running("a", "u1", &["run"]));
    let request = update(&pod_running("a", "u1", &["run", "evil"]));
    assert_eq!(refused(&pool, request).await, Code::Aborted);
    assert!(pool.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_what_was_asked_for_is_not_run() {
    let pool = Pool::start();
    let asked = pod_running("a", "u1", &["run"]);
    let mut other_bytes = message(&asked);
    other_bytes.json = message(&pod_running("a", "u1", &["evil"])).json;
    let mut other_header = message(&asked);
    other_header.reference = message(&pod_running("b", "u1", &["run"])).reference;
    let mut other_pod = message(&pod_running("b", "u2", &["run"]));
    let mut unsupported = asked.clone();
    unsupported["spec"]["hostPID"] = json!(true);
    unsupported["spec"]["volumes"] = json!([{"name": "v", "nfs": {"server": "s", "path": "/"}}]);
    other_pod.hash = message(&asked).hash;
    for (request, answer) in [
        (update(&asked), other_bytes),
        (update(&asked), other_header),
        (update(&asked), other_pod),
        (update(&unsupported), message(&unsupported)),
    ] {
        pool.source.answer_for("u1", answer);
        assert_eq!(refused(&pool, request).await, Code::InvalidArgument);
    }
    assert!(pool.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_pool_holds_it_does_not_ask_for_again() {
    let pool = Pool::start();
    let pod = pod_running("a", "u1", &["run"]);
    pool.run(&pod).await;
    // An update may bring another status, which its hash does not show.
    for (kind, asked) in [
        (v1::UpdateType::Sync, 1),
        (v1::UpdateType::Update, 2),
        (v1::UpdateType::Kill, 2),
    ] {
        let request = v1::UpdatePodRequest {
            r#type: kind.into(),
            ..update(&pod)
        };
        pool.workers().update_pod(request).await.unwrap();
        assert_eq!(pool.source.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn while_config_sourcer_is_away_only_new_pods_wait() {
    let mut pool = Pool::start();
    let (known, new) = (
        pod_running("a", "u1", &["run"]),
        pod_running("b", "u2", &["run"]),
    );
    pool.run(&known).await;
    pool.source.put(&new);
    pool.source.go_away();
    let begun = Instant::now();
    assert_eq!(refused(&pool, update(&new)).await, Code::Unavailable);
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );

    // A pod that is held is restarted and synced as ever.
    let first = pool.runtime.containers().remove(0);
    pool.runtime.crash_container(&first.id, 1);
    eventually("it is restarted", || {
        let mut containers = pool.runtime.containers().into_iter();
        containers.any(|it| it.running && it.id != first.id)
    })
    .await;
    let begun = Instant::now();
    let synced = pool.workers().update_pod(update(&known)).await.unwrap();
    assert_eq!(synced.into_inner().phase(), v1::WorkerPhase::Syncing);
    // And so is its end, whatever version the KILL names.
    let mut request = kill(&known);
    request.hash = message(&new).hash;
    let killed = pool.workers().update_pod(request).await.unwrap();
    assert_eq!(killed.into_inner().phase(), v1::WorkerPhase::Terminating);
    assert!(begun.elapsed() < Duration::from_millis(100));
    eventually("it ends", || running(&pool) == 0).await;

    pool.source.come_back();
    pool.run(&new).await;
    assert_eq!(pool.runtime.violations(), Vec::<String>::new());
}

/// Returns once every task waits for something: only then does a paused clock go on.
async fn all_wait() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_config_sourcer_delays_no_other() {
    let mut pool = Pool::start();
    let known = pod_running("known", "u0", &["run"]);
    pool.run(&known).await;
    pool.source.go_away();
    // More than may wait at once.
    let workers = pool.workers();
    let waiting: Vec<_> = (1..=100)
        .map(|number| {
            let pod = pod_running("new", &format!("u{number}"), &["run"]);
            let mut workers = workers.clone();
            tokio::spawn(async move { workers.update_pod(update(&pod)).await })
        })
        .collect();
    all_wait().await;
    let begun = Instant::now();
    pool.workers().update_pod(kill(&known)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(100));
    for each in waiting {
        let status = each.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_kill_does_not_wait_for_a_pod_that_is_being_fetched_and_counts_after_it() {
    let mut pool = Pool::start();
    let pod = pod_running("a", "u1", &["run"]);
    pool.run(&pod).await;
    let mut newer = pod.clone();
    newer["metadata"]["labels"] = json!({"a": "b"});
    pool.source.put(&newer);
    pool.source.go_away();
    let mut workers = pool.workers();
    let request = update(&newer);
    let older = tokio::spawn(async move { workers.update_pod(request).await });
    all_wait().await;
    pool.workers().update_pod(kill(&newer)).await.unwrap();
    pool.source.come_back();
    // The former CREATE is not taken for one that came after the KILL.
    let status = older.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    eventually("it ends", || running(&pool) == 0).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(running(&pool), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_run_kills_without_config_sourcer_and_within_the_pods_grace() {
    let mut pool = Pool::start();
    let mut pod = pod_running("a", "u1", &["ignore-term"]);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(7);
    pool.run(&pod).await;
    pool.source.go_away();
    pool.restart();
    assert_eq!(refused(&pool, update(&pod)).await, Code::Unavailable);
    let begun = Instant::now();
    pool.workers().update_pod(kill(&pod)).await.unwrap();
    eventually("it ends", || running(&pool) == 0).await;
    let took = begun.elapsed().as_secs();
    assert!((7..9).contains(&took), "{took}");
    assert_eq!(pool.runtime.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_source_is_the_one_that_config_sourcer_names() {
    let pool = Pool::start();
    let pod = pod_running("a", "u1", &["run"]);
    let mut answer = message(&pod);
    answer.source = "http".to_owned();
    pool.source.answer(answer);
    pool.workers().update_pod(update(&pod)).await.unwrap();
    let mut client = ObservationsClient::new(pool.channel(Process::StatusSyncer));
    let watch = client.watch_observations(v1::WatchObservationsRequest {});
    let mut stream = watch.await.unwrap().into_inner();
    loop {
        let message = stream.message().await.unwrap().unwrap().message.unwrap();
        if let Observed::Observation(observation) = message {
            assert_eq!(observation.source, "http");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_given_in_the_version_that_its_observation_names() {
    let pool = Pool::start();
    let value = pod_running("a", "u1", &["run"]);
    let observation = pool.run(&value).await;
    let client = ObservationsClient::new(pool.channel(Process::StatusSyncer));
    let ask = async |uid: &str, hash: &str| {
        let (pod_uid, hash) = (uid.to_owned(), hash.to_owned());
        let request = v1::GetPodRequest { pod_uid, hash };
        let answer = client.clone().get_observed_pod(request).await;
        answer.map(|it| it.into_inner().pod.unwrap())
    };
    for hash in [observation.hash.as_str(), ""] {
        assert_eq!(ask("u1", hash).await.unwrap(), message(&value));
    }
    for (uid, hash, code) in [
        ("u1", "0123", Code::Aborted),
        ("u2", "", Code::NotFound),
        ("../u1", "", Code::InvalidArgument),
    ] {
        assert_eq!(ask(uid, hash).await.unwrap_err().code(), code, "{uid}");
    }
}
