//! Real programs: the shell, with scripts as arguments.

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;

struct Case {
    directory: TempDir,
    runner: Arc<Runner>,
}

impl Case {
    async fn run(
        &self,
        provider: &CredentialProvider,
        request: &[u8],
    ) -> Result<Vec<u8>, RunError> {
        run(&self.runner, provider, request).await
    }
}

async fn run(
    runner: &Runner,
    provider: &CredentialProvider,
    request: &[u8],
) -> Result<Vec<u8>, RunError> {
    let places = OwnPlaces::default();
    let turn = runner.turn(&places).await?;
    runner.run(turn, provider, request).await
}

/// A directory with one program, the shell.
fn case() -> Case {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/sh", directory.path().join("shell")).unwrap();
    let owner = nix::unistd::geteuid().as_raw();
    let runner = Arc::new(Runner::new(directory.path().to_owned(), owner));
    Case { directory, runner }
}

fn script(text: &str) -> CredentialProvider {
    CredentialProvider {
        name: "shell".to_owned(),
        match_images: Vec::new(),
        default_cache_duration: Duration::ZERO,
        args: vec!["-c".to_owned(), text.to_owned()],
        env: [("GIVEN".to_owned(), "given".to_owned())].into(),
    }
}

#[tokio::test]
async fn a_program_gets_its_request_and_its_environment_and_nothing_else() {
    let case = case();
    let secret = case.directory.path().join("secret");
    let file = fs::File::create(&secret).unwrap();
    // Unlike a file of the standard library, its copy stays open at an exec.
    let _inherited = nix::unistd::dup(&file).unwrap();
    let text = r#"read line; echo "$line $GIVEN $NOTIFY_SOCKET $CARGO_MANIFEST_DIR"
        readlink /proc/$$/fd/* || true"#;
    let answer = case.run(&script(text), b"asked\n").await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (line, descriptors) = answer.split_once('\n').unwrap();
    assert_eq!(line, "asked given  ");
    assert!(descriptors.contains("pipe:"), "{answer}");
    assert!(!descriptors.contains("secret"), "{answer}");
}

#[tokio::test]
async fn failures_are_told_without_what_was_printed() {
    let case = case();
    for (text, expected) in [
        ("echo hunter2; exit 3", "it ended with exit status: 3"),
        (
            "echo hunter2 >&2; kill -9 $$",
            "it ended with signal: 9 (SIGKILL)",
        ),
        (
            "while :; do echo hunter2hunter2hunter2hunter2hunter2hunter2hunter2; done",
            "its answer has more than 1048576 bytes",
        ),
    ] {
        let refused = case.run(&script(text), b"asked").await.unwrap_err();
        assert_eq!(refused.to_string(), expected, "{text}");
    }
    // Much on standard error holds up nobody.
    let text = "head -c 1000000 /dev/zero >&2; echo answer";
    let answer = case.run(&script(text), b"asked").await.unwrap();
    assert_eq!(answer, b"answer\n");
    // Nor does a large request that is not read.
    let request = vec![b'a'; 1 << 20];
    let answer = case.run(&script("echo answer"), &request).await;
    assert_eq!(answer.unwrap(), b"answer\n");
}

#[tokio::test]
async fn a_program_that_is_not_there_or_that_others_may_replace_is_not_run() {
    let case = case();
    let mut absent = script("");
    absent.name = "absent".to_owned();
    let refused = case.run(&absent, b"").await.unwrap_err();
    assert!(matches!(refused, RunError::Start { .. }), "{refused}");
    for (uid, mode, is_sticky, expected) in [
        (0, 0o755, false, None),
        (7, 0o755, false, None),
        (8, 0o755, false, Some("it belongs to uid 8: chown root it")),
        (
            0,
            0o775,
            false,
            Some("its mode 0775 lets others change it: chmod go-w it"),
        ),
        (
            0,
            0o757,
            false,
            Some("its mode 0757 lets others change it: chmod go-w it"),
        ),
        (0, 0o1777, true, None),
        (8, 0o1777, true, Some("it belongs to uid 8: chown root it")),
    ] {
        let found = distrust(uid, mode, 7, is_sticky);
        assert_eq!(found.as_deref(), expected, "{uid} {mode:o} {is_sticky}");
    }
}

/// Waits until the process is gone, or is dead and waits for a parent that reaps it.
async fn is_dead(pid: &str) {
    loop {
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return;
        };
        if stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .starts_with('Z')
        {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Starts a program that hangs with a child in a session of its own, and tells the ids of
/// both.
async fn hanging(
    case: &Case,
) -> (
    tokio::task::JoinHandle<Result<Vec<u8>, RunError>>,
    [String; 2],
) {
    let file = case.directory.path().join("ids");
    let text = format!(
        "setsid sh -c 'echo $PPID $$ > {0}.new; mv {0}.new {0}; exec sleep 1000' & wait",
        file.display()
    );
    let runner = Arc::clone(&case.runner);
    let running = tokio::spawn(async move { run(&runner, &script(&text), b"").await });
    loop {
        if let Ok(ids) = fs::read_to_string(&file) {
            let (own, child) = ids.trim().split_once(' ').unwrap();
            return (running, [own.to_owned(), child.to_owned()]);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_its_children_when_its_time_is_over() {
    let case = case();
    let (running, ids) = hanging(&case).await;
    tokio::time::pause();
    tokio::time::advance(DEADLINE).await;
    let refused = running.await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "it gave no answer in time (60 s)");
    for id in &ids {
        is_dead(id).await;
    }
}

#[tokio::test]
async fn a_program_that_nobody_waits_for_is_killed_with_its_children() {
    let case = case();
    let (running, ids) = hanging(&case).await;
    running.abort();
    for id in &ids {
        is_dead(id).await;
    }
}
