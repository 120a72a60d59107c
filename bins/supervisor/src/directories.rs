//! Directories, the lock against a second instance, and the files that the
//! processes read. All of it is made before capabilities are dropped.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use node_config::{
    ApiServer, CredentialProviders, NODE_CONFIG_FILE, NodeConfig, NodeServer, url_without_secrets,
};
use topology::{Identities, PROCESSES, Process, row};
use trusted_path::PathError;

use crate::failure::Failure;

/// Held as long as the supervisor runs; its content is the pid, for people.
const LOCK_FILE: &str = "supervisor.lock";

/// Everybody may pass through, only root may list or change.
const PASSABLE: u32 = 0o711;

/// Bits of a mode that let others than the owner write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Proof that no other supervisor uses the run directory.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _file: Flock<File>,
}

/// Makes the run directory, or checks one that exists, and locks it.
///
/// # Errors
/// When it is unsafe, cannot be made, or another supervisor holds it.
pub(crate) fn lock_run_dir(run_dir: &Path) -> Result<InstanceLock, Failure> {
    make(run_dir, PASSABLE)?;
    check_owned_directory(run_dir)?;
    check_passable(run_dir)?;
    let path = run_dir.join(LOCK_FILE);
    let failed = |source| Failure::Io {
        action: "open",
        path: path.clone(),
        source,
    };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&path)
        .map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            let written = file
                .set_len(0)
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            written.map_err(failed)?;
            Ok(InstanceLock { _file: file })
        }
        Err((_file, nix::errno::Errno::EWOULDBLOCK)) => Err(Failure::SecondInstance {
            path: run_dir.to_owned(),
        }),
        Err((_file, errno)) => Err(failed(errno.into())),
    }
}

/// Makes the directories of the processes, each its owner's alone.
///
/// # Errors
/// When one cannot be made.
pub(crate) fn prepare(config: &NodeConfig, identities: &Identities) -> Result<(), Failure> {
    let directories = &config.directories;
    make(&directories.state_dir, PASSABLE)?;
    check_owned_directory(&directories.state_dir)?;
    check_passable(&directories.state_dir)?;
    make(&directories.log_dir, 0o755)?;
    for row in PROCESSES {
        let path = directories.state(row.process);
        make(&path, 0o700)?;
        let (uid, gid) = (identities.uid(row.process), identities.gid(row.process));
        let io = |action| Failure::io(action, &path);
        fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(io("set the mode of"))?;
        std::os::unix::fs::lchown(&path, Some(uid), Some(gid)).map_err(io("set the owner of"))?;
    }
    Ok(())
}

/// Where a process finds its configuration.
#[must_use]
pub(crate) fn node_config_path(run_dir: &Path, process: Process) -> PathBuf {
    match row(process).has_secrets {
        true => run_dir.join(format!("{process}.{NODE_CONFIG_FILE}")),
        false => run_dir.join(NODE_CONFIG_FILE),
    }
}

/// Writes the resolved configuration: for everybody without what may be secret,
/// and with it for the process that needs it.
///
/// # Errors
/// When the file system refuses; what was there is then still there.
pub(crate) fn write_node_config(
    config: &NodeConfig,
    identities: &Identities,
) -> Result<(), Failure> {
    let run_dir = &config.directories.run_dir;
    let public = Process::Supervisor;
    let with_secrets = Process::ALL.into_iter().filter(|it| row(*it).has_secrets);
    let files = [public].into_iter().chain(with_secrets);
    let files: Vec<_> = files
        .map(|process| (process, config_of(config, process)))
        .collect();
    // All or none: who is restarted must not read what the others do not.
    let path = |process| node_config_path(run_dir, process);
    let next = |process| path(process).with_extension("next");
    let written = files.iter().try_for_each(|(process, config)| {
        let (mode, group) = match row(*process).has_secrets {
            true => (0o640, Some(identities.gid(*process))),
            false => (0o644, None),
        };
        write(&next(*process), config, mode, group)
    });
    for (process, _) in files {
        let (next, path) = (next(process), path(process));
        match &written {
            Ok(()) => fs::rename(next, &path).map_err(|source| Failure::Io {
                action: "write",
                path,
                source,
            })?,
            Err(_) => drop(fs::remove_file(next)),
        }
    }
    written
}

/// The configuration with the secrets of one process alone.
fn config_of(config: &NodeConfig, process: Process) -> NodeConfig {
    let mut own = config.clone();
    if process != Process::ConfigSourcer
        && let Some(source) = &mut own.static_pod_url
    {
        source.headers.clear();
        source.url = url_without_secrets(&source.url);
    }
    if process != Process::CredentialProvider {
        let programs = config.credential_providers.as_ref();
        own.credential_providers = programs.map(CredentialProviders::without_secrets);
    }
    if process != Process::ApiGateway {
        own.api_server = config.api_server.as_ref().map(ApiServer::without_secrets);
    }
    if process != Process::NodeApi {
        own.node_server = config.node_server.as_ref().map(NodeServer::without_secrets);
    }
    own
}

