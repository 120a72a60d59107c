//! `cargo xtask demo`: the real programs run example pods, on a private
//! containerd or one that is given.

mod ground;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use test_support::interrupt::Interrupt;
use test_support::observe::container_status;
use test_support::{BulkheadInstance, BulkheadOptions, binaries, http, node};

use crate::build::{self, Profile};
use crate::demo::ground::Ground;
use crate::{packages, report};

/// Longest time for an example pod to get where it is shown; the machine may
/// be busy.
const POD_TIMEOUT: Duration = Duration::from_secs(90);

/// Port of the example web server.
const WEB_PORT: u16 = 8080;

/// How often the demo looks whether its supervisor lives.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Exit code of a program that SIGINT ended, as shells have it.
const INTERRUPTED: u8 = 130;

/// Arguments of `demo`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use this containerd instead of a private one. Its cgroup driver must be
    /// cgroupfs, and no other node agent may use it. The example pods and
    /// images are removed from it at the end
    #[arg(long, value_name = "SOCKET")]
    containerd: Option<PathBuf>,
    /// End after showing everything; the exit code tells whether it worked
    #[arg(long)]
    once: bool,
}

/// Runs the demo; everything that it started is gone when it returns.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::install_missing()?;
    node::reap_dead_owners()?;
    report::step("building");
    build::programs(Profile::Development, &[])?;

    let interrupt = Interrupt::take()?;
    let played = play(arguments, &interrupt);
    // Everything is removed by now, whatever the outcome.
    match played {
        Err(_) if interrupt.acknowledge() => {
            report::line("interrupted; all is removed");
            Ok(ExitCode::from(INTERRUPTED))
        }
        played => played,
    }
}

fn play(arguments: &Arguments, interrupt: &Interrupt) -> Result<ExitCode> {
    report::step("starting containerd");
    let ground = match &arguments.containerd {
        Some(socket) => Ground::existing(socket)?,
        None => Ground::private()?,
    };
    report::step("starting Bulkhead");
    let mut bulkhead = BulkheadInstance::start(ground.containerd(), &BulkheadOptions::default())?;
    let mut outcome = show(&bulkhead);
    let interrupted = outcome.is_err() && interrupt.acknowledge();
    if outcome.is_ok() && !arguments.once {
        hints(&bulkhead);
        outcome = keep_up(&mut bulkhead, interrupt);
    }
    if interrupted {
        report::line("interrupted");
    } else if let Err(error) = &outcome {
        report::failure(error);
        report::line(&bulkhead.log_ends());
    }
    report::step("ending");
    let removed = ground.remove_pods(&bulkhead);
    let status = bulkhead.stop()?;
    removed?;
    drop(bulkhead);
    drop(ground);
    let success = outcome.is_ok() && status.success();
    report::line(match (success, interrupted) {
        (true, _) | (false, true) => "all is removed",
        (false, false) => "it did not work; all is removed",
    });
    Ok(match (success, interrupted) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(INTERRUPTED),
        (false, false) => ExitCode::FAILURE,
    })
}

/// Runs until Ctrl-C. A supervisor that ends is started again, as systemd does
/// with one that is installed.
fn keep_up(bulkhead: &mut BulkheadInstance, interrupt: &Interrupt) -> Result<()> {
    while !interrupt.wait_for(LOOK_AGAIN) {
        let Some(status) = bulkhead.take_end() else {
            continue;
        };
        report::line(&format!(
            "the supervisor ended ({status}), and the other processes with it; \
             it is started again, as systemd would"
        ));
        match bulkhead.start_again() {
            Err(_) if interrupt.acknowledge() => return Ok(()),
            started => started?,
        }
    }
    Ok(())
}

/// Puts the examples in place and shows what becomes of them.
fn show(bulkhead: &BulkheadInstance) -> Result<()> {
    report::step("example pods");
    for (name, text) in examples()? {
        bulkhead.write_manifest(&name, &text)?;
        report::line(&name);
    }
    let web = bulkhead.wait_until_pod_ready("web", POD_TIMEOUT)?;
    bulkhead.wait_for_pod(
        "job",
        "to succeed",
        POD_TIMEOUT,
        |pod| match pod["status"]["phase"].as_str() {
            Some("Succeeded") => Ok(()),
            phase => Err(format!("phase {phase:?}")),
        },
    )?;
    bulkhead.wait_for_pod(
        "crash-looping",
        "to have been restarted",
        POD_TIMEOUT,
        |pod| {
            let restarts = container_status(pod, "app").map(|status| &status["restartCount"]);
            match restarts.and_then(Value::as_u64) {
                Some(count) if count > 0 => Ok(()),
                other => Err(format!("restarts {other:?}")),
            }
        },
    )?;
    report::step("bulkhead status");
    show_command(bulkhead, &["status"])?;
    report::step("bulkhead pods -o wide");
    show_command(bulkhead, &["pods", "-o", "wide"])?;
    report::step("an answer from the web pod");
    let address = web_address(&web)?;
    let answer = http::request(bulkhead.node(), "GET", address, "/")?;
    report::line(&format!("GET http://{address}/ -> {}", answer.status));
    report::line(answer.body.trim_end());
    if answer.status != 200 {
        bail!("the web pod answered {}", answer.status);
    }
    Ok(())
}

/// File name and text of each example.
fn examples() -> Result<Vec<(String, String)>> {
    let directory = binaries::workspace().join("examples");
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if name.ends_with(".yaml") {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            found.push((name.to_owned(), text));
        }
    }
    found.sort();
    Ok(found)
}

fn web_address(web: &Value) -> Result<SocketAddr> {
    let address = web["status"]["podIP"]
        .as_str()
        .context("the web pod has no address")?;
    let address: IpAddr = address.parse().context("the web pod's address")?;
    Ok(SocketAddr::new(address, WEB_PORT))
}

fn show_command(bulkhead: &BulkheadInstance, arguments: &[&str]) -> Result<()> {
    let output = bulkhead.command_line(arguments)?;
    report::line(output.stdout.trim_end());
    if !output.status.success() {
        bail!(
            "bulkhead {}: {}: {}",
            arguments.join(" "),
            output.status,
            output.stderr.trim_end()
        );
    }
    Ok(())
}

fn hints(bulkhead: &BulkheadInstance) {
    let paths = bulkhead.paths();
    let run = paths.run.display();
    let program = paths.bin.join("bulkhead");
    let program = program.display();
    report::step("it runs until Ctrl-C; in another terminal try");
    for line in [
        format!("alias bulkhead='{program} --run-dir {run}'"),
        "bulkhead status".to_owned(),
        "bulkhead describe web".to_owned(),
        "bulkhead logs -f web".to_owned(),
        "bulkhead events --watch".to_owned(),
        "kill -9 PID              # any in bulkhead status: it comes back, no pod notices"
            .to_owned(),
        format!(
            "rm {0}/web.yaml; sleep 5; cp examples/web.yaml {0}/",
            paths.manifests.display()
        ),
    ] {
        report::line(&format!("  {line}"));
    }
}
