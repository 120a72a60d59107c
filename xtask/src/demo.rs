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
    report::step("starting containerd");
    let ground = match &arguments.containerd {
        Some(socket) => Ground::existing(socket)?,
        None => Ground::private()?,
    };
    report::step("starting Bulkhead");
    let mut bulkhead = BulkheadInstance::start(ground.containerd(), &BulkheadOptions::default())?;
    let shown = show(&bulkhead);
    if interrupt.acknowledge() {
        report::line("interrupted");
    } else if let Err(error) = &shown {
        report::failure(error);
        report::line(&bulkhead.log_ends());
    } else if !arguments.once {
        hints(&bulkhead);
        interrupt.wait();
    }
    report::step("ending");
    let removed = ground.remove_pods(&bulkhead);
    let status = bulkhead.stop()?;
    removed?;
    drop(bulkhead);
    drop(ground);
    let success = shown.is_ok() && status.success();
    report::line(if success {
        "all is removed"
    } else {
        "it did not work; all is removed"
    });
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
        "bulkhead logs -f crash-looping".to_owned(),
        "bulkhead events --watch".to_owned(),
        "kill -9 PID              # any of those in bulkhead status: only its row changes"
            .to_owned(),
        format!(
            "rm {0}/job.yaml; cp examples/job.yaml {0}/",
            paths.manifests.display()
        ),
    ] {
        report::line(&format!("  {line}"));
    }
}
