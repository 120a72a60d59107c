//! Sessions with pods, by the command line and the runtime's own streaming server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::terminal::Terminal;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::{BulkheadOptions, wait_for};
use topology::Process;

/// A pod with one container that runs a script.
fn script(script: &str) -> Value {
    json!({ "containers": [{ "name": "c", "image": BUSYBOX, "command": ["sh", "-c", script] }] })
}

fn sleeping() -> Value {
    script("sleep 1000000")
}

/// The command line, to be run inside the node.
fn bulkhead(ground: &Ground, arguments: &[&str]) -> Command {
    let paths = ground.bulkhead.paths();
    let mut command = ground.node().command(paths.bin.join("bulkhead"));
    command.arg("--run-dir").arg(&paths.run).args(arguments);
    command
}

/// Runs it to its end with this input.
fn with_input(ground: &Ground, input: &[u8], arguments: &[&str]) -> Result<Output> {
    let mut command = bulkhead(ground, arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ground.node().spawn(command)?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let input = input.to_vec();
    // It may print before it has read all.
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output()?;
    // Whether all was read is the command's own affair.
    drop(writing.join());
    Ok(output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_has_an_exit_code_and_streams_of_its_own() -> Result<()> {
    let ground = Ground::start(Value::Null)?;
    ground.apply("web", sleeping())?;
    ground.ready("web")?;
    let exec = |words: &[&str]| {
        let arguments = [&["exec", "web", "--"], words].concat();
        ground.bulkhead.command_line(&arguments)
    };
    let ran = exec(&["sh", "-c", "echo out; echo err >&2; exit 7"])?;
    assert_eq!(ran.status.code(), Some(7), "{}", ran.stderr);
    assert_eq!((&*ran.stdout, &*ran.stderr), ("out\n", "err\n"));
    let none = exec(&["/no/such/program"])?;
    assert_eq!(none.status.code(), Some(1), "{}", none.stderr);
    assert!(none.stderr.contains("no such file"), "{}", none.stderr);
    // The end of the input comes through, and all of it before.
    let cat = ["exec", "-i", "web", "--", "cat"];
    let echoed = with_input(&ground, b"hi\n", &cat)?;
    assert_eq!(text(&echoed.stdout), "hi\n", "{}", text(&echoed.stderr));
    assert!(echoed.status.success());
    let much: Vec<u8> = (0..8_u32 << 20).map(|byte| (byte % 251) as u8).collect();
    let echoed = with_input(&ground, &much, &cat)?;
    assert!(
        echoed.stdout == much,
        "{} bytes came back",
        echoed.stdout.len()
    );
    // Who ran what is in the log, and no argument of it.
    let log = ground.bulkhead.log(Process::PodWorkerPool);
    let line = log.lines().find(|line| line.contains("program=\"sh\""));
    let line = line.with_context(|| log.clone())?;
    for words in ["session", "exec", "web-", "opened", "run by root"] {
        assert!(line.contains(words), "{words}: {line}");
    }
    assert!(!log.contains("exit 7"), "{log}");
    Ok(())
}

#[test]
fn a_terminal_has_keys_a_size_and_is_left_as_it_was() -> Result<()> {
    let ground = Ground::start(Value::Null)?;
    ground.apply("web", sleeping())?;
    ground.ready("web")?;
    let mut terminal = Terminal::start(
        ground.node(),
        bulkhead(&ground, &["exec", "-it", "web", "--", "sh"]),
    )?;
    wait_for("the keys to be handed over", TIMEOUT, || {
        let is_raw = terminal.is_raw().map_err(|error| error.to_string())?;
        is_raw.then_some(()).ok_or_else(String::new)
    })?;
    terminal.resize(90, 33)?;
    // Whether the size came before the shell asks for it is a race that the shell repeats.
    let ask = "until [ \"$(stty size)\" = '33 90' ]; do sleep 0.1; done; echo si''ze\r";
    terminal.press(ask)?;
    terminal.until_shown("size")?;
    // Ctrl-C is a key of the command's terminal, once the shell does not read keys itself.
    terminal.press("echo slee''ping; sleep 1000\r")?;
    terminal.until_shown("sleeping")?;
    terminal.press("\u{3}")?;
    terminal.press("echo still he''re\r")?;
    terminal.until_shown("still here")?;
    terminal.press("exit 5\r")?;
    assert_eq!(terminal.wait()?, Some(5));
    assert!(!terminal.is_raw()?);
    Ok(())
}

#[test]
fn a_process_is_attached_to_also_over_a_restart_of_the_pool() -> Result<()> {
    let mut ground = Ground::start(Value::Null)?;
    let mut pod = script("while read word; do echo \"heard $word\"; done; exit 3");
    pod["containers"][0]["stdin"] = json!(true);
    pod["restartPolicy"] = json!("Never");
    ground.apply("web", pod)?;
    ground.ready("web")?;
    let mut command = bulkhead(&ground, &["attach", "-i", "web"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = ground.node().spawn(command)?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    stdin.write_all(b"one\n")?;
    assert_eq!(lines.next().transpose()?.as_deref(), Some("heard one"));
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    stdin.write_all(b"two\n")?;
    assert_eq!(lines.next().transpose()?.as_deref(), Some("heard two"));
    // A new one is opened as soon as the pool is back.
    let ran = ground
        .bulkhead
        .command_line(&["exec", "web", "--", "true"])?;
    assert!(ran.status.success(), "{}", ran.stderr);
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[test]
fn ports_of_a_pod_are_reached_on_this_machine() -> Result<()> {
    const MUCH: usize = 8 << 20;
    let ground = Ground::start(Value::Null)?;
    let serve = format!(
        "mkdir /tmp/www; echo hello > /tmp/www/little; head -c {MUCH} /dev/zero > /tmp/www/much; \
         exec httpd -f -p 8080 -h /tmp/www"
    );
    ground.apply("web", script(&serve))?;
    ground.ready("web")?;
    let mut command = bulkhead(&ground, &["port-forward", "web", ":8080", ":8081"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ground.node().spawn(command)?;
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    let mut port = || -> Result<u16> {
        let line = lines.next().context("it ended")??;
        let address = line.strip_prefix("Forwarding from 127.0.0.1:");
        let port = address.and_then(|rest| rest.split_once(" -> "));
        Ok(port.with_context(|| line.clone())?.0.parse()?)
    };
    let (open, closed) = (port()?, port()?);
    let get = |port: u16, path: &str| -> Result<Vec<u8>> {
        let mut stream = ground
            .node()
            .run(|| TcpStream::connect(("127.0.0.1", port)))??;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        // Of a port that is closed it may be reset.
        let _ = stream.read_to_end(&mut answer);
        Ok(answer)
    };
    wait_for("the pod to answer", TIMEOUT, || {
        let answer = get(open, "/little").map_err(|error| format!("{error:#}"))?;
        let is_it = answer.ends_with(b"\r\n\r\nhello\n");
        is_it.then_some(()).ok_or_else(|| text(&answer))
    })?;
    // One that waits holds no other up.
    let waiting = ground
        .node()
        .run(|| TcpStream::connect(("127.0.0.1", open)))??;
    assert!(get(open, "/much")?.len() > MUCH);
    drop(waiting);
    assert!(get(closed, "/little")?.is_empty());
    let mut said = String::new();
    let stderr = child.stderr.take().context("no stderr")?;
    BufReader::new(stderr).read_line(&mut said)?;
    child.kill()?;
    child.wait()?;
    assert!(said.contains("8081"), "{said}");
    Ok(())
}

#[test]
fn files_are_copied_to_a_container_and_back() -> Result<()> {
    let ground = Ground::start(Value::Null)?;
    ground.apply("web", sleeping())?;
    ground.ready("web")?;
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::create_dir_all(path("from/below"))?;
    let much: Vec<u8> = (0..3_u32 << 20).map(|byte| (byte % 253) as u8).collect();
    fs::write(path("from/below/much"), &much)?;
    fs::write(path("from/little"), "little")?;
    let copy = |from: &str, to: &str| -> Result<()> {
        let copied = ground.bulkhead.command_line(&["cp", from, to])?;
        ensure!(copied.status.success(), "{from} {to}: {}", copied.stderr);
        Ok(())
    };
    let exec = |script: &str| -> Result<String> {
        let ran = ground
            .bulkhead
            .command_line(&["exec", "web", "--", "sh", "-c", script])?;
        ensure!(ran.status.success(), "{script}: {}", ran.stderr);
        Ok(ran.stdout)
    };
    // Under a new name, and into a directory that is there.
    copy(&path("from"), "web:/tmp/new")?;
    copy(&path("from/little"), "web:/tmp/")?;
    assert_eq!(exec("cat /tmp/new/little /tmp/little")?, "littlelittle");
    exec("ln -s /etc/passwd /tmp/new/link")?;
    copy("web:/tmp/new", &path("back"))?;
    assert!(fs::read(path("back/below/much"))? == much);
    assert!(!directory.path().join("back/link").exists());
    copy("web:/tmp/new/little", &path("back/below"))?;
    assert_eq!(fs::read_to_string(path("back/below/little"))?, "little");
    let none = ground
        .bulkhead
        .command_line(&["cp", "web:/no/such", &path("none")])?;
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stderr.contains("/no"), "{}", none.stderr);
    Ok(())
}

#[test]
fn a_pod_beyond_baseline_is_entered_only_where_the_policy_says_so() -> Result<()> {
    let grant = "[[grants]]\npods = [\"default/web\"]\nhostNetwork = true\n";
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some(grant.to_owned()),
        ..BulkheadOptions::default()
    })?;
    let mut pod = sleeping();
    pod["hostNetwork"] = json!(true);
    ground.apply("web", pod)?;
    ground.ready("web")?;
    for arguments in [
        &["exec", "web", "--", "true"][..],
        &["attach", "web"],
        &["port-forward", "web", ":80"],
        &["cp", "web:/etc/passwd", "/dev/null"],
    ] {
        let refused = ground.bulkhead.command_line(arguments)?;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(refused.stderr.contains("exec = true"), "{}", refused.stderr);
    }
    let log = ground.bulkhead.log(Process::PodWorkerPool);
    assert!(log.contains("refused: PermissionDenied"), "{log}");
    ground
        .bulkhead
        .write_policy(&format!("{grant}exec = true\n"))?;
    wait_for("the policy to hold", TIMEOUT, || {
        let ran = ground.bulkhead.command_line(&["exec", "web", "--", "true"]);
        let ran = ran.map_err(|error| format!("{error:#}"))?;
        ran.status.success().then_some(()).ok_or(ran.stderr)
    })?;
    Ok(())
}
