//! Who gets an image that is on the node, and what of that outlives a process.

use super::*;

const IMAGE: &str = "a.io/team/web:1";

fn by(password: &str) -> Keyring {
    let user = ("a.io".to_owned(), "joe".to_owned(), password.to_owned());
    Keyring::of_users([user])
}

fn nothing() -> Keyring {
    Keyring::default()
}

/// A node to which the registry gives the image for the password `right` only.
fn private() -> Case {
    let case = case(5);
    case.runtime.add_image(IMAGE, false);
    case.runtime.set_pull_password(IMAGE, "right");
    case
}

impl Case {
    /// This process is killed, and the next one starts.
    async fn restarted(self) -> Case {
        let Case {
            directory,
            runtime,
            images,
            writing,
            clock,
            events,
        } = self;
        drop((images, writing));
        let limits = PullLimits {
            at_once: 5,
            per_second: 0,
            burst: 0,
        };
        // What is under way at the disk is over before the next one reads.
        tokio::task::yield_now().await;
        let (images, writing) = super::images(&directory, &runtime, limits, &clock);
        Case {
            directory,
            runtime,
            images,
            writing,
            clock,
            events,
        }
    }

    fn file(&self) -> String {
        let path = self.directory.path().join("pulled-images.json");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    async fn until_saved(&self, what: &str) {
        crate::testing::eventually(what, || self.file().contains(what)).await;
    }

    /// What becomes of a pod that may not pull, and has this.
    async fn never(&self, secrets: &Keyring) -> Result<(), ImageFailure> {
        let pod = with_image("never", IMAGE, "Never");
        let found = self.ensure_by(&pod, secrets).await;
        found.map(drop).map_err(|error| error.failure)
    }
}

#[tokio::test(start_paused = true)]
async fn who_cannot_show_the_credential_pulls_again_or_goes_without() {
    let case = private();
    let owner = with_image("owner", IMAGE, "IfNotPresent");
    case.ensure_by(&owner, &by("right")).await.unwrap();
    case.reasons();

    // It is there for who has the same, whatever the pod.
    let same = with_image("same", IMAGE, "IfNotPresent");
    case.ensure_by(&same, &by("right")).await.unwrap();
    assert_eq!(case.never(&by("right")).await, Ok(()));
    assert_eq!(case.reasons(), ["Pulled", "Pulled"]);
    assert_eq!(case.pulls(), 1);

    // Others are let by the registry or by nobody.
    let other = with_image("other", IMAGE, "IfNotPresent");
    for secrets in [nothing(), by("wrong")] {
        let refused = case.ensure_by(&other, &secrets).await.unwrap_err();
        assert_eq!(refused.failure, ImageFailure::ErrImagePull);
        case.images.forget_pod("other");
    }
    assert_eq!(case.pulls(), 3);
    case.reasons();
    let error = case.ensure(&with_image("n", IMAGE, "Never")).await;
    let error = error.unwrap_err();
    assert_eq!(error.failure, ImageFailure::ErrImageNeverPull);
    let message = format!("Container image \"{IMAGE}\" is not present with pull policy of Never");
    assert_eq!(error.message, message);
    assert_eq!(case.reasons(), ["ErrImageNeverPull"]);

    // A further credential that the registry takes is one more.
    case.runtime.set_pull_password(IMAGE, "renewed");
    case.ensure_by(&other, &by("renewed")).await.unwrap();
    assert_eq!(case.never(&by("renewed")).await, Ok(()));
    assert_eq!(case.never(&by("right")).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_the_node_may_pull_every_pod_may_have() {
    let case = private().with_credentials(&[("a.io", "right")]);
    let pod = with_image("u", IMAGE, "IfNotPresent");
    // By what the node has too, so by no secret of the pod.
    case.ensure_by(&pod, &by("right")).await.unwrap();
    assert_eq!(case.never(&nothing()).await, Ok(()));
    case.until_saved("everybody").await;

    let case = self::case(5);
    case.runtime.add_image(IMAGE, false);
    case.ensure(&pod).await.unwrap();
    assert_eq!(case.never(&nothing()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_no_pod_has_pulled_is_everybodys() {
    let case = case(5);
    case.runtime.add_image(IMAGE, true);
    assert_eq!(case.never(&nothing()).await, Ok(()));
    // Also while somebody is not let pull it, and after that.
    case.runtime.set_pull_password(IMAGE, "right");
    case.runtime.set_pull_hangs(IMAGE, true);
    let always = with_image("u", IMAGE, "Always");
    let wrong = by("wrong");
    let mut pull = std::pin::pin!(case.ensure_by(&always, &wrong));
    assert!(tokio::time::timeout(PULL, &mut pull).await.is_err());
    assert_eq!(case.never(&nothing()).await, Ok(()));
    case.runtime.set_pull_hangs(IMAGE, false);
    assert!(pull.await.is_err());
    assert_eq!(case.never(&nothing()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn who_may_have_an_image_outlives_the_process_and_no_credential_is_kept() {
    let case = private();
    let pod = with_image("u", IMAGE, "IfNotPresent");
    case.ensure_by(&pod, &by("right")).await.unwrap();
    case.until_saved("holders").await;
    assert!(!case.file().contains("right") && !case.file().contains("joe"));
    let case = case.restarted().await;
    assert_eq!(case.never(&by("right")).await, Ok(()));
    let refused = Err(ImageFailure::ErrImageNeverPull);
    assert_eq!(case.never(&nothing()).await, refused);
    assert_eq!(case.never(&by("wrong")).await, refused);

    // Without the file everybody has what is there.
    std::fs::remove_file(case.directory.path().join("pulled-images.json")).unwrap();
    let case = case.restarted().await;
    assert_eq!(case.never(&nothing()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn an_image_whose_pull_outlives_the_process_is_nobodys_until_it_is_pulled() {
    let case = private();
    case.runtime.set_pull_hangs(IMAGE, true);
    let pod = with_image("u", IMAGE, "IfNotPresent");
    let right = by("right");
    {
        let mut pull = std::pin::pin!(case.ensure_by(&pod, &right));
        assert!(tokio::time::timeout(PULL, &mut pull).await.is_err());
        assert_eq!(case.pulls(), 1, "the pull is under way");
        // The pull has begun after its name was saved.
        assert!(case.file().contains(IMAGE), "{}", case.file());
    }
    let case = case.restarted().await;
    // The runtime has gone on, and is done.
    case.runtime.add_image(IMAGE, true);
    let refused = Err(ImageFailure::ErrImageNeverPull);
    assert_eq!(case.never(&nothing()).await, refused);
    assert_eq!(case.never(&by("right")).await, refused);
    // That is known from now on, however long ago the pull was.
    tokio::time::advance(Duration::from_secs(2 * 3600)).await;
    assert_eq!(case.never(&nothing()).await, refused);
    case.runtime.set_pull_hangs(IMAGE, false);
    case.ensure_by(&pod, &right).await.unwrap();
    assert_eq!(case.never(&by("right")).await, Ok(()));
    assert_eq!(case.never(&nothing()).await, refused);
}

/// A pull by a secret is under way in the runtime, and nobody waits for it any more.
async fn given_up() -> Case {
    let case = private();
    case.runtime.set_pull_hangs(IMAGE, true);
    let pod = with_image("u", IMAGE, "IfNotPresent");
    let right = by("right");
    let given_up = tokio::time::timeout(PULL, case.ensure_by(&pod, &right));
    assert!(given_up.await.is_err());
    case
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_nobody_waits_for_any_more_makes_no_image_everybodys() {
    let case = given_up().await;
    case.runtime.add_image(IMAGE, true);
    // Asked for by another name of it.
    let id = case.runtime.list_images().await.unwrap()[0].id.clone();
    let by_id = case.ensure(&with_image("v", &id, "Never")).await;
    assert_eq!(by_id.unwrap_err().failure, ImageFailure::ErrImageNeverPull);
}

#[tokio::test(start_paused = true)]
async fn nor_does_the_end_of_another_pull_before_the_images_are_listed() {
    let other = "a.io/team/db:1";
    let case = given_up().await;
    case.runtime.add_image(IMAGE, true);
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    case.runtime.add_image(other, false);
    case.runtime.set_pull_password(other, "right");
    let pod = with_image("v", other, "IfNotPresent");
    case.ensure_by(&pod, &by("right")).await.unwrap();
    let refused = Err(ImageFailure::ErrImageNeverPull);
    assert_eq!(case.never(&nothing()).await, refused);
}

#[tokio::test(start_paused = true)]
async fn what_is_imported_some_minutes_after_a_pull_was_given_up_is_everybodys() {
    let case = given_up().await;
    tokio::time::advance(Duration::from_secs(6 * 60)).await;
    let pulled = &case.images.pulled;
    // The list of each minute.
    pulled.listed(pulled.before_list(), &[]);
    case.runtime.add_image(IMAGE, true);
    let images = case.runtime.list_images().await.unwrap();
    pulled.listed(pulled.before_list(), &images);
    assert_eq!(case.never(&nothing()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_was_given_up_before_its_turn_counts_for_nothing() {
    let case = case(1);
    case.runtime.add_image("b.io/web:1", false);
    case.runtime.set_pull_hangs("b.io/web:1", true);
    case.runtime.add_image(IMAGE, false);
    let first = with_image("v", "b.io/web:1", "IfNotPresent");
    let mut first = std::pin::pin!(case.ensure(&first));
    let short = Duration::from_millis(10);
    assert!(tokio::time::timeout(short, &mut first).await.is_err());
    let pod = with_image("u", IMAGE, "IfNotPresent");
    let right = by("right");
    let given_up = tokio::time::timeout(short, case.ensure_by(&pod, &right));
    assert!(given_up.await.is_err());
    assert_eq!(case.pulls(), 1);
    case.runtime.add_image(IMAGE, true);
    assert_eq!(case.never(&nothing()).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn without_a_disk_for_its_name_no_pull_by_a_secret_begins() {
    let case = private();
    case.writing.abort();
    let pod = with_image("u", IMAGE, "IfNotPresent");
    let error = case.ensure_by(&pod, &by("right")).await.unwrap_err();
    assert_eq!(error.failure, ImageFailure::ErrImagePull);
    let words = format!("Failed to record image pull intent for container image \"{IMAGE}\": ");
    assert!(error.message.starts_with(&words), "{error}");
    assert!(error.retry_at.is_some());
    assert_eq!(case.reasons(), ["Pulling", "Failed"]);
    assert_eq!(case.pulls(), 0);
    // One that everybody may have needs none.
    case.runtime.add_image("b.io/web:1", false);
    let public = with_image("v", "b.io/web:1", "IfNotPresent");
    case.ensure_by(&public, &by("right")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_an_image_goes_with_it_and_not_before() {
    let case = private();
    let pulled = &case.images.pulled;
    let before = pulled.before_list();
    let listed = case.runtime.list_images().await.unwrap();
    let pod = with_image("u", IMAGE, "IfNotPresent");
    case.ensure_by(&pod, &by("right")).await.unwrap();
    // The list is older than the image.
    pulled.listed(before, &listed);
    let refused = Err(ImageFailure::ErrImageNeverPull);
    assert_eq!(case.never(&nothing()).await, refused);
    let now = pulled.before_list();
    pulled.listed(now, &case.runtime.list_images().await.unwrap());
    assert_eq!(case.never(&nothing()).await, refused);
    pulled.listed(now, &[]);
    assert_eq!(case.never(&nothing()).await, Ok(()));
}
