//! What the kernel is told that a process may do, from its row in the topology and the
//! places of this node.
//!
//! A rule of Landlock is about a directory that stands, not about a name. What others
//! replace by a rename, as editors and package managers do, is a new file with the old
//! name. So the directory that a file is in is permitted in its place, and for
//! directories that an operator may make anew the one above.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use confine::{Calls, Files, Permitted, View};
use node_config::{NodeConfig, STARTING, paths};
use topology::{Access, Namespace, Need, Place, Process, row};

use crate::remote_mounts::RemoteMounts;

/// Variables that name the certificates of authorities: a file, and a directory.
const AUTHORITY_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Links that are followed one after the other, from a directory of the operator's.
const MAX_LINKS: usize = 8;

/// What `process` may do once it is sealed.
#[must_use]
pub fn permitted(config: &NodeConfig, process: Process) -> Permitted {
    let row = row(process);
    Permitted {
        files: row.is_held_to_its_files().then(|| files(config, process)),
        calls: Calls::of(row),
    }
}

/// What `process` sees where it has mounts of its own: what it needs to start, and what it
/// may open once it is sealed.
#[must_use]
pub fn view(config: &NodeConfig, process: Process) -> View {
    let directories = &config.directories;
    let row = row(process);
    // Of others, such as hostPath volumes, nobody is to look at what they list.
    let has_mounts = row.namespaces.contains(&Namespace::Mount);
    let mut files = match has_mounts {
        true => files(config, process),
        false => Files::default(),
    };
    files.read.push(directories.run_dir.clone());
    let mut programs = vec![directories.bin_dir.clone()];
    programs.extend(STARTING.iter().map(PathBuf::from));
    if row.needs(Need::Programs) {
        programs.extend(paths(config, process, Place::CredentialPrograms));
    }
    View {
        files,
        programs,
        sight: row.sight,
    }
}

fn files(config: &NodeConfig, process: Process) -> Files {
    let mut files = Files::default();
    let opens = row(process).opens;
    for opened in opens {
        for path in paths(config, process, opened.place) {
            match (opened.place, opened.access) {
                // What is there are sockets, and to connect to one is no matter of files.
                (Place::RunDirectory, _) => {}
                // Those are run.
                (Place::CredentialPrograms, _) => {}
                (_, Access::Write) => files.write.push(path),
                (place, Access::Read) => files.read.extend(standing(&path, may_be_new(place))),
            }
        }
    }
    if opens.iter().any(|it| it.place == Place::Authorities) {
        files.read.extend(authorities(std::env::var_os));
    }
    files
}

/// Directories that whoever owns the node may remove and make again while it runs.
fn may_be_new(place: Place) -> bool {
    matches!(place, Place::Manifests | Place::LocalObjects)
}

/// The directories that stand for `path`: by that name, and where links lead. None for what
/// is not there: the nearest directory above may have much else.
fn standing(path: &Path, may_be_new: bool) -> Vec<PathBuf> {
    if may_be_new {
        return above(path, &RemoteMounts::read());
    }
    if path.symlink_metadata().is_err() {
        return Vec::new();
    }
    let names = [Some(path.to_path_buf()), path.canonicalize().ok()];
    let mut standing: Vec<PathBuf> = names.into_iter().flatten().filter_map(itself).collect();
    standing.dedup();
    standing
}

/// A directory, or that of a file.
fn itself(path: PathBuf) -> Option<PathBuf> {
    match path.is_dir() {
        true => Some(path),
        false => nearest_above(&path),
    }
}

/// The directories above a path, and above what it is a link to. The path itself is not
/// looked at, nor a file system of another machine that it is in, which the directory stands
/// for that this is mounted in: it may hang, and nothing else is to hang with it.
fn above(path: &Path, remote: &RemoteMounts) -> Vec<PathBuf> {
    let mut above = Vec::new();
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let mount = remote.on_the_way_to(&path).map(Path::to_path_buf);
        let is_remote = mount.is_some();
        path = mount.unwrap_or(path);
        let Some(directory) = nearest_above(&path) else {
            // Right below the root directory: as it is now.
            above.push(path);
            break;
        };
        above.extend(directory.canonicalize());
        above.push(directory);
        if is_remote {
            break;
        }
        let Ok(target) = path.read_link() else {
            break;
        };
        path = path.parent().unwrap_or(&path).join(target);
    }
    above.sort();
    above.dedup();
    above
}

/// The nearest directory above a path that is there, unless that is the root directory.
fn nearest_above(path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().skip(1);
    let nearest = above.find(|above| above.is_dir())?;
    nearest.parent().map(|_| nearest.to_path_buf())
}

