//! The policy's file as the command line reads it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use node_policy::{MAX_POLICY_BYTES, Policy, Protected};

use crate::failure::Failure;

/// Permission bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A policy's file, or that there is none.
#[derive(Debug)]
pub(super) struct PolicyFile {
    path: PathBuf,
    content: Option<Content>,
}

#[derive(Debug)]
struct Content {
    text: String,
    owner: u32,
    mode: u32,
}

impl PolicyFile {
    /// Reads it; that there is none is not an error.
    pub(super) fn read(path: &Path) -> Result<PolicyFile, Failure> {
        let content = match content(path) {
            Ok(content) => Some(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unusable(path, error)),
        };
        Ok(PolicyFile {
            path: path.to_owned(),
            content,
        })
    }

    /// What is in it; without a file the default policy.
    pub(super) fn policy(&self, protected: Protected) -> Result<Policy, Failure> {
        match &self.content {
            None => Ok(Policy::without_file(protected)),
            Some(content) => Policy::parse(&content.text, protected)
                .map_err(|error| unusable(&self.path, io::Error::other(error))),
        }
    }

    /// Why pod-worker-pool would not use the file, though this command does.
    pub(super) fn warnings(&self) -> Vec<String> {
        let path = self.path.display();
        let Some(content) = &self.content else {
            return Vec::new();
        };
        let mut warnings = Vec::new();
        if content.owner != 0 {
            warnings.push(format!(
                "the node does not use {path}: it must belong to root"
            ));
        }
        if content.mode & WRITABLE_BY_OTHERS != 0 {
            warnings.push(format!(
                "the node does not use {path}: others than root can write it"
            ));
        }
        warnings
    }

    /// Where it is, for people.
    pub(super) fn description(&self) -> String {
        let path = self.path.display();
        match self.content {
            Some(_) => path.to_string(),
            None => format!("{path} (there is no such file: every source is baseline)"),
        }
    }
}

fn content(path: &Path) -> io::Result<Content> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = String::new();
    let limit = MAX_POLICY_BYTES as u64;
    file.take(limit + 1).read_to_string(&mut text)?;
    Ok(Content {
        text,
        owner: metadata.uid(),
        mode: metadata.mode(),
    })
}

fn unusable(path: &Path, source: io::Error) -> Failure {
    let action = format!("use the node policy {}", path.display());
    match source.kind() {
        io::ErrorKind::PermissionDenied => Failure::NotPermitted {
            source: format!("cannot {action}: {source}").into(),
        },
        _ => Failure::Local { action, source },
    }
}
