//! The last good version of each manifest, kept over our own restarts: a file
//! that was broken while its pods ran must not cost them their life only because
//! config-sourcer was restarted after that.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ipc::limits::MAX_PODS;
use manifest_files::MAX_FILES;
use pod::runtime_class::RuntimeClasses;
use pod::{PodDocument, PodSource};
use pod_manifest::ManifestNode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use state_file::{StateFile, StateFileError};
use topology::{Process, row};

use crate::files::Remembered;
use crate::snapshot::{LastPublished, Uids};

/// Format of the file. Another one is not read.
const VERSION: u32 = 1;

/// Whether the manifest path was last seen as a directory or as a file: when it
/// is gone, only a file is known to have been removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PathKind {
    /// A directory of manifests.
    Directory,
    /// One manifest.
    File,
}

/// Whether the file holds everything that was good in earlier runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Completeness {
    /// It does, or there was no earlier run.
    #[default]
    Complete,
    /// An earlier file was damaged or is of no use here, and the source has not been read
    /// well since: a manifest that is bad may have pods running that nobody remembers.
    Lost,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastGood {
    /// A loss outlives the run that has found it.
    pub completeness: Completeness,
    /// What the manifest path was.
    pub kind: Option<PathKind>,
    /// Which of their pods were published: of two that cannot both run, the one that was
    /// published must not be pushed out by our restart. Empty in a file of an earlier version.
    pub last_published: LastPublished,
    /// The manifests.
    pub manifests: Vec<Remembered>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    /// Pods carry the node's name: as another node, all of this is void.
    node_name: String,
    static_pod_path: String,
    #[serde(default, rename = "recall")]
    completeness: Completeness,
    kind: Option<PathKind>,
    #[serde(default, rename = "running")]
    last_published: Uids,
    /// The file of each of them, by full name. Missing in a file of an earlier version.
    #[serde(default, rename = "running_from")]
    published_from: BTreeMap<String, String>,
    manifests: Vec<SavedManifest>,
}

#[derive(Serialize, Deserialize)]
struct SavedManifest {
    path: String,
    pods: Vec<Box<RawValue>>,
}

/// Where the last good manifests are kept; each call may block. [`LastGoodFile`], but for
/// tests of what hangs.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Where that is, for people.
    fn place(&self) -> String;
    /// What the file held when config-sourcer started.
    fn load(&self) -> Result<Option<LastGood>, StateFileError>;
    /// Keeps this instead.
    fn save(&self, last_good: &LastGood) -> Result<(), StateFileError>;
}

/// The state file with the last good manifests.
#[derive(Debug)]
pub(crate) struct LastGoodFile {
    file: StateFile,
    node: ManifestNode,
    static_pod_path: String,
}

impl LastGoodFile {
    /// The file in our state directory, for this node and manifest path.
    #[must_use]
    pub(crate) fn new(
        state_directory: &Path,
        node: impl Into<ManifestNode>,
        static_pod_path: &Path,
    ) -> Self {
        let path = state_directory.join("last-good-manifests.json");
        let limit = row(Process::ConfigSourcer).state_file_max_bytes();
        Self {
            file: StateFile::new(path, VERSION).at_most(limit),
            node: node.into(),
            static_pod_path: static_pod_path.display().to_string(),
        }
    }

