//! The files that say which ids pods with user namespaces of their own have. Blocking.

use std::collections::BTreeMap;
use std::io::Read as _;

use node_layout::paths::USER_NAMESPACE;
use node_layout::{IdRange, IdRangeChoice, choose_id_range, id_range_file};
use pod::identity::check_uid;

use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};
use crate::pod_files;
use crate::shared::Shared;

/// Nobody but us needs to know.
const FILE_MODE: u32 = 0o600;

/// Longest file that is read; one of ours has a quarter of that.
const MAX_FILE_BYTES: u64 = 512;

/// The range of a pod, written down in its directory. Not for two pods at once.
pub(super) fn of_pod(node: &Shared, pod_uid: &str, avoided: &[u32]) -> Result<IdRange, NodeError> {
    let own = pod_files::make(node, pod_uid)?;
    let mut written = BTreeMap::new();
    if let Some(pods) = pod_files::all(node)? {
        for uid in pods.names()? {
            if check_uid(&uid).is_err() {
                continue;
            }
            let Some(directory) = pods.child(&uid)? else {
                continue;
            };
            if let Some(text) = read(&directory)? {
                written.insert(uid, text);
            }
        }
    }
    match choose_id_range(&node.config.user_namespaces, pod_uid, &written, avoided)? {
        IdRangeChoice::Written(range) => Ok(range),
        IdRangeChoice::New(range) => {
            own.replace_file(USER_NAMESPACE, id_range_file(range).as_bytes(), FILE_MODE)?;
            Ok(range)
        }
    }
}

fn read(directory: &Directory) -> Result<Option<String>, NodeError> {
    let Some(file) = directory.open_file(USER_NAMESPACE)? else {
        return Ok(None);
    };
    let (mut text, path) = (Vec::new(), directory.path().join(USER_NAMESPACE));
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut text)
        .context("read", &path)?;
    // What is no text is no JSON either, and is refused as that.
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}
