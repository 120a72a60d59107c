//! Real programs: the shell, with scripts as arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
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
    symlink("/bin/sh", directory.path().join("shell")).unwrap();
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
async fn the_first_2_kib_that_a_program_writes_to_standard_error_are_kept() {
    let (first, second) = (vec![b'a'; 1500], vec![b'b'; 1500]);
    let kept = beginning((&first[..]).chain(&second[..])).await.unwrap();
    assert_eq!(kept, [&first[..], &second[..548]].concat());
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_run() {
    let case = case();
    let mut absent = script("");
    absent.name = "absent".to_owned();
    let refused = case.run(&absent, b"").await.unwrap_err();
    assert!(matches!(refused, RunError::Start { .. }), "{refused}");
}

/// Programs of a directory, as who may write where wants them: each leaves a trace when it
/// is run.
#[derive(Debug)]
struct Place(TempDir);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        // Itself a place that only its owner can replace.
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn program(&self, name: &str, mode: u32) {
        let (text, trace) = (self.path("text"), self.path("trace"));
        let script = format!("#!/bin/sh\necho >> {}\necho answer\n", trace.display());
        fs::write(&text, script).unwrap();
        // Had this process written it, a child that another test makes meanwhile might
        // have it open for writing, so that it could not be run.
        let copied = std::process::Command::new("cp")
            .args([text, self.path(name)])
            .status();
        assert!(copied.unwrap().success());
        self.mode(name, mode);
    }

    fn directory(&self, name: &str, mode: u32) {
        fs::create_dir(self.path(name)).unwrap();
        self.mode(name, mode);
    }

    fn link(&self, name: &str, target: &str) {
        symlink(target, self.path(name)).unwrap();
    }

    async fn run(&self, directory: &str, name: &str) -> Result<Vec<u8>, RunError> {
        let owner = nix::unistd::geteuid().as_raw();
        let runner = Runner::new(self.path(directory), owner);
        let mut provider = script("");
        (provider.name, provider.args) = (name.to_owned(), Vec::new());
        run(&runner, &provider, b"").await
    }
}

/// Good and bad programs, directories and links.
fn place() -> Place {
    let place = Place(tempfile::tempdir().unwrap());
    for (name, mode) in [
        ("good", 0o755),
        ("open", 0o777),
        ("group", 0o775),
        ("sticky", 0o1777),
    ] {
        place.directory(name, mode);
        place.program(&format!("{name}/program"), 0o755);
    }
    place.program("good/of-group", 0o775);
    place.program("good/of-all", 0o1757);
    place.directory("open/within", 0o755);
    place.program("open/within/program", 0o755);
    place.link("good/to-good", "../sticky/../good/program");
    place.link("good/to-open-program", "of-all");
    place.link("good/to-open", "../open/program");
    // What one that others can replace leads to is no better for being good now.
    place.link("open/to-good", "../good/program");
    place.link("good/by-open", "../open/to-good");
    place.link("open/to-directory", "../good");
    place.link("good/round", "round");
    place
}

#[tokio::test]
async fn a_program_is_run_only_if_nobody_else_can_change_or_replace_it() {
    let place = place();
    for (directory, name) in [
        ("good", "program"),
        ("sticky", "program"),
        ("good", "to-good"),
    ] {
        let answer = place.run(directory, name).await;
        assert_eq!(answer.unwrap(), b"answer\n", "{directory}/{name}");
    }
    fs::remove_file(place.path("trace")).unwrap();
    for (directory, name, at_fault) in [
        ("good", "of-group", "good/of-group"),
        ("good", "of-all", "good/of-all"),
        ("group", "program", "group"),
        ("open", "program", "open"),
        ("open/within", "program", "open"),
        ("good", "to-open-program", "good/of-all"),
        ("good", "to-open", "open"),
        ("open", "to-good", "open"),
        ("good", "by-open", "open"),
        ("open/to-directory", "program", "open"),
    ] {
        let refused = place.run(directory, name).await.unwrap_err();
        let RunError::Untrusted { path, .. } = refused else {
            panic!("{directory}/{name}: {refused}");
        };
        assert_eq!(path, place.path(at_fault), "{directory}/{name}");
    }
    let refused = place.run("good", "round").await.unwrap_err();
    assert!(matches!(refused, RunError::Start { .. }), "{refused}");
    assert!(!place.path("trace").exists(), "one was run");
}

#[tokio::test]
async fn a_program_or_a_link_of_another_user_is_not_run() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "nobody else can give files away"
    );
    let place = place();
    lchown(place.path("good/to-good"), Some(7), None).unwrap();
    lchown(place.path("sticky/program"), Some(7), None).unwrap();
    for (directory, name) in [("good", "to-good"), ("sticky", "program")] {
        let refused = place.run(directory, name).await.unwrap_err();
        let RunError::Untrusted { path, reason } = refused else {
            panic!("{directory}/{name}: {refused}");
        };
        assert_eq!(path, place.path(directory).join(name));
        // chown(1) follows links.
        assert_eq!(
            reason.contains("chown -h root"),
            name == "to-good",
            "{reason}"
        );
    }
    assert!(!place.path("trace").exists(), "one was run");
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

/// A child that hangs.
const SLEEPS: &str = "exec sleep 1000";

/// Starts a program that hangs with a child that hangs, and returns the ids of both.
async fn hanging(
    case: &Case,
) -> (
    tokio::task::JoinHandle<Result<Vec<u8>, RunError>>,
    [String; 2],
) {
    let file = case.directory.path().join("ids");
    let text = format!(
        "sh -c 'echo $PPID $$ > {0}.new; mv {0}.new {0}; {SLEEPS}' & wait",
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
