//! What the kernel is told that a process may do, from its row in the topology and the
//! places of this node.
//!
//! A rule of Landlock is about a directory that stands, not about a name. What others
//! replace by a rename, as editors and package managers do, is a new file with the old
//! name. So the directory that a file is in is permitted in its place, and for
//! directories that an operator may make anew the one above.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use confine::{Calls, Files, Permitted};
use node_config::{NodeConfig, paths};
use topology::{Access, Place, Process, row};

/// Variables that name the certificates of authorities: a file, and a directory.
const AUTHORITY_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What `process` may do once it is sealed.
#[must_use]
pub fn permitted(config: &NodeConfig, process: Process) -> Permitted {
    let row = row(process);
    let files = row.is_held_to_its_files().then(|| {
        let mut files = files(config, process);
        if row.opens.iter().any(|it| it.place == Place::Authorities) {
            files.read.extend(authorities(std::env::var_os));
        }
        files
    });
    Permitted {
        files,
        calls: Calls::of(row),
    }
}

fn files(config: &NodeConfig, process: Process) -> Files {
    let mut files = Files::default();
    for opened in row(process).opens {
        for path in paths(config, process, opened.place) {
            match (opened.place, opened.access) {
                // What is there are sockets, and to connect to one is no matter of files.
                (Place::RunDirectory, _) => {}
                (_, Access::Write) => files.write.push(path),
                (place, Access::Read) => files.read.extend(standing(&path, may_be_new(place))),
            }
        }
    }
    files
}

/// Directories that whoever owns the node may remove and make again while it runs.
fn may_be_new(place: Place) -> bool {
    matches!(place, Place::Manifests | Place::LocalObjects)
}

/// The directories that stand for `path`: by that name, and where links lead.
fn standing(path: &Path, may_be_new: bool) -> Vec<PathBuf> {
    let resolved = path.canonicalize().ok();
    let names = [Some(path.to_path_buf()), resolved];
    let mut standing: Vec<PathBuf> = names
        .into_iter()
        .flatten()
        .filter_map(|path| directory_of(path, may_be_new))
        .collect();
    standing.dedup();
    standing
}

/// Itself, or the nearest one above that is there. Never the root directory: who wants a
/// directory right below it has it as it is now.
fn directory_of(path: PathBuf, may_be_new: bool) -> Option<PathBuf> {
    let is_root = |path: &Path| path.parent().is_none();
    if path.is_dir() && (!may_be_new || path.parent().is_some_and(is_root)) {
        return Some(path);
    }
    let mut above = path.ancestors().skip(1);
    let nearest = above.find(|above| above.is_dir())?;
    (!is_root(nearest)).then(|| nearest.to_path_buf())
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
        for (path, may_be_new, expected) in [
            ("etc/manifests", false, vec!["etc/manifests"]),
            ("etc/manifests", true, vec!["etc"]),
            ("etc/absent/manifests", true, vec!["etc"]),
            ("etc/resolv.conf", false, vec!["etc", "run/resolver"]),
        ] {
            let expected: Vec<PathBuf> = expected.into_iter().map(at).collect();
            assert_eq!(standing(&at(path), may_be_new), expected, "{path}");
        }
    }

    #[test]
    fn nothing_stands_for_the_whole_file_system() {
        assert_eq!(directory_of("/absent-at-the-root".into(), true), None);
        assert_eq!(directory_of("/usr".into(), true), Some("/usr".into()));
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
    fn authorities_of_the_environment_are_permitted() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("ca.pem");
        fs::write(&file, "").unwrap();
        let found = authorities(|name| (name == "SSL_CERT_FILE").then(|| file.clone().into()));
        assert!(found.contains(&root.path().to_path_buf()), "{found:?}");
    }
}