fn write(path: &Path, config: &NodeConfig, mode: u32, group: Option<u32>) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(config)?;
        state_file::write_atomically(path, &bytes, |file| {
            std::os::unix::fs::fchown(file, None, group)?;
            file.set_permissions(Permissions::from_mode(mode))
        })
    };
    written().map_err(|source| Failure::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

fn make(path: &Path, mode: u32) -> Result<(), Failure> {
    let made = match path.parent() {
        // Parents that are missing are for everybody, as mkdir -p has it.
        Some(parent) => DirBuilder::new().recursive(true).mode(0o755).create(parent),
        None => Ok(()),
    };
    let made = made.and_then(|()| match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    made.map_err(|source| Failure::Io {
        action: "create directory",
        path: path.to_owned(),
        source,
    })
}

/// Nobody but root can put another file there: it belongs to root alone, and so does all that
/// leads to it.
pub(crate) fn check_owned_path(path: &Path) -> Result<(), Failure> {
    match trusted_path::follow(path, 0) {
        Ok(_) => Ok(()),
        Err(PathError::Untrusted { path, reason }) => Err(Failure::Directory { path, reason }),
        Err(PathError::Io { path, source }) => Err(Failure::Io {
            action: "look at",
            path,
            source,
        }),
    }
}

/// The same of a directory, in which nobody else may make anything, and which is no link.
pub(crate) fn check_owned_directory(directory: &Path) -> Result<(), Failure> {
    check_itself(directory)?;
    check_owned_path(directory)
}

/// It is root's alone, whatever is above it.
fn check_itself(directory: &Path) -> Result<(), Failure> {
    let refused = |reason: String| {
        Err(Failure::Directory {
            path: directory.to_owned(),
            reason,
        })
    };
    let metadata = metadata(directory)?;
    let mode = metadata.mode();
    if !metadata.is_dir() {
        return refused("it is not a directory (a link counts as none): remove it".to_owned());
    }
    if metadata.uid() != 0 {
        return refused(format!(
            "it belongs to uid {}, who could replace what is in it: chown root it",
            metadata.uid()
        ));
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return refused(format!(
            "its mode {:04o} lets others change what is in it: chmod go-w it",
            mode & 0o7777
        ));
    }
    Ok(())
}

/// The processes' users can pass through it and through everything above.
pub(crate) fn check_passable(path: &Path) -> Result<(), Failure> {
    for directory in path.ancestors() {
        let mode = fs::metadata(directory).map(|metadata| metadata.mode());
        let mode = mode.map_err(|source| Failure::Io {
            action: "look at",
            path: directory.to_owned(),
            source,
        })?;
        if mode & 0o001 == 0 {
            return Err(Failure::Directory {
                path: directory.to_owned(),
                reason: format!(
                    "the users of the processes cannot pass through it to {}: chmod o+x it, or choose another place",
                    path.display()
                ),
            });
        }
    }
    Ok(())
}

/// Of the directory itself, not of what a link leads to.
fn metadata(path: &Path) -> Result<fs::Metadata, Failure> {
    fs::symlink_metadata(path).map_err(|source| Failure::Io {
        action: "look at",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use node_config::{ApiCredential, CredentialProvider, DirectoryLayout, HttpSource};

    use super::*;

    const PASSWORD: &str = "hunter-of-url";
    const TOKEN: &str = "hunter-of-query";
    const HEADER: &str = "hunter-of-header";
    const ARGUMENT: &str = "hunter-of-argument";
    const VARIABLE: &str = "hunter-of-environment";
    const KEY: &str = "hunter-of-key";

    /// A node whose configuration has a secret wherever it can have one.
    fn with_secrets(top: &Path) -> NodeConfig {
        let provider = CredentialProvider {
            name: "ecr".to_owned(),
            match_images: vec!["a.io".to_owned()],
            default_cache_duration: Duration::ZERO,
            args: vec![ARGUMENT.to_owned()],
            env: [("A".to_owned(), VARIABLE.to_owned())].into(),
        };
        NodeConfig {
            static_pod_url: Some(HttpSource {
                url: format!("http://joe:{PASSWORD}@h/p?token={TOKEN}"),
                headers: [("A".to_owned(), vec![HEADER.to_owned()])].into(),
                check_frequency: Duration::from_secs(20),
            }),
            credential_providers: Some(CredentialProviders {
                bin_dir: "/programs".into(),
                providers: vec![provider],
            }),
            api_server: Some(ApiServer {
                url: "https://h:1".to_owned(),
                server_name: None,
                authority: String::new(),
                credential: Some(ApiCredential {
                    certificate: String::new(),
                    key: KEY.to_owned(),
                }),
            }),
            ..NodeConfig::with_defaults("node", DirectoryLayout::below(top))
        }
    }

    #[test]
    fn a_secret_is_only_in_the_file_of_the_process_that_needs_it() {
        let top = tempfile::tempdir().unwrap();
        let config = with_secrets(top.path());
        let run_dir = &config.directories.run_dir;
        fs::create_dir(run_dir).unwrap();
        let identities = Identities::from_base(64_000).unwrap();
        write_node_config(&config, &identities).unwrap();
        let (sourcer, provider) = (Process::ConfigSourcer, Process::CredentialProvider);
        for (name, mode, gid, expected) in [
            ("node.json", 0o644, 0, &[][..]),
            (
                "config-sourcer.node.json",
                0o640,
                identities.gid(sourcer),
                &[PASSWORD, TOKEN, HEADER],
            ),
            (
                "credential-provider.node.json",
                0o640,
                identities.gid(provider),
                &[ARGUMENT, VARIABLE],
            ),
            (
                "api-gateway.node.json",
                0o640,
                identities.gid(Process::ApiGateway),
                &[KEY],
            ),
        ] {
            let file = fs::metadata(run_dir.join(name)).unwrap();
            let found = (file.mode() & 0o7777, file.uid(), file.gid());
            assert_eq!(found, (mode, 0, gid), "{name}");
            let text = fs::read_to_string(run_dir.join(name)).unwrap();
            let secrets = [PASSWORD, TOKEN, HEADER, ARGUMENT, VARIABLE, KEY];
            let told = secrets.into_iter().filter(|secret| text.contains(secret));
            assert_eq!(told.collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
