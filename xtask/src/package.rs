//! `cargo xtask package`: a Debian package with the programs, the units of both ways to run
//! them, their users, an example configuration, manual pages and completions. It starts nothing unasked.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use test_support::binaries;

use crate::build::{self, Profile};
use crate::manual;
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

/// What is written by hand below `systemd`, and where it goes: what units and scripts of the
/// package name.
const FILES: [(&str, &str); 5] = [
    (
        "bulkhead.service",
        "usr/lib/systemd/system/bulkhead.service",
    ),
    (
        "bulkhead-loopback.service",
        "usr/lib/systemd/system/bulkhead-loopback.service",
    ),
    ("nftables/loopback.nft", "usr/share/bulkhead/loopback.nft"),
    (
        "sysctl.d/20-bulkhead.conf",
        "usr/lib/sysctl.d/20-bulkhead.conf",
    ),
    (
        "sysusers.d/bulkhead.conf",
        "usr/lib/sysusers.d/bulkhead.conf",
    ),
];

/// Who answers for the package.
const MAINTAINER: &str = "The Bulkhead developers <bulkhead@localhost>";

/// The package's own directory of documents.
const DOCUMENTATION: &str = "usr/share/doc/bulkhead";

/// What is looked at by whoever installs it: paths, below the package's own directory of
/// documents.
const DOCUMENTS: [&str; 5] = [
    "README.md",
    "docs/operating.md",
    "docs/compatibility.md",
    "docs/isolation.md",
    "docs/architecture.md",
];

/// What can be copied and changed: files of the configuration, a node policy, pods.
const EXAMPLES: [&str; 8] = [
    "examples/node/kubelet.yaml",
    "examples/node/bulkhead.yaml",
    "examples/policy/policy.toml",
    "examples/systemd/resolver.conf",
    "examples/systemd/metadata.conf",
    "examples/web.yaml",
    "examples/job.yaml",
    "examples/crash-looping.yaml",
];

const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("package/postinst.sh")),
    ("prerm", include_str!("package/prerm.sh")),
    ("postrm", include_str!("package/postrm.sh")),
];

/// Builds the package below the target directory, and says where it is and how long it took.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let version = arguments
        .version
        .as_deref()
        .unwrap_or(env!("CARGO_PKG_VERSION"));
    report::step("building programs");
    build::programs(Profile::Release, &[])?;
    let directory = binaries::target_directory()?.join("package");
    report::step("making the package");
    let root = tree(Profile::Release, &directory)?;
    let architecture = architecture()?;
    let package = directory.join(format!("bulkhead_{version}_{architecture}.deb"));
    pack(&root, version, DENSE, &package)?;
    report::line(&package.display().to_string());
    report::line(&format!("took {} s", began.elapsed().as_secs()));
    Ok(ExitCode::SUCCESS)
}

/// How a package that is handed out is compressed; the default of dpkg-deb.
const DENSE: &[&str] = &[];

/// For one that is installed once and thrown away.
const QUICK: &[&str] = &["-Znone"];

/// Packages of the same development programs, a file `VERSION.deb` in `directory` for each
/// version.
pub(crate) fn in_versions(versions: &[&str], directory: &Path) -> Result<()> {
    let root = tree(Profile::Development, directory)?;
    for version in versions {
        let package = directory.join(format!("{version}.deb"));
        pack(&root, version, QUICK, &package)?;
    }
    fs::remove_dir_all(&root).context("cannot remove the tree")
}

/// All that is installed, in a new directory `root` of `directory`, from programs that are
/// built.
fn tree(profile: Profile, directory: &Path) -> Result<PathBuf> {
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).context("cannot remove the old tree")?;
    }
    programs(profile, &root)?;
    units(&root)?;
    texts(&root)?;
    completions(&root)?;
    manual_pages(&root)?;
    Ok(root)
}

/// Makes the package of what is in `root`.
fn pack(root: &Path, version: &str, compression: &[&str], package: &Path) -> Result<()> {
    control(root, version, &architecture()?)?;
    changelog(root, version)?;
    let mut command = Command::new("dpkg-deb");
    command.args(compression);
    command.args(["--root-owner-group", "--build"]);
    succeed(command.arg(root).arg(package).stdout(Stdio::null()))
}