    fn damaged(&self, reason: &str) -> StateFileError {
        StateFileError::Damaged {
            path: self.file.path().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

impl Store for LastGoodFile {
    fn place(&self) -> String {
        self.file.path().display().to_string()
    }

    /// `None` if there is nothing, or it is of another node. A file that is damaged or cannot
    /// be read is an error: then what was good is lost. So it is in one of another format,
    /// and in one for another path: that may be the same one, in other words.
    ///
    /// Pods are judged again, as their manifests were: who could write the file, and an
    /// older version of this process that knew fewer rules, get no pod past them. A
    /// manifest of which a pod is refused counts as not remembered.
    fn load(&self) -> Result<Option<LastGood>, StateFileError> {
        let Some(saved) = self.file.load::<Saved>()? else {
            let is_there = self.file.path().symlink_metadata().is_ok();
            return Ok(is_there.then(|| lost("it has another format")));
        };
        if saved.node_name != self.node.name {
            return Ok(None);
        }
        if saved.static_pod_path != self.static_pod_path {
            let had_pods = !saved.manifests.is_empty() || saved.completeness == Completeness::Lost;
            return Ok(had_pods.then(|| lost("they are those of another manifest path")));
        }
        let mut last_good = LastGood {
            completeness: saved.completeness,
            kind: saved.kind,
            last_published: LastPublished {
                uids: saved.last_published.into_iter().take(MAX_PODS).collect(),
                subjects: saved.published_from.into_iter().take(MAX_PODS).collect(),
            },
            manifests: Vec::new(),
        };
        let mut pods = 0;
        for manifest in saved.manifests {
            pods += manifest.pods.len();
            if pods > MAX_PODS || last_good.manifests.len() == MAX_FILES {
                tracing::warn!(
                    "more than {MAX_PODS} pods or {MAX_FILES} manifests are kept: the rest is left out"
                );
                last_good.completeness = Completeness::Lost;
                break;
            }
            match remembered(manifest, &self.node.runtime_classes) {
                Ok(remembered) => last_good.manifests.push(remembered),
                Err(Unusable {
                    path,
                    refused: Refused { reason, of_class },
                }) => {
                    tracing::warn!(path, reason, "what is kept of a manifest is left out");
                    // Which pods there were is known where only their class has gone.
                    if !of_class {
                        last_good.completeness = Completeness::Lost;
                    }
                }
            }
        }
        Ok(Some(last_good))
    }

    fn save(&self, last_good: &LastGood) -> Result<(), StateFileError> {
        let damaged = |error: serde_json::Error| self.damaged(&error.to_string());
        let manifests = last_good
            .manifests
            .iter()
            .map(|manifest| {
                let pods = manifest.pods.iter().map(raw).collect::<Result<_, _>>()?;
                Ok(SavedManifest {
                    path: manifest.path.clone(),
                    pods,
                })
            })
            .collect::<Result<_, _>>()
            .map_err(damaged)?;
        self.file.save(&Saved {
            node_name: self.node.name.clone(),
            static_pod_path: self.static_pod_path.clone(),
            completeness: last_good.completeness,
            kind: last_good.kind,
            last_published: last_good.last_published.uids.clone(),
            published_from: last_good.last_published.subjects.clone(),
            manifests,
        })
    }
}

/// There was something, and nobody knows what.
fn lost(reason: &str) -> LastGood {
    tracing::warn!(reason, "last good manifests are not used");
    LastGood {
        completeness: Completeness::Lost,
        kind: None,
        last_published: LastPublished::default(),
        manifests: Vec::new(),
    }
}

/// What is kept of a manifest that cannot be used.
struct Unusable {
    path: String,
    refused: Refused,
}

/// Why a pod that was good is not any more.
#[derive(Debug)]
struct Refused {
    reason: String,
    /// Nothing but its runtime class: the owner of the node has removed it, and with it the
    /// pods that name it.
    of_class: bool,
}

fn remembered(manifest: SavedManifest, classes: &RuntimeClasses) -> Result<Remembered, Unusable> {
    let pods = manifest.pods.into_iter();
    let pods = pods.map(|json| judged(&json, classes));
    match pods.collect() {
        Ok(pods) => Ok(Remembered {
            path: manifest.path,
            pods,
        }),
        Err(refused) => Err(Unusable {
            path: manifest.path,
            refused,
        }),
    }
}

fn judged(json: &RawValue, classes: &RuntimeClasses) -> Result<PodDocument, Refused> {
    let source = PodSource::File;
    let json = json.get().as_bytes().to_vec();
    let (document, pod) = PodDocument::from_json(json, source).map_err(|error| Refused {
        reason: telemetry::chain(&error),
        of_class: false,
    })?;
    let errors = pod_validation::judge(&pod, source, classes);
    match errors.first() {
        Some(error) => Err(Refused {
            reason: format!("pod {}: {error}", document.identity()),
            of_class: errors.iter().all(|it| it.field == "spec.runtimeClassName"),
        }),
        None => Ok(document),
    }
}

fn raw(pod: &PodDocument) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::from_slice(pod.json())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn last_good() -> LastGood {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": "1", "name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let pod = judged(
            &RawValue::from_string(pod.to_string()).unwrap(),
            &RuntimeClasses::new(),
        )
        .unwrap();
        LastGood {
            completeness: Completeness::Lost,
            kind: Some(PathKind::Directory),
            last_published: LastPublished {
                uids: ["1".to_owned()].into(),
                subjects: [("a_default".to_owned(), "/m/a".to_owned())].into(),
            },
            manifests: vec![Remembered {
                path: "/m/a".to_owned(),
                pods: vec![pod],
            }],
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let store = LastGoodFile::new(directory.path(), "node", Path::new("/m"));
        assert_eq!(store.load().unwrap(), None);
        store.save(&last_good()).unwrap();
        assert_eq!(store.load().unwrap(), Some(last_good()));
        // The names of fields that every version reads.
        let file = std::fs::read_to_string(store.place()).unwrap();
        for text in [
            r#""recall":"Lost""#,
            r#""running":["1"]"#,
            r#""running_from":{"a_default":"/m/a"}"#,
        ] {
            assert!(file.contains(text), "{text} is not in {file}");
        }
    }

    #[test]
    fn what_the_disk_refuses_to_replace_is_lost_and_does_not_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let store = LastGoodFile::new(directory.path(), "node", Path::new("/m"));
        store.save(&last_good()).unwrap();
        let in_the_way = directory.path().join("last-good-manifests.json.new/x");
        std::fs::create_dir_all(in_the_way).unwrap();
        store.save(&last_good()).unwrap_err();
        let loaded = store.load();
        assert!(matches!(loaded, Err(StateFileError::Damaged { .. })));
    }

    #[test]
    fn what_belongs_to_another_node_is_void_and_to_another_path_or_format_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let store =
            |node: &str, manifests: &str| LastGoodFile::new(path, node, Path::new(manifests));
        let completeness = |store: &LastGoodFile| store.load().unwrap().map(|it| it.completeness);
        store("node", "/m").save(&last_good()).unwrap();
        assert_eq!(store("other", "/m").load().unwrap(), None);
        assert_eq!(store("node", "/m/").load().unwrap(), Some(lost("")));
        let nothing = LastGood {
            completeness: Completeness::Complete,
            ..lost("")
        };
        store("node", "/m").save(&nothing).unwrap();
        assert_eq!(completeness(&store("node", "/n")), None, "no pods are lost");
        store("node", "/m").save(&lost("")).unwrap();
        assert_eq!(completeness(&store("node", "/n")), Some(Completeness::Lost));
        let store = store("node", "/m");
        let later = StateFile::new(store.file.path(), VERSION + 1);
        later.save(&"of a later version").unwrap();
        assert_eq!(store.load().unwrap(), Some(lost("")));
        later.remove().unwrap();
        assert_eq!(store.load().unwrap(), None);
    }

    #[test]
    fn more_pods_or_manifests_than_a_source_may_have_are_left_out() {
        let manifest = |pods: usize| SavedManifest {
            path: "/m/a".to_owned(),
            pods: vec![RawValue::from_string("0".to_owned()).unwrap(); pods],
        };
        let empty = || (0..MAX_FILES).map(|_| manifest(0));
        let cases = [
            (empty().collect(), MAX_FILES, Completeness::Complete),
            (
                empty().chain([manifest(0)]).collect(),
                MAX_FILES,
                Completeness::Lost,
            ),
            (
                vec![manifest(0), manifest(MAX_PODS + 1)],
                1,
                Completeness::Lost,
            ),
        ];
        for (manifests, left, completeness) in cases {
            let directory = tempfile::tempdir().unwrap();
            let store = LastGoodFile::new(directory.path(), "node", Path::new("/m"));
            let content = Saved {
                node_name: "node".to_owned(),
                static_pod_path: "/m".to_owned(),
                completeness: Completeness::Complete,
                kind: Some(PathKind::Directory),
                last_published: Uids::new(),
                published_from: BTreeMap::new(),
                manifests,
            };
            store.file.save(&content).unwrap();
            let loaded = store.load().unwrap().unwrap();
            assert_eq!(
                (loaded.manifests.len(), loaded.completeness),
                (left, completeness)
            );
        }
    }

    #[test]
    fn what_was_kept_is_judged_again() {
        let class = r#""runtimeClassName":"gone","containers":"#;
        // A pod of it may be running: it must not look removed, unless it was.
        for (refused, with, completeness) in [
            // No API server accepts it.
            (r#""image":"i:1""#, r#""image":"""#, Completeness::Lost),
            (r#""uid":"1""#, r#""uid":"../1""#, Completeness::Lost),
            // This version does not do it.
            (
                r#""containers":"#,
                r#""readinessGates":[{"conditionType":"a/b"}],"containers":"#,
                Completeness::Lost,
            ),
            // No manifest may have it.
            (
                r#""name":"a""#,
                r#""name":"a","finalizers":["x"]"#,
                Completeness::Lost,
            ),
            // The owner of the node has removed its class.
            (r#""containers":"#, class, Completeness::Complete),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = LastGoodFile::new(directory.path(), "node", Path::new("/m"));
            // With its checksum, as only somebody hostile or an older version writes it.
            let saved = |path: &str, pod: String| SavedManifest {
                path: path.to_owned(),
                pods: vec![RawValue::from_string(pod).unwrap()],
            };
            let good = &last_good().manifests[0].pods[0];
            let good = String::from_utf8(good.json().to_vec()).unwrap();
            let bad = good.replace(refused, with);
            assert_ne!(bad, good);
            let content = Saved {
                node_name: "node".to_owned(),
                static_pod_path: "/m".to_owned(),
                completeness: Completeness::Complete,
                kind: Some(PathKind::Directory),
                last_published: Uids::new(),
                published_from: BTreeMap::new(),
                manifests: vec![saved("/m/a", good), saved("/m/b", bad)],
            };
            store.file.save(&content).unwrap();
            let loaded = store.load().unwrap().unwrap();
            assert_eq!(loaded.completeness, completeness, "{with}");
            assert_eq!(loaded.manifests, last_good().manifests, "{with}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let store = LastGoodFile::new(directory.path(), "node", Path::new("/m"));
        store.save(&last_good()).unwrap();
        let file = directory.path().join("last-good-manifests.json");
        let text = std::fs::read_to_string(&file)
            .unwrap()
            .replace("default", "kefault");
        std::fs::write(&file, text).unwrap();
        assert!(matches!(store.load(), Err(StateFileError::Damaged { .. })));
    }
}