/// Authorities that the supervisor was told of by its environment.
fn authorities(variable: impl Fn(&'static str) -> Option<OsString>) -> Vec<PathBuf> {
    let named = AUTHORITY_VARIABLES.into_iter().filter_map(variable);
    named
        .flat_map(|path| standing(Path::new(&path), false))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    use node_config::DirectoryLayout;

    use super::*;

    #[test]
    fn what_may_be_replaced_is_permitted_by_the_directory_that_it_is_in() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("etc/manifests")).unwrap();
        fs::create_dir_all(at("run/resolver")).unwrap();
        fs::write(at("run/resolver/resolv.conf"), "").unwrap();
        symlink(at("run/resolver/resolv.conf"), at("etc/resolv.conf")).unwrap();
        symlink("../etc/manifests", at("run/linked")).unwrap();
        for (path, may_be_new, expected) in [
            ("etc/manifests", false, vec!["etc/manifests"]),
            ("etc/manifests", true, vec!["etc"]),
            ("etc/absent/manifests", true, vec!["etc"]),
            ("run/absent/resolver", false, vec![]),
            ("run/linked", true, vec!["etc", "run"]),
            ("etc/resolv.conf", false, vec!["etc", "run/resolver"]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(at).collect();
            let found = standing(&at(path), may_be_new).into_iter();
            let found: BTreeSet<_> = found.filter_map(|it| it.canonicalize().ok()).collect();
            assert_eq!(found, expected.into_iter().collect(), "{path}");
        }
    }

    #[test]
    fn nothing_stands_for_the_whole_file_system() {
        assert_eq!(nearest_above(Path::new("/absent")), None);
        let above = above(Path::new("/absent"), &RemoteMounts::default());
        assert_eq!(above, [Path::new("/absent")]);
        assert_eq!(itself("/usr".into()), Some("/usr".into()));
    }

    #[test]
    fn each_process_gets_the_files_of_its_own_row() {
        let root = tempfile::tempdir().unwrap();
        let layout = DirectoryLayout::below(root.path());
        let config = NodeConfig::with_defaults("node", layout);
        for process in Process::ALL {
            let permitted = permitted(&config, process);
            let held = ![
                Process::Supervisor,
                Process::PodWorkerPool,
                Process::CredentialProvider,
            ]
            .contains(&process);
            assert_eq!(permitted.files.is_some(), held, "{process}");
            for file in permitted.files.iter().flat_map(|files| &files.write) {
                assert_eq!(*file, config.directories.state(process), "{process}");
            }
        }
        let pleg = permitted(&config, Process::Pleg);
        assert_eq!(pleg.files, Some(Files::default()));
        assert_eq!(pleg.calls, Calls::default());
    }

    #[test]
    fn each_process_sees_its_program_its_sockets_and_the_files_of_its_row() {
        let root = tempfile::tempdir().unwrap();
        let layout = DirectoryLayout::below(root.path());
        let config = NodeConfig::with_defaults("node", layout);
        let seen = view(&config, Process::StatusSyncer);
        let directories = &config.directories;
        assert!(seen.programs.contains(&directories.bin_dir));
        assert_eq!(seen.files.read, vec![directories.run_dir.clone()]);
        assert_eq!(seen.files.write, [directories.state(Process::StatusSyncer)]);
        assert_eq!(seen.sight, topology::Sight::Listed);
    }

    #[test]
    fn who_starts_programs_of_the_node_sees_them_its_state_and_whom_to_trust() {
        let root = tempfile::tempdir().unwrap();
        let layout = DirectoryLayout::below(root.path());
        let mut config = NodeConfig::with_defaults("node", layout);
        let programs = root.path().join("programs");
        config.credential_providers = Some(node_config::CredentialProviders {
            bin_dir: programs.clone(),
            providers: Vec::new(),
        });
        let process = Process::CredentialProvider;
        let seen = view(&config, process);
        assert!(seen.programs.contains(&programs));
        assert!(
            !seen.files.read.contains(&programs),
            "it could not run them"
        );
        assert!(seen.files.read.contains(&config.directories.run_dir));
        assert_eq!(seen.files.write, [config.directories.state(process)]);
        assert_ne!(seen.sight, topology::Sight::Listed);
        // Nobody else.
        assert!(!view(&config, Process::Prober).programs.contains(&programs));
    }

    #[test]
    fn authorities_of_the_environment_are_permitted() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("ca.pem");
        fs::write(&file, "").unwrap();
        let found = authorities(|name| (name == "SSL_CERT_FILE").then(|| file.clone().into()));
        assert!(found.contains(&root.path().to_path_buf()), "{found:?}");
    }
}
