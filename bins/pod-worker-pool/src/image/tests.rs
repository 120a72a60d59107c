//! Images on a simulated runtime under a paused clock: a pull takes it 300 ms, more or
//! less.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::time::Duration;

use simulated_runtime::{Faults, IMAGE_BYTES, SimulatedRuntime};
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

mod verification;

use super::queue::{MAX_LONG_PULLS, TURN};
use super::*;
use crate::events::Events;

const PULL: Duration = Duration::from_millis(300);

fn pod_of(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

struct Case {
    /// The file with the node's credentials is in it.
    directory: TempDir,
    runtime: SimulatedRuntime,
    images: Images,
    /// Saves what is known of pulled images.
    writing: AbortOnDropHandle<()>,
    clock: WallClock,
    events: Mutex<Vec<(String, String)>>,
}

fn case(max_parallel_pulls: u32) -> Case {
    case_with(PullLimits {
        at_once: max_parallel_pulls,
        per_second: 0,
        burst: 0,
    })
}

fn case_with(limits: PullLimits) -> Case {
    let clock = WallClock::simulated(UnixNanos(1_000_000_000_000));
    let runtime = SimulatedRuntime::new(1, clock.clone(), false);
    let directory = tempfile::tempdir().unwrap();
    let (images, writing) = images(&directory, &runtime, limits, &clock);
    Case {
        directory,
        runtime,
        images,
        writing,
        clock,
        events: Mutex::default(),
    }
}

fn images(
    directory: &TempDir,
    runtime: &SimulatedRuntime,
    limits: PullLimits,
    clock: &WallClock,
) -> (Images, AbortOnDropHandle<()>) {
    let programs = CredentialPrograms::default();
    images_by(directory, runtime, limits, programs, clock)
}

fn images_by(
    directory: &TempDir,
    runtime: &SimulatedRuntime,
    limits: PullLimits,
    programs: CredentialPrograms,
    clock: &WallClock,
) -> (Images, AbortOnDropHandle<()>) {
    let path = directory.path().join("pull-credentials.json");
    let credentials = NodeCredentials::open(&path, Events::new(clock.clone()));
    let (pulled, writer) = PulledImages::open(directory.path());
    let images = Images::new(
        runtime.clone().into(),
        limits,
        (credentials, programs),
        (ImageVerification::default(), pulled),
        clock.clone(),
    );
    let writing = tokio::spawn(async { match writer.run().await {} });
    (images, AbortOnDropHandle::new(writing))
}

fn with_image(uid: &str, image: &str, policy: &str) -> Pod {
    pod_of(&format!(
        r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"{uid}"}},
            "spec":{{"containers":[{{"name":"c","image":"{image}","imagePullPolicy":"{policy}"}}]}}}}"#
    ))
}

impl Case {
    async fn ensure(&self, pod: &Pod) -> Result<Image, ImageError> {
        self.ensure_by(pod, &Keyring::default()).await
    }

