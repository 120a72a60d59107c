//! Whether the files behind the configuration changed: asked only while a
//! process waits for that. A SIGHUP does not need it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config_files::kubelet::drop_ins;
use topology::{PROCESSES, Process};

use crate::flags::Flags;

/// The files and what they were like when they were last read.
#[derive(Debug)]
pub(crate) struct ConfigurationFiles {
    files: Vec<PathBuf>,
    directory: Option<PathBuf>,
    noted: Vec<Print>,
}

/// A file that is replaced or written gets another one.
type Print = (PathBuf, Option<(u64, u64, i64, i64)>);

impl ConfigurationFiles {
    /// The files that the flags name, and the programs: a process that refuses
    /// its configuration may also get better by an upgrade.
    pub(crate) fn of(flags: &Flags, bin_dir: &Path) -> ConfigurationFiles {
        let named = [
            &flags.config,
            &flags.bulkhead_config,
            &flags.image_credential_provider_config,
        ];
        let named = named.into_iter().flatten().cloned();
        let programs = PROCESSES
            .iter()
            .filter(|row| row.process != Process::Supervisor)
            .map(|row| bin_dir.join(row.process.name()));
        let mut files = ConfigurationFiles {
            files: named.chain(programs).collect(),
            directory: flags.config_dir.clone(),
            noted: Vec::new(),
        };
        files.note();
        files
    }

    /// Remembers what they are like now.
    pub(crate) fn note(&mut self) {
        self.noted = self.prints();
    }

    /// Whether they differ from what was remembered.
    pub(crate) fn changed(&self) -> bool {
        self.prints() != self.noted
    }

    fn prints(&self) -> Vec<Print> {
        let directory = self.directory.as_deref();
        let drop_ins = directory.and_then(|directory| drop_ins(directory).ok());
        let mut prints: Vec<Print> = self
            .files
            .iter()
            .cloned()
            .chain(drop_ins.into_iter().flatten())
            .map(|path| {
                let print = path.metadata().ok().map(|metadata| {
                    let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
                    (metadata.ino(), metadata.len(), seconds, nanos)
                });
                (path, print)
            })
            .collect();
        prints.sort();
        prints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_written_added_or_removed_file_is_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        let drop_ins = directory.path().join("conf.d");
        std::fs::create_dir_all(drop_ins.join("sub")).unwrap();
        std::fs::write(&config, "a").unwrap();
        let flags = Flags::parse_from([
            "supervisor".as_ref(),
            "--config".as_ref(),
            config.as_os_str(),
            "--config-dir".as_ref(),
            drop_ins.as_os_str(),
        ]);
        let mut files = ConfigurationFiles::of(&flags, directory.path());
        assert!(!files.changed());
        std::fs::write(&config, "longer").unwrap();
        assert!(files.changed());
        files.note();
        assert!(!files.changed());
        for drop_in in ["1.conf", "sub/1.conf"] {
            std::fs::write(drop_ins.join(drop_in), "").unwrap();
            assert!(files.changed());
            files.note();
        }
        std::fs::write(directory.path().join("pleg"), "").unwrap();
        assert!(files.changed());
        files.note();
        std::fs::remove_file(&config).unwrap();
        assert!(files.changed());
    }
}
