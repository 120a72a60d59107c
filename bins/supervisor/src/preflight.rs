//! What must hold before anything is started, each with its own exit code.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use node_config::NodeConfig;
use topology::{Identities, PROCESSES, Process};

use crate::directories::check_passable;
use crate::failure::Failure;

/// Root, for everything that follows.
///
/// # Errors
/// When the effective user is another.
pub(crate) fn check_root() -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        Err(Failure::NotRoot)
    }
}

/// Somebody listens on the container runtime's socket.
///
/// # Errors
/// When there is no socket, or one that is left over.
pub(crate) fn check_runtime(config: &NodeConfig) -> Result<(), Failure> {
    let path = &config.container_runtime.0;
    match UnixStream::connect(path) {
        Ok(_connection) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Failure::NoRuntimeSocket { path: path.clone() })
        }
        Err(source) if source.kind() == ErrorKind::ConnectionRefused => {
            Err(Failure::StaleRuntimeSocket {
                path: path.clone(),
                source,
            })
        }
        // Busy: somebody listens.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(source) => Err(Failure::Io {
            action: "connect to",
            path: path.clone(),
            source,
        }),
    }
}

/// The program of each process exists and its user can run it.
///
/// # Errors
/// Names the first that is not so.
pub(crate) fn check_binaries(config: &NodeConfig, identities: &Identities) -> Result<(), Failure> {
    let supervised = PROCESSES
        .iter()
        .filter(|row| row.process != Process::Supervisor);
    for row in supervised {
        let path = config.directories.bin_dir.join(row.process.name());
        let refused = |reason: String| Failure::Binary {
            process: row.process,
            path: path.clone(),
            reason,
        };
        let runnable = runnable(&path, identities.uid(row.process));
        runnable.map_err(refused)?;
        if !row.root {
            check_passable(&config.directories.bin_dir)?;
        }
    }
    Ok(())
}

fn runnable(path: &Path, uid: u32) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mode = metadata.mode();
    if mode & 0o111 == 0 {
        return Err("it is not executable (chmod 0755)".to_owned());
    }
    if uid != 0 && uid != metadata.uid() && mode & 0o001 == 0 {
        return Err(format!("uid {uid} may not execute it (chmod 0755)"));
    }
    Ok(())
}