    /// The pod has Secrets to pull by.
    async fn ensure_by(&self, pod: &Pod, secrets: &Keyring) -> Result<Image, ImageError> {
        let event = |event: ImageEvent| {
            self.events
                .lock()
                .unwrap()
                .push((event.reason.to_owned(), event.message));
        };
        let container = &pod.containers()[0];
        let secrets = || secrets.clone();
        match self.images.find(pod, container, &secrets, &event).await? {
            Found::Image(image) => Ok(image),
            Found::ToPull(request) => {
                let request = request.by(secrets());
                self.images.pull(request, None, &event).await
            }
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.events
            .lock()
            .unwrap()
            .drain(..)
            .map(|(reason, _)| reason)
            .collect()
    }

    fn pulls(&self) -> u64 {
        self.runtime.calls().get("PullImage").copied().unwrap_or(0)
    }
}

fn unreachable() -> Faults {
    Faults {
        unavailable: true,
        ..Faults::NONE
    }
}

#[tokio::test(start_paused = true)]
async fn a_present_image_is_used_and_an_absent_one_pulled() {
    let case = case(5);
    case.runtime.add_image("example.com/present:1", true);
    case.runtime.add_image("example.com/absent:1", false);
    let present = with_image("u", "example.com/present:1", "IfNotPresent");
    assert!(!case.ensure(&present).await.unwrap().id.is_empty());
    assert_eq!(case.reasons(), ["Pulled"]);
    assert_eq!(case.pulls(), 0);
    let absent = with_image("u", "example.com/absent:1", "IfNotPresent");
    assert!(!case.ensure(&absent).await.unwrap().id.is_empty());
    let size = format!(" including waiting). Image size: {IMAGE_BYTES} bytes.");
    let told = case.events.lock().unwrap().last().cloned().unwrap().1;
    assert!(told.ends_with(&size), "{told}");
    assert_eq!(case.reasons(), ["Pulling", "Pulled"]);
    let always = with_image("u", "example.com/present:1", "Always");
    case.ensure(&always).await.unwrap();
    assert_eq!(case.pulls(), 2);
}

#[test]
fn a_pull_is_told_in_whole_milliseconds_with_the_size_of_its_image() {
    let took = Duration::from_nanos(1_234_999_999);
    let waited = Duration::from_micros(65_000_999);
    assert_eq!(
        pulled_words("a:1", took, waited, 5),
        "Successfully pulled image \"a:1\" in 1.234s (65s including waiting). \
         Image size: 5 bytes."
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_may_not_be_pulled_is_not() {
    let case = case(5);
    case.runtime.add_image("localhost/none:1", false);
    let error = case
        .ensure(&with_image("u", "localhost/none:1", "Never"))
        .await
        .unwrap_err();
    assert_eq!(error.failure, ImageFailure::ErrImageNeverPull);
    assert_eq!(
        error.message,
        "Container image \"localhost/none:1\" is not present with pull policy of Never"
    );
    assert_eq!(
        (case.pulls(), case.reasons()),
        (0, vec!["ErrImageNeverPull".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_never_reaches_the_runtime() {
    let case = case(5);
    let error = case
        .ensure(&with_image("u", "Upper", "Always"))
        .await
        .unwrap_err();
    assert_eq!(error.failure.as_str(), "InvalidImageName");
    assert!(
        error
            .message
            .starts_with("Failed to apply default image tag \"Upper\": "),
        "{error}"
    );
    assert_eq!(case.runtime.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_does_not_say_is_an_inspect_error() {
    let case = case(5);
    case.runtime.set_faults(unreachable());
    let error = case
        .ensure(&with_image("u", "a:1", "IfNotPresent"))
        .await
        .unwrap_err();
    assert_eq!(error.failure, ImageFailure::ImageInspectError);
    assert_eq!(case.reasons(), ["InspectFailed"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_pull_is_left_alone_for_a_while_by_its_own_pod_only() {
    let case = case(5);
    // Not known to the simulated registry.
    let pod = with_image("u", "example.com/unknown:1", "Always");
    let error = case.ensure(&pod).await.unwrap_err();
    assert_eq!(error.failure, ImageFailure::ErrImagePull);
    assert_eq!(case.reasons(), ["Pulling", "Failed"]);
    let retry_at = error.retry_at.unwrap();

    let waiting = case.ensure(&pod).await.unwrap_err();
    assert_eq!(waiting.failure, ImageFailure::ImagePullBackOff);
    let start = "Back-off pulling image \"example.com/unknown:1\": ErrImagePull: ";
    assert_eq!(waiting.message, format!("{start}{}", error.message));
    assert_eq!(
        (waiting.retry_at, case.reasons()),
        (Some(retry_at), vec!["BackOff".to_owned()])
    );
    assert_eq!(case.pulls(), 1);

    let other = case
        .ensure(&with_image("v", "example.com/unknown:1", "Always"))
        .await
        .unwrap_err();
    assert_eq!(other.failure, ImageFailure::ErrImagePull);

    tokio::time::advance(retry_at.since(case.clock.now())).await;
    case.runtime.add_image("example.com/unknown:1", false);
    case.ensure(&pod).await.unwrap();
    case.images.forget_pod("v");
    case.ensure(&with_image("v", "example.com/unknown:1", "Always"))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn those_who_want_the_same_image_wait_for_one_pull() {
    let case = case(5);
    case.runtime.add_image("example.com/a:1", false);
    let pods = ["u", "v", "w"].map(|uid| with_image(uid, "example.com/a:1", "Always"));
    let begun = Instant::now();
    let all = futures_util::future::join_all(pods.iter().map(|pod| case.ensure(pod))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(case.pulls(), 1);
    assert!(begun.elapsed() < PULL * 2, "{:?}", begun.elapsed());
    // A pull that is over is not joined any more.
    case.ensure(&pods[0]).await.unwrap();
    assert_eq!(case.pulls(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_pulls_run_at_a_time() {
    for (max_parallel_pulls, begun) in [(0, 1), (1, 1), (3, 3), (9, 4)] {
        let case = case(max_parallel_pulls);
        let pods = ["a", "b", "c", "d"].map(|name| {
            let image = format!("example.com/{name}:1");
            case.runtime.add_image(&image, false);
            with_image(name, &image, "Always")
        });
        let mut all = futures_util::future::join_all(pods.iter().map(|pod| case.ensure(pod)));
        // No pull is over by then.
        assert!(tokio::time::timeout(PULL / 6, &mut all).await.is_err());
        assert_eq!(case.pulls(), begun, "{max_parallel_pulls}");
        assert!(all.await.iter().all(Result::is_ok));
        assert_eq!(case.pulls(), 4);
    }
}

impl Case {
    /// Pods with an image each whose pull never ends.
    fn hanging(&self, count: usize) -> Vec<Pod> {
        let pods = (0..count).map(|number| {
            let image = format!("example.com/hanging-{number}:1");
            self.runtime.add_image(&image, false);
            self.runtime.set_pull_hangs(&image, true);
            with_image(&image, &image, "Always")
        });
        pods.collect()
    }
}

#[tokio::test(start_paused = true)]
async fn pulls_that_never_end_hold_up_no_others_for_longer_than_their_turns() {
    let case = case(5);
    let hanging = case.hanging(5);
    case.runtime.add_image("example.com/good:1", false);
    let good = with_image("u", "example.com/good:1", "Always");
    let begun = Instant::now();
    let hang = futures_util::future::join_all(hanging.iter().map(|pod| case.ensure(pod)));
    tokio::select! {
        biased;
        _ = hang => panic!("a pull ended that never does"),
        pulled = case.ensure(&good) => drop(pulled.unwrap()),
    }
    let waited = begun.elapsed();
    assert!((TURN..TURN + PULL * 2).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn pulls_under_way_are_bounded_in_all() {
    let case = case(2);
    let hanging = case.hanging(MAX_LONG_PULLS + 10);
    let mut all = futures_util::future::join_all(hanging.iter().map(|pod| case.ensure(pod)));
    let hours = Duration::from_secs(2 * 3600);
    assert!(tokio::time::timeout(hours, &mut all).await.is_err());
    assert_eq!(case.pulls(), 2 + MAX_LONG_PULLS as u64);
    // One that ends makes place for another.
    case.runtime
        .set_pull_hangs("example.com/hanging-0:1", false);
    assert!(tokio::time::timeout(hours, &mut all).await.is_err());
    assert_eq!(case.pulls(), 3 + MAX_LONG_PULLS as u64);
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_finds_the_rate_exceeded_fails_and_is_left_alone_for_a_while() {
    let case = case_with(PullLimits {
        at_once: 5,
        per_second: 1,
        burst: 2,
    });
    let pods = ["a", "b", "c"].map(|name| {
        let image = format!("example.com/{name}:1");
        case.runtime.add_image(&image, false);
        with_image(name, &image, "Always")
    });
    case.ensure(&pods[0]).await.unwrap();
    // Who joins a pull takes no token.
    let (one, same) = tokio::join!(case.ensure(&pods[1]), case.ensure(&pods[1]));
    one.and(same).unwrap();
    case.reasons();
    let error = case.ensure(&pods[2]).await.unwrap_err();
    assert_eq!(error.failure, ImageFailure::ErrImagePull);
    assert_eq!(error.message, "pull QPS exceeded");
    let retry_at = error.retry_at.unwrap();
    assert_eq!(retry_at, case.clock.now().plus(Duration::from_secs(10)));
    assert_eq!(case.reasons(), ["Pulling", "Failed"]);
    assert_eq!(case.pulls(), 2, "the runtime is not asked");

    tokio::time::advance(Duration::from_secs(5)).await;
    let error = case.ensure(&pods[2]).await.unwrap_err();
    assert_eq!(error.failure, ImageFailure::ImagePullBackOff);
    assert_eq!(
        error.message,
        "Back-off pulling image \"example.com/c:1\": ErrImagePull: pull QPS exceeded"
    );
    tokio::time::advance(Duration::from_secs(5)).await;
    case.ensure(&pods[2]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_takes_nothing_from_the_others() {
    let case = case(1);
    case.runtime.add_image("example.com/a:1", false);
    case.runtime.add_image("example.com/b:1", false);
    let (first, second) = (
        with_image("u", "example.com/a:1", "Always"),
        with_image("v", "example.com/a:1", "Always"),
    );
    let (given_up, kept) = tokio::join!(
        tokio::time::timeout(PULL / 2, case.ensure(&first)),
        case.ensure(&second)
    );
    assert!(given_up.is_err());
    kept.unwrap();
    assert_eq!(case.pulls(), 1);
    // Given up by all: its turn is free again.
    let alone = tokio::time::timeout(PULL / 2, case.ensure(&first)).await;
    assert!(alone.is_err());
    case.ensure(&with_image("w", "example.com/b:1", "Always"))
        .await
        .unwrap();
}

impl Case {
    /// The same after a restart, with these credentials of the node: a registry and a
    /// password each.
    fn with_credentials(self, credentials: &[(&str, &str)]) -> Case {
        self.with_credentials_and(credentials, CredentialPrograms::default())
    }

    /// And with these programs.
    fn with_credentials_and(
        self,
        credentials: &[(&str, &str)],
        programs: CredentialPrograms,
    ) -> Case {
        let entry = |(registry, password): &(&str, &str)| {
            format!(r#""{registry}":{{"username":"joe","password":"{password}"}}"#)
        };
        let entries: Vec<String> = credentials.iter().map(entry).collect();
        let path = self.directory.path().join("pull-credentials.json");
        std::fs::write(&path, format!(r#"{{"auths":{{{}}}}}"#, entries.join(","))).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let limits = PullLimits {
            at_once: 5,
            per_second: 0,
            burst: 0,
        };
        let (directory, clock) = (&self.directory, &self.clock);
        let (images, writing) = images_by(directory, &self.runtime, limits, programs, clock);
        Case {
            images,
            writing,
            ..self
        }
    }

    /// The passwords by which was tried to pull.
    fn passwords(&self) -> Vec<Option<String>> {
        let auths = self.runtime.pull_auths().into_iter();
        auths.map(|auth| auth.map(|auth| auth.password)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn credentials_that_match_are_tried_in_their_order_until_one_lets() {
    let image = "a.io/team/web:1";
    let case = case(5).with_credentials(&[
        ("a.io", "of-the-registry"),
        ("a.io/team", "of-the-team"),
        ("*.io", "of-all"),
        ("b.io", "other"),
    ]);
    case.runtime.add_image(image, false);
    case.runtime.set_pull_password(image, "of-the-registry");
    let pod = with_image("u", image, "Always");
    case.ensure(&pod).await.unwrap();
    let tried = ["of-the-team", "of-the-registry"].map(|it| Some(it.to_owned()));
    assert_eq!(case.passwords(), tried);
    let user = case.runtime.pull_auths()[0].clone().unwrap().username;
    assert_eq!(user, "joe");
}

#[tokio::test(start_paused = true)]
async fn what_a_program_gives_is_tried_after_the_nodes_credentials_and_its_failures_are_told() {
    let image = "a.io/team/web:1";
    let provider = programs::tests::provider();
    let of_node = [("a.io", "of-the-node")];
    let case = case(5).with_credentials_and(&of_node, provider.programs.clone());
    case.runtime.add_image(image, false);
    case.runtime.set_pull_password(image, "hunter2");
    let pod = with_image("u", image, "Always");
    case.ensure(&pod).await.unwrap();
    let tried = ["of-the-node", "hunter2"].map(|it| Some(it.to_owned()));
    assert_eq!(case.passwords(), tried);
    assert_eq!(*provider.asked.lock().unwrap(), ["a.io/team/web"]);
    let events = case.events.lock().unwrap();
    let told = |(reason, message): &&(String, String)| {
        reason == "FailedCredentialProvider" && message.contains("(gcr: rrr")
    };
    assert_eq!(events.iter().filter(told).count(), 1, "{events:?}");
    assert!(!format!("{events:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_no_credential_is_for_is_pulled_without_any() {
    let case = case(5).with_credentials(&[("a.io", "hunter2")]);
    case.runtime.add_image("b.io/web:1", false);
    let pod = with_image("u", "b.io/web:1", "Always");
    case.ensure(&pod).await.unwrap();
    assert_eq!(case.passwords(), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_shows_in_no_error_and_no_event() {
    let image = "a.io/team/web:1";
    let case = case(5).with_credentials(&[("a.io", "hunter2"), ("a.io/team", "hunter3")]);
    case.runtime.add_image(image, false);
    case.runtime.set_pull_password(image, "right");
    let error = case
        .ensure(&with_image("u", image, "Always"))
        .await
        .unwrap_err();
    let told = format!("pull access denied for {image}: authorization failed");
    assert_eq!(error.message, told);
    // Both were tried, and nobody unknown.
    assert_eq!(case.passwords().len(), 2);
    let events = case.events.lock().unwrap();
    let texts = format!("{error:?} {events:?} {:?}", case.images);
    assert!(
        !texts.contains("hunter") && !texts.contains("joe"),
        "{texts}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_failed_for_a_reason_that_cri_names_waits_by_that_name() {
    for (name, told) in [
        ("RegistryUnavailable", "the registry is unavailable"),
        (
            "SignatureValidationFailed",
            "the signature validation failed",
        ),
    ] {
        let case = case(5);
        let words = format!("{name}: no");
        case.runtime.set_pull_refusal("a.io/b:1", &words);
        let pod = with_image("u", "a.io/b:1", "Always");
        let error = case.ensure(&pod).await.unwrap_err();
        let message = format!("image pull failed for a.io/b:1 because {told}: no");
        let events = std::mem::take(&mut *case.events.lock().unwrap());
        let failed = format!("Failed to pull image \"a.io/b:1\": {words}");
        assert_eq!(events[1], ("Failed".to_owned(), failed));
        assert_eq!((error.failure.as_str(), &error.message), (name, &message));
        let waiting = case.ensure(&pod).await.unwrap_err();
        let told = format!("Back-off pulling image \"a.io/b:1\": {name}: {message}");
        assert_eq!(waiting.message, told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_is_asked_once() {
    let image = "a.io/team/web:1";
    let case = case(5).with_credentials(&[("a.io", "hunter2"), ("a.io/team", "hunter3")]);
    let reference = ImageReference::parse(image).unwrap();
    let request = PullRequest {
        pod_uid: "u".to_owned(),
        stated: image.to_owned(),
        spec: v1::ImageSpec {
            image: image.to_owned(),
            ..v1::ImageSpec::default()
        },
        repository: reference.repository(),
        before: None,
        secrets: Keyring::default(),
    };
    case.runtime.set_faults(unreachable());
    let pulled = case.images.pull(request, None, &|_| {}).await;
    assert_eq!(pulled.unwrap_err().failure, ImageFailure::ErrImagePull);
    assert_eq!(case.pulls(), 1);
}
