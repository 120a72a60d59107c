//! Real programs: the shell, with scripts as arguments.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// Prints an answer, and notes in the file `asked` that it was asked.
fn script(directory: &Path, answer: &str) -> String {
    format!(
        "cat > /dev/null; echo asked >> {}; echo '{answer}'",
        directory.join("asked").display()
    )
}

fn answer(scope: &str, registry: &str, password: &str) -> String {
    format!(
        r#"{{"kind":"CredentialProviderResponse","cacheKeyType":"{scope}",
            "apiVersion":"credentialprovider.kubelet.k8s.io/v1",
            "auth":{{"{registry}":{{"username":"joe","password":"{password}"}}}}}}"#
    )
}

fn provider(name: &str, image: &str, script: String) -> CredentialProvider {
    CredentialProvider {
        name: name.to_owned(),
        match_images: vec![image.to_owned()],
        default_cache_duration: Duration::from_secs(60),
        args: vec!["-c".to_owned(), script],
        env: BTreeMap::new(),
    }
}

fn programs(directory: &TempDir, providers: Vec<CredentialProvider>) -> Programs {
    for provider in &providers {
        let path = directory.path().join(&provider.name);
        std::os::unix::fs::symlink("/bin/sh", path).unwrap();
    }
    let bin_dir = directory.path().to_owned();
    let owner = nix::unistd::geteuid().as_raw();
    Programs::new(CredentialProviders { bin_dir, providers }, owner)
}

fn asked(directory: &TempDir) -> usize {
    let asked = std::fs::read_to_string(directory.path().join("asked"));
    asked.unwrap_or_default().lines().count()
}

fn passwords(found: &FoundCredentials) -> Vec<&str> {
    let credentials = found.credentials.iter();
    let passwords = credentials.map(|credential| match credential {
        Credential::Password { password, .. } => password.as_str(),
        Credential::IdentityToken(token) => token.as_str(),
    });
    passwords.collect()
}

#[tokio::test]
async fn every_program_of_an_image_is_asked_and_a_failure_takes_nothing_from_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let script = |answer| script(directory.path(), answer);
    let all = programs(
        &directory,
        vec![
            provider("first", "a.io", script(&answer("Image", "a.io", "1"))),
            provider("bad", "a.io", script("hunter2")),
            provider("other", "b.io", script(&answer("Image", "b.io", "3"))),
            provider("long", "*.io", script(&answer("Image", "a.io/team", "4"))),
        ],
    );
    let found = all.ask("a.io/team/web").await;
    assert_eq!(passwords(&found), ["4", "1"]);
    let reason = "its answer is no CredentialProviderResponse (line 1, column 1)";
    assert_eq!(found.failures, [("bad".to_owned(), reason.to_owned())]);
    assert_eq!(asked(&directory), 3);
    assert_eq!(all.ask("c.org/web").await, FoundCredentials::default());
    assert_eq!(asked(&directory), 3);
    assert!(!format!("{found:?}").contains("hunter2"));
}

#[tokio::test]
async fn those_who_ask_meanwhile_and_while_an_answer_counts_share_it() {
    let directory = tempfile::tempdir().unwrap();
    let answer = answer("Registry", "a.io", "1");
    let all = programs(
        &directory,
        vec![provider("one", "a.io", script(directory.path(), &answer))],
    );
    let (first, second) = tokio::join!(all.ask("a.io/web"), all.ask("a.io/web"));
    assert_eq!(passwords(&first), ["1"]);
    assert_eq!(first, second);
    assert_eq!(asked(&directory), 1);
    assert_eq!(all.ask("a.io/other").await, first);
    assert_eq!(asked(&directory), 1);
}

#[tokio::test]
async fn a_failure_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let all = programs(
        &directory,
        vec![provider("one", "a.io", script(directory.path(), "{}"))],
    );
    for times in 1..=2 {
        assert_eq!(all.ask("a.io/web").await.failures.len(), 1);
        assert_eq!(asked(&directory), times);
    }
}

/// Starts asking `a`, which does not answer, for so many images, and waits until it runs
/// as often as it may.
async fn hanging(all: &Programs, directory: &TempDir, images: usize) -> Vec<AbortOnDropHandle<()>> {
    let ask = |image: usize| {
        let all = all.clone();
        let asking = async move { drop(all.ask(&format!("a.io/{image}")).await) };
        AbortOnDropHandle::new(tokio::spawn(asking))
    };
    let asking = (0..images).map(ask).collect();
    while asked(directory) < images.min(3) {
        tokio::task::yield_now().await;
    }
    asking
}

#[tokio::test]
async fn a_program_that_hangs_takes_no_turn_from_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let hang = format!(
        "echo asked >> {}; exec sleep 1000",
        directory.path().join("asked").display()
    );
    let answers = script(directory.path(), &answer("Image", "b.io", "1"));
    let providers = vec![provider("a", "a.io", hang), provider("b", "b.io", answers)];
    let all = programs(&directory, providers);
    let asking = hanging(&all, &directory, 5).await;
    assert_eq!(passwords(&all.ask("b.io/web").await), ["1"]);
    assert_eq!(asked(&directory), 4);
    // Whose time is over before its turn comes is not said to have been run.
    let late = all.ask("a.io/late");
    tokio::pin!(late);
    assert!(futures_util::poll!(&mut late).is_pending());
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    let reason = "it was not run: 4 others, or 3 of it, ran for 60 s";
    assert_eq!(late.await.failures, [("a".to_owned(), reason.to_owned())]);
    drop(asking);
}

#[tokio::test]
async fn who_waits_for_a_turn_takes_what_came_for_its_registry_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let answer = answer("Registry", "a.io", "1");
    let all = programs(
        &directory,
        vec![provider("a", "a.io", script(directory.path(), &answer))],
    );
    let images = (0..20).map(|image| format!("a.io/{image}"));
    let asking = images.map(|image| {
        let all = all.clone();
        async move { all.ask(&image).await }
    });
    for found in join_all(asking).await {
        assert_eq!(passwords(&found), ["1"]);
    }
    assert_eq!(asked(&directory), 3);
}