/// Debian's name of this machine's architecture.
fn architecture() -> Result<String> {
    let printed = printed(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(printed.trim().to_owned())
}

fn programs(profile: Profile, root: &Path) -> Result<()> {
    let built = build::place(profile)?;
    for (_, program) in binaries::PROGRAMS {
        let place = place(root, program);
        put(&built.join(program), &place, 0o755)?;
        // Whoever needs to read a back-trace builds the programs.
        succeed(Command::new("strip").arg(&place))?;
    }
    Ok(())
}

/// Where a program is installed.
fn place(root: &Path, program: &str) -> PathBuf {
    let directory = match program {
        "bulkhead" => "/usr/bin",
        _ => systemd_units::PROGRAMS,
    };
    root.join(directory.trim_start_matches('/')).join(program)
}

fn units(root: &Path) -> Result<()> {
    let repository = repository();
    for (file, place) in FILES {
        put(
            &repository.join("systemd").join(file),
            &root.join(place),
            0o644,
        )?;
    }
    for file in systemd_units::bundle() {
        write(&root.join(UNITS).join(file.name), &file.text, 0o644)?;
    }
    let preset = systemd_units::preset();
    let presets = root.join("usr/lib/systemd/system-preset");
    write(&presets.join(preset.name), &preset.text, 0o644)
}

fn texts(root: &Path) -> Result<()> {
    let configuration = root.join("etc/bulkhead/kubelet.yaml");
    write(&configuration, include_str!("package/kubelet.yaml"), 0o644)?;
    let place = root.join(DOCUMENTATION);
    let copyright = include_str!("package/copyright");
    write(&place.join("copyright"), copyright, 0o644)?;
    for document in DOCUMENTS.iter().chain(&EXAMPLES) {
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

fn manual_pages(root: &Path) -> Result<()> {
    for page in manual::pages()? {
        let directory = root.join(format!("usr/share/man/man{}", page.section));
        let file = directory.join(page.name);
        write_compressed(&file, &page.text)?;
    }
    Ok(())
}

/// Which version this is, and of which commit.
fn changelog(root: &Path, version: &str) -> Result<()> {
    let commit = |format: &str| {
        let mut git = Command::new("git");
        git.arg("-C").arg(repository());
        printed(git.args(["log", "-1", &format!("--format={format}")]))
    };
    // Sources may come without their history.
    let change = commit("Built from commit %H.").unwrap_or_else(|_| "Built.\n".to_owned());
    let date = commit("%cD").or_else(|_| printed(Command::new("date").arg("--rfc-email")))?;
    let text = format!(
        "bulkhead ({version}) unstable; urgency=medium\n\n  * {change}\n -- {MAINTAINER}  {date}"
    );
    let file = root.join(DOCUMENTATION).join(changelog_name(version));
    write_compressed(&file, text.as_bytes())
}

/// A version with a revision of Debian's, as in `0.1.0-1`, has two changelogs, and that of
/// the package has another name.
fn changelog_name(version: &str) -> &'static str {
    match version.contains('-') {
        true => "changelog.Debian",
        false => "changelog",
    }
}

fn control(root: &Path, version: &str, architecture: &str) -> Result<()> {
    let place = root.join("DEBIAN");
    let text = include_str!("package/control")
        .replace("@MAINTAINER@", MAINTAINER)
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture);
    write(&place.join("control"), &text, 0o644)?;
    write(
        &place.join("conffiles"),
        "/etc/bulkhead/kubelet.yaml\n",
        0o644,
    )?;
    let order = systemd_units::order_of_upgrade().join(" ");
    for (name, script) in SCRIPTS {
        let script = script.replace("@PROCESSES@", &order);
        write(&place.join(name), &script, 0o755)?;
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

/// Writes a file that is compressed, under its name with `.gz`.
fn write_compressed(path: &Path, bytes: &[u8]) -> Result<()> {
    write_bytes(path, bytes, 0o644)?;
    succeed(Command::new("gzip").arg("-9nf").arg(path))
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

#[cfg(test)]
mod tests {
    use config_files::bulkhead::BulkheadConfig;
    use config_files::kubelet::KubeletConfig;
    use node_config::{DirectoryLayout, NodeConfig};
    use node_policy::{Policy, Protected};
    use pod_manifest::{Origin, static_pods};

    use super::*;

    fn accepts_kubelet_configuration(path: &Path, text: &str) {
        let config = KubeletConfig::parse(path, text).unwrap();
        let directories = DirectoryLayout {
            root_dir: "/var/lib/kubelet".into(),
            log_dir: "/var/log".into(),
            run_dir: "/run/bulkhead".into(),
            state_dir: "/var/lib/bulkhead".into(),
            bin_dir: "/usr/libexec/bulkhead".into(),
        };
        let mut node = NodeConfig::with_defaults("node", directories);
        let warnings = config.apply(&mut node, 2).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn the_configuration_of_a_new_installation_is_accepted() {
        let text = include_str!("package/kubelet.yaml");
        accepts_kubelet_configuration(Path::new("/etc/bulkhead/kubelet.yaml"), text);
    }

    #[test]
    fn every_example_is_accepted_by_who_reads_it_on_a_node() {
        for example in EXAMPLES {
            let path = repository().join(example);
            let text = fs::read_to_string(&path).unwrap();
            match example {
                "examples/node/kubelet.yaml" => accepts_kubelet_configuration(&path, &text),
                "examples/node/bulkhead.yaml" => {
                    BulkheadConfig::parse(&path, &text).unwrap();
                }
                "examples/policy/policy.toml" => {
                    Policy::parse(&text, Protected::default()).unwrap();
                }
                // For systemd; a test boots with it.
                drop_in if drop_in.ends_with(".conf") => {
                    assert!(text.contains("[Service]\nIPAddressAllow="), "{example}");
                }
                pods => {
                    let origin = Origin::File(pods);
                    let pods = static_pods(text.as_bytes(), origin, &"node".into());
                    assert!(!pods.unwrap().is_empty(), "{example}");
                }
            }
        }
    }

    #[test]
    fn the_package_has_the_documents_that_debian_asks_for_and_no_symbols() {
        binaries::built().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let root = tree(Profile::Development, directory.path()).unwrap();
        for (version, name) in [("1", "changelog.gz"), ("1-1", "changelog.Debian.gz")] {
            changelog(&root, version).unwrap();
            let file = root.join(DOCUMENTATION).join(name);
            let text = printed(Command::new("zcat").arg(file)).unwrap();
            let version = format!("bulkhead ({version}) unstable; urgency=medium\n\n  * Built");
            let signature = format!("\n\n -- {MAINTAINER}  ");
            assert!(
                text.starts_with(&version) && text.contains(&signature),
                "{text}"
            );
        }
        assert!(root.join(DOCUMENTATION).join("copyright").is_file());
        for (_, program) in binaries::PROGRAMS {
            let mut readelf = Command::new("readelf");
            let sections = readelf
                .args(["--sections", "--wide"])
                .arg(place(&root, program));
            let sections = printed(sections).unwrap();
            let has_symbols = sections.contains(".symtab") || sections.contains(".debug_info");
            assert!(
                sections.contains(".text") && !has_symbols,
                "{program}: {sections}"
            );
        }
    }

    /// Stands for systemd: the restart of bulkhead.service does not succeed, and `$is_failed`
    /// is whether it has failed, as an exit code.
    const SYSTEMD: &str = r#"
        systemctl() {
            case "$*" in
                "try-restart bulkhead.service") return 1 ;;
                "--quiet is-failed bulkhead.service") return "$is_failed" ;;
                "--quiet is-active"*) return 3 ;;
                "show --property=InvocationID --value bulkhead.service") echo run ;;
            esac
        }
        journalctl() { echo "journalctl $*"; }
        mkdir() { :; }
    "#;

    /// What the package's script prints after an upgrade.
    fn told_after_upgrade(is_failed: &str) -> String {
        let script = include_str!("package/postinst.sh")
            .replace("systemd-sysusers", ":")
            .replace("/usr/lib/systemd/systemd-sysctl", ":")
            .replace("/run/systemd/system", "/");
        let script = format!("{SYSTEMD}{script}");
        let words = ["-c", &script, "postinst", "configure", "1"];
        let mut shell = Command::new("sh");
        let output = shell.args(words).env("is_failed", is_failed).output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        told
    }

    #[test]
    fn an_upgrade_tells_a_unit_that_has_failed_and_why_from_one_that_has_not_started_yet() {
        let waits = told_after_upgrade("1");
        assert_eq!(waits, "bulkhead: bulkhead.service has not started yet\n");
        let failed = told_after_upgrade("0");
        let (first, reason) = failed.split_once('\n').unwrap();
        assert!(first.contains("bulkhead.service has failed"), "{failed}");
        assert!(reason.contains("_SYSTEMD_INVOCATION_ID=run\n"), "{failed}");
    }

    /// What whoever has the package does not have: it is for who changes Bulkhead, or is
    /// installed elsewhere.
    const OF_THE_SOURCES: [&str; 9] = [
        // Debian has its text.
        "LICENSE",
        "bins",
        "docs/developing.md",
        "docs/invariants.md",
        "proto",
        "shared",
        "systemd",
        "tests",
        "xtask",
    ];

    /// What a page links to, without places in it; none of the links to other sites.
    fn links(page: &str) -> Vec<&str> {
        let targets = page.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split([')', '#']).next());
        let of_files = targets.filter(|it| !it.is_empty() && !it.contains("://"));
        of_files.collect()
    }

    #[test]
    fn a_page_leads_to_what_is_in_the_package_or_is_of_the_sources() {
        let repository = repository().canonicalize().unwrap();
        let shipped = |path: &Path| {
            let mut all = DOCUMENTS.iter().chain(&EXAMPLES);
            all.any(|it| Path::new(it).starts_with(path))
        };
        let is_of_the_sources = |path: &Path| OF_THE_SOURCES.iter().any(|it| path.starts_with(it));
        let mut found = 0;
        for document in DOCUMENTS {
            let document = repository.join(document);
            let text = fs::read_to_string(&document).unwrap();
            for link in links(&text) {
                let target = document.parent().unwrap().join(link);
                let target = target.canonicalize().unwrap();
                let target = target.strip_prefix(&repository).unwrap();
                let leads = shipped(target) || is_of_the_sources(target);
                assert!(leads, "{}: {link}", document.display());
                found += 1;
            }
        }
        assert!(found > 50, "{found}");
    }

    /// The files below a directory of the repository, by their paths in it.
    fn files_below(directory: &Path) -> Vec<PathBuf> {
        let mut directories = vec![repository().join(directory)];
        let mut found = Vec::new();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => found.push(path.strip_prefix(repository()).unwrap().to_owned()),
                }
            }
        }
        found
    }

    #[test]
    fn no_example_is_left_out_of_the_package() {
        for name in files_below(Path::new("examples")) {
            assert!(EXAMPLES.contains(&name.to_str().unwrap()), "{name:?}");
        }
    }

    #[test]
    fn no_file_for_systemd_is_left_out_of_the_package() {
        let made = ["systemd/bundle", "systemd/system-preset"];
        for name in files_below(Path::new("systemd")) {
            let mut ours = FILES
                .iter()
                .map(|(file, _)| Path::new("systemd").join(file));
            let is_made = made.iter().any(|it| name.starts_with(it));
            assert!(is_made || ours.any(|it| it == name), "{name:?}");
        }
    }

    #[test]
    fn the_unit_for_loopback_loads_the_file_that_is_installed() {
        let unit = repository().join("systemd/bulkhead-loopback.service");
        let unit = fs::read_to_string(unit).unwrap();
        let rules = FILES.iter().find(|(file, _)| file.ends_with(".nft"));
        let (_, place) = rules.unwrap();
        for setting in ["ExecStart", "ExecReload"] {
            let line = format!("\n{setting}=/usr/sbin/nft -f /{place}\n");
            assert!(unit.contains(&line), "{unit}");
        }
    }
}
