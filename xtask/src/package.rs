//! `cargo xtask package`: a Debian package with the programs, the units of both ways to run
//! them, their users, and an example configuration. It starts nothing unasked.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use test_support::binaries;

use crate::build::{self, Profile};
use crate::report;
use crate::tree::run as succeed;

/// Arguments of `package`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the package (default: that of the workspace)
    #[arg(long)]
    version: Option<String>,
}

/// Where units of packages are.
const UNITS: &str = "usr/lib/systemd/system";

/// What is looked at by whoever installs it: paths, below the package's own directory of
/// documents.
const DOCUMENTS: [&str; 4] = [
    "README.md",
    "LICENSE",
    "docs/operating.md",
    "docs/isolation.md",
];

const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("package/postinst.sh")),
    ("prerm", include_str!("package/prerm.sh")),
    ("postrm", include_str!("package/postrm.sh")),
];

/// Builds the package below the target directory, and says where it is.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let version = arguments
        .version
        .as_deref()
        .unwrap_or(env!("CARGO_PKG_VERSION"));
    report::step("building programs");
    build::programs(Profile::Release, &[])?;
    let architecture = printed(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let directory = binaries::target_directory()?.join("package");
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).context("cannot remove the old tree")?;
    }
    report::step("making the package");
    programs(&root)?;
    units(&root)?;
    texts(&root)?;
    completions(&root)?;
    control(&root, version, architecture)?;
    let package = directory.join(format!("bulkhead_{version}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]);
    succeed(command.arg(&root).arg(&package))?;
    report::line(&package.display().to_string());
    Ok(ExitCode::SUCCESS)
}

fn programs(root: &Path) -> Result<()> {
    let built = binaries::target_directory()?.join("release");
    for (_, program) in binaries::PROGRAMS {
        let place = match program {
            "bulkhead" => root.join("usr/bin"),
            _ => root.join(systemd_units::PROGRAMS.trim_start_matches('/')),
        };
        put(&built.join(program), &place.join(program), 0o755)?;
        // Who needs to read a back-trace builds it.
        let mut strip = Command::new("strip");
        succeed(strip.arg("--strip-debug").arg(place.join(program)))?;
    }
    Ok(())
}

fn units(root: &Path) -> Result<()> {
    let repository = repository();
    let unit = Path::new("systemd/bulkhead.service");
    let name = root.join(UNITS).join("bulkhead.service");
    put(&repository.join(unit), &name, 0o644)?;
    for file in systemd_units::bundle() {
        write(&root.join(UNITS).join(file.name), &file.text, 0o644)?;
    }
    let users = repository.join("systemd/sysusers.d/bulkhead.conf");
    put(
        &users,
        &root.join("usr/lib/sysusers.d/bulkhead.conf"),
        0o644,
    )
}

fn texts(root: &Path) -> Result<()> {
    let configuration = root.join("etc/bulkhead/kubelet.yaml");
    write(&configuration, include_str!("package/kubelet.yaml"), 0o644)?;
    let place = root.join("usr/share/doc/bulkhead");
    for document in DOCUMENTS {
        put(&repository().join(document), &place.join(document), 0o644)?;
    }
    Ok(())
}

/// What shells complete, as the program itself prints it.
fn completions(root: &Path) -> Result<()> {
    let program = root.join("usr/bin/bulkhead");
    for (shell, place) in [
        ("bash", "usr/share/bash-completion/completions/bulkhead"),
        ("zsh", "usr/share/zsh/vendor-completions/_bulkhead"),
        ("fish", "usr/share/fish/vendor_completions.d/bulkhead.fish"),
    ] {
        let script = printed(Command::new(&program).args(["completion", shell]))?;
        write(&root.join(place), &script, 0o644)?;
    }
    Ok(())
}

fn control(root: &Path, version: &str, architecture: &str) -> Result<()> {
    let place = root.join("DEBIAN");
    let text = include_str!("package/control")
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture);
    write(&place.join("control"), &text, 0o644)?;
    write(
        &place.join("conffiles"),
        "/etc/bulkhead/kubelet.yaml\n",
        0o644,
    )?;
    for (name, script) in SCRIPTS {
        write(&place.join(name), script, 0o755)?;
    }
    Ok(())
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    write_bytes(to, &bytes, mode)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    write_bytes(path, text.as_bytes(), mode)
}

fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let written = || -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    written().with_context(|| path.display().to_string())
}

fn printed(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| program)
}
