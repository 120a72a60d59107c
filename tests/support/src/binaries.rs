//! Where the built programs are, and building them when a test is run by
//! hand.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};

/// The processes and the command line, as packages and as programs.
pub const PROGRAMS: [(&str, &str); 11] = [
    ("supervisor", "supervisor"),
    ("config-sourcer", "config-sourcer"),
    ("credential-provider", "credential-provider"),
    ("api-gateway", "api-gateway"),
    ("node-api", "node-api"),
    ("pleg", "pleg"),
    ("prober", "prober"),
    ("status-syncer", "status-syncer"),
    ("sync-loop", "sync-loop"),
    ("pod-worker-pool", "pod-worker-pool"),
    ("bulkhead-cli", "bulkhead"),
];

/// Set by whoever has built the programs already: [`built`] trusts it.
pub const BUILT_VARIABLE: &str = "BULKHEAD_PROGRAMS_BUILT";

/// The directory of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The cargo that runs us, else the one on the path.
#[must_use]
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Cargo in the workspace, run as a person would.
#[must_use]
pub fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    command.current_dir(workspace());
    forget_cargo(&mut command);
    command
}

/// Takes away what cargo told the running program about itself: build scripts
/// would see it, and everything that depends on them would be built anew each
/// time.
pub fn forget_cargo(command: &mut Command) {
    const OF_THE_PROGRAM: [&str; 4] = [
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THE_PROGRAM.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("CARGO_PRIMARY_PACKAGE");
}

/// `target/<profile>` of the running program.
///
/// # Errors
/// When the running program is not below a target directory.
pub fn profile_directory() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the running program")?;
    let mut directory = own
        .parent()
        .context("the running program has no directory")?;
    if directory.ends_with("deps") || directory.ends_with("examples") {
        directory = directory.parent().context("no directory above deps")?;
    }
    Ok(directory.to_owned())
}

/// The target directory of the running program.
///
/// # Errors
/// When the running program is not below a target directory.
pub fn target_directory() -> Result<PathBuf> {
    let profile = profile_directory()?;
    Ok(profile.parent().context("no target directory")?.to_owned())
}

/// The directory with all [`PROGRAMS`] in the profile of the running program,
/// built first unless that was done.
///
/// # Errors
/// When they cannot be built; the error holds the compiler's words.
pub fn built() -> Result<PathBuf> {
    static RESULT: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let directory = profile_directory()?;
    RESULT
        .get_or_init(|| {
            if std::env::var_os(BUILT_VARIABLE).is_some() {
                return Ok(());
            }
            build(&directory).map_err(|error| format!("{error:#}"))
        })
        .clone()
        .map_err(anyhow::Error::msg)?;
    Ok(directory)
}

/// Arguments with which cargo builds [`PROGRAMS`]: for tests of what these are made of, so
/// that nothing is compiled twice, and for a release of what they ask for themselves.
#[must_use]
pub fn build_arguments(is_release: bool) -> Vec<&'static str> {
    let mut arguments = vec!["build"];
    if is_release {
        arguments.push("--release");
        arguments.extend(
            PROGRAMS
                .iter()
                .flat_map(|(package, _)| ["--package", *package]),
        );
        arguments.push("--bins");
    } else {
        arguments.push("--workspace");
        arguments.extend(PROGRAMS.iter().flat_map(|(_, program)| ["--bin", *program]));
    }
    arguments
}

fn build(directory: &Path) -> Result<()> {
    let mut command = cargo_command();
    command.args(build_arguments(directory.ends_with("release")));
    let output = command.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cannot build the programs:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The programs where every user of the node reaches them, and unchanged by
/// builds meanwhile.
pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    for (_, program) in PROGRAMS {
        let (from, to) = (from.join(program), to.join(program));
        if std::fs::hard_link(&from, &to).is_err() {
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}
