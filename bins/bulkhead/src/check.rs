//! `check`: validates manifests as config-sourcer would, and by the node policy as
//! pod-worker-pool would, without asking either.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clock::UnixNanos;
use ipc::limits::{MAX_PODS, MAX_SOURCE_BYTES};
use manifest_files::{
    Expectation, Found, ListError, Location, MAX_FILES, Place, chosen, names, open_place,
};
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use pod::{Pod, PodDocument, PodExt as _, PodSource};
use pod_manifest::{MAX_MANIFEST_BYTES, ManifestNode, Origin, static_pods};

use crate::arguments::CheckOptions;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, beside_verdict};
use crate::table::Tone;

/// Stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Ends the names of static pods where no node tells its own.
const ANY_NODE: &str = "node";

/// Checks all files; the exit code tells whether all are accepted. `denials` tells why
/// the node policy does not let a pod run.
pub(crate) fn check(
    run_dir: &Path,
    options: &CheckOptions,
    denials: Denials,
    output: Output,
) -> Result<ExitCode, Failure> {
    let mut judge = Judge {
        node: node(run_dir),
        denials,
        seen: Seen::default(),
    };
    let accepted = judged(&options.files, &mut judge, |file, verdict| {
        beside_verdict(output.text(&rendered(file, verdict, output.colours)))
    })?;
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Why the node policy does not let a pod run; empty where it does, or is not known here.
type Denials = Box<dyn Fn(&Pod) -> Vec<String>>;

/// What manifests are held against.
struct Judge {
    node: ManifestNode,
    denials: Denials,
    seen: Seen,
}

/// The pods of the files before: a source has one of a name and one of a UID, and not
/// too many.
#[derive(Default)]
struct Seen {
    /// Where each pod is, by namespace and name.
    names: BTreeMap<String, PathBuf>,
    uids: BTreeSet<String>,
    bytes: usize,
}

/// The node that runs here, or any.
pub(crate) fn node(run_dir: &Path) -> ManifestNode {
    let config = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE));
    config.map_or_else(|_| ANY_NODE.into(), |config| configured(&config))
}

/// What a node that is configured like this gives to its pods.
pub(crate) fn configured(config: &NodeConfig) -> ManifestNode {
    ManifestNode {
        name: config.node_name.clone(),
        runtime_classes: config.runtime_classes.clone(),
    }
}

/// Each manifest that the paths stand for, with its pods or what is wrong with it.
pub(crate) fn pods(paths: &[PathBuf], node: &ManifestNode) -> Vec<PodsOfFile> {
    let found = paths.iter().flat_map(|path| manifests(path));
    let decoded = found.map(|(file, content)| {
        let pods = match content {
            Ok(bytes) => decoded(&bytes, &file, node),
            Err(problem) => Err(vec![problem]),
        };
        (file, pods)
    });
    decoded.collect()
}

fn decoded(bytes: &[u8], path: &Path, node: &ManifestNode) -> Result<Vec<Pod>, Vec<String>> {
    let origin = path.to_string_lossy();
    static_pods(bytes, Origin::File(&origin), node)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// Tells of each file what it is worth; returns whether all are accepted.
fn judged(
    paths: &[PathBuf],
    judge: &mut Judge,
    mut tell: impl FnMut(&Path, &Verdict) -> Result<(), Failure>,
) -> Result<bool, Failure> {
    let mut accepted = true;
    for (file, content) in paths.iter().flat_map(|path| manifests(path)) {
        let verdict = match content {
            Ok(bytes) => verdict(&bytes, &file, judge),
            Err(problem) => Err(vec![problem]),
        };
        accepted &= verdict.is_ok();
        tell(&file, &verdict)?;
    }
    Ok(accepted)
}

/// A manifest with its pods, or everything that is wrong with it.
pub(crate) type PodsOfFile = (PathBuf, Result<Vec<Pod>, Vec<String>>);

/// What a manifest comes to, or everything that is wrong with it.
type Verdict = Result<Accepted, Vec<String>>;

/// A manifest that is accepted.
#[derive(Debug, PartialEq, Eq)]
struct Accepted {
    /// The names of its pods.
    pods: Vec<String>,
    /// What is most likely a mistake all the same.
    warnings: Vec<String>,
}

/// What is to be judged, or why it cannot be read.
type Content = Result<Vec<u8>, String>;

/// The manifests that a path of the command line stands for: of a directory, what
/// the node would read in it. What cannot be read is refused, and the other paths
/// are checked all the same.
fn manifests(path: &Path) -> Vec<(PathBuf, Content)> {
    if path.as_os_str() == STANDARD_INPUT {
        return vec![(path.to_owned(), read_bounded(io::stdin().lock()))];
    }
    let content = match open_place(path) {
        Ok(Place::Directory(handle)) => return in_directory(path, &handle, names(&handle)),
        Ok(Place::File) => found(Location::Path(path)).unwrap_or_else(gone),
        Ok(Place::Absent) => gone(),
        Err(ListError::WrongType(kind)) => Err(format!("is {kind}, and the node never reads it")),
        Err(error) => Err(error.to_string()),
    };
    vec![(path.to_owned(), content)]
}

fn in_directory(
    path: &Path,
    handle: &OwnedFd,
    names: Result<BTreeSet<OsString>, ListError>,
) -> Vec<(PathBuf, Content)> {
    let (names, left_out) = match names {
        Ok(names) => chosen(names, |_| false),
        Err(error) => return vec![(path.to_owned(), Err(error.to_string()))],
    };
    let mut manifests = Vec::new();
    for name in names {
        if let Some(content) = found(Location::Beneath(handle, &name)) {
            manifests.push((path.join(&name), content));
        }
    }
    if left_out > 0 {
        let problem = format!("{left_out} files are not read: at most {MAX_FILES} are");
        manifests.push((path.to_owned(), Err(problem)));
    }
    manifests
}

/// Reads as the node does; `None` for what it passes over without a word.
fn found(location: Location<'_>) -> Option<Content> {
    let expected = Expectation {
        fingerprint: None,
        // As it is now: nobody waits here for its writer.
        settled: true,
        now: UnixNanos(0),
    };
    match manifest_files::read(location, expected) {
        Found::Content { bytes, .. } => Some(Ok(bytes)),
        Found::Unreadable(reason) => Some(Err(reason.to_string())),
        Found::Unchanged | Found::Settling | Found::Directory | Found::Gone => None,
    }
}

fn gone() -> Content {
    Err("there is no such file".to_owned())
}

fn read_bounded(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = MAX_MANIFEST_BYTES as u64;
    source
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(format!("it is larger than {limit} bytes"));
    }
    Ok(bytes)
}

/// What a manifest comes to, or everything that is wrong with it.
fn verdict(bytes: &[u8], path: &Path, judge: &mut Judge) -> Verdict {
    let pods = decoded(bytes, path, &judge.node)?;
    let mut problems = Vec::new();
    for pod in &pods {
        problems.extend(judge.seen.add(pod, path));
        problems.extend((judge.denials)(pod));
    }
    let full_name = |pod: &Pod| format!("{}/{}", pod.namespace(), pod.name());
    if !problems.is_empty() {
        return Err(problems);
    }
    let of_pod = |pod: &Pod| {
        let warnings = pod_validation::warnings(pod).into_iter();
        let name = full_name(pod);
        warnings
            .map(|warning| format!("{name}: {warning}"))
            .collect::<Vec<_>>()
    };
    Ok(Accepted {
        pods: pods.iter().map(full_name).collect(),
        warnings: pods.iter().flat_map(of_pod).collect(),
    })
}

impl Seen {
    /// Adds a pod; why the node leaves it out.
    fn add(&mut self, pod: &Pod, path: &Path) -> Option<String> {
        let name = format!("{}/{}", pod.namespace(), pod.name());
        // As config-sourcer passes it on, with everything that the manifest left open.
        let length = match PodDocument::encode(pod, PodSource::File) {
            Ok(document) => document.json().len(),
            Err(error) => return Some(format!("pod {name}: {}", telemetry::chain(&error))),
        };
        if let Some(other) = self.names.get(&name) {
            return Some(format!("pod {name} is in {} too", other.display()));
        }
        if self.uids.contains(pod.uid()) {
            return Some(format!("another pod has the uid {}", pod.uid()));
        }
        if self.names.len() == MAX_PODS || self.bytes + length > MAX_SOURCE_BYTES {
            return Some(format!(
                "pod {name} is left out: a source has at most {MAX_PODS} pods and \
                 {MAX_SOURCE_BYTES} bytes"
            ));
        }
        self.bytes += length;
        self.uids.insert(pod.uid().to_owned());
        self.names.insert(name, path.to_owned());
        None
    }
}

fn rendered(path: &Path, verdict: &Verdict, colours: bool) -> String {
    let path = plain(&path.display().to_string());
    let line = |tone: Tone, word: &str, text: &str| {
        let word = tone.paint(word, colours);
        format!("{path}: {word}: {}\n", plain(text))
    };
    match verdict {
        Ok(Accepted { pods, warnings }) => {
            let warnings = warnings.iter().map(|it| line(Tone::Notable, "warning", it));
            let accepted = line(Tone::Good, "accepted", &pods.join(", "));
            std::iter::once(accepted).chain(warnings).collect()
        }
        Err(problems) => {
            let refused = problems.iter();
            refused.map(|it| line(Tone::Bad, "refused", it)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    const GOOD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: localhost/web:1}]}
";

    fn judge() -> Judge {
        Judge {
            node: "n1".into(),
            denials: Box::new(|_| Vec::new()),
            seen: Seen::default(),
        }
    }

    fn check_text(text: &str, judge: &mut Judge) -> Verdict {
        verdict(text.as_bytes(), Path::new("/m/a.yaml"), judge)
    }

    #[test]
    fn a_good_manifest_is_accepted_with_the_names_of_its_pods() {
        let verdict = check_text(GOOD, &mut judge());
        assert_eq!(
            rendered(Path::new("a.yaml"), &verdict, false),
            "a.yaml: accepted: default/web-n1\n"
        );
    }

    #[test]
    fn what_is_most_likely_a_mistake_is_warned_of_and_accepted() {
        let with = "image: localhost/web:1, resources: {limits: {memory: 256m}}";
        let text = GOOD.replace("image: localhost/web:1", with);
        let verdict = check_text(&text, &mut judge());
        assert_eq!(
            rendered(Path::new("a.yaml"), &verdict, false),
            "a.yaml: accepted: default/web-n1\na.yaml: warning: default/web-n1: \
             spec.containers[0].resources.limits[memory]: Invalid value: \"256m\": it is a \
             fraction of a byte: m is a thousandth, M and Mi are a million\n"
        );
    }

    #[test]
    fn a_bad_manifest_is_refused_with_the_field_of_each_error() {
        let bad = GOOD.replace(
            "image: localhost/web:1",
            "image: localhost/web:1, ports: [{containerPort: 99999}]",
        );
        let problems = check_text(&bad, &mut judge()).unwrap_err();
        assert!(
            problems
                .iter()
                .any(|problem| problem.contains("spec.containers[0].ports[0].containerPort")),
            "{problems:?}"
        );
        let shown = rendered(Path::new("a.yaml"), &Err(problems.clone()), false);
        assert_eq!(shown.lines().count(), problems.len());
    }

    #[test]
    fn two_pods_of_one_name_are_one_too_many() {
        let mut judge = judge();
        check_text(GOOD, &mut judge).unwrap();
        let problems = check_text(GOOD, &mut judge).unwrap_err();
        assert_eq!(problems, ["pod default/web-n1 is in /m/a.yaml too"]);
        let uid = |name: &str| GOOD.replace("{name: web}", &format!("{{name: {name}, uid: u1}}"));
        check_text(&uid("one"), &mut judge).unwrap();
        let problems = check_text(&uid("two"), &mut judge).unwrap_err();
        assert_eq!(problems, ["another pod has the uid u1"]);
    }

    #[test]
    fn a_pod_that_is_too_large_once_its_defaults_are_filled_in_is_refused() {
        // Each default is longer than what is written here of it.
        let ports: String = (1..=9_000)
            .map(|number| format!("{{containerPort: {number}}},"))
            .collect();
        let long = "x".repeat(750_000);
        let image = "image: localhost/web:1";
        let more = format!("{image}, args: [{long}], ports: [{ports}]");
        let large = GOOD.replace(image, &more);
        assert!(large.len() < pod::wire::MAX_POD_BYTES);
        let problems = check_text(&large, &mut judge()).unwrap_err();
        assert!(problems[0].contains("more than 1048576"), "{problems:?}");
    }

    #[test]
    fn a_source_has_only_so_many_pods() {
        let mut judge = judge();
        let pods = |from: usize, to: usize| -> String {
            let names = (from..to).map(|number| format!("name: p{number}"));
            let pods: Vec<String> = names.map(|name| GOOD.replace("name: web", &name)).collect();
            pods.join("---\n")
        };
        for start in (0..MAX_PODS).step_by(500) {
            check_text(&pods(start, start + 500), &mut judge).unwrap();
        }
        let problems = check_text(GOOD, &mut judge).unwrap_err();
        assert!(problems[0].contains("is left out"), "{problems:?}");
    }

    #[test]
    fn a_pod_that_the_policy_forbids_is_refused_with_the_rule() {
        let mut judge = judge();
        judge.denials = Box::new(|pod| match pod.host_network() {
            true => vec!["no network".to_owned()],
            false => Vec::new(),
        });
        check_text(GOOD, &mut judge).unwrap();
        let text = GOOD.replace("spec: {", "spec: {hostNetwork: true, ");
        let problems = check_text(&text.replace("web", "two"), &mut judge);
        assert_eq!(problems, Err(vec!["no network".to_owned()]));
    }

    /// Of each manifest its file's name, and its content or why there is none.
    fn found_at(path: &Path) -> Vec<(String, Result<String, String>)> {
        let text = |content: Content| content.map(|bytes| String::from_utf8(bytes).unwrap());
        let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
        manifests(path)
            .into_iter()
            .map(|(path, content)| (name(&path), text(content)))
            .collect()
    }

    fn is_refused(path: &Path, words: &str) {
        let found = found_at(path);
        let [(_, Err(problem))] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(problem.contains(words), "{problem}");
    }

    #[test]
    fn what_the_node_never_reads_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        is_refused(&directory.path().join("absent"), "no such file");
        is_refused(Path::new("/dev/zero"), "a character device");
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        is_refused(&fifo, "a FIFO");
        let large = vec![b'#'; MAX_MANIFEST_BYTES + 1];
        assert!(read_bounded(large.as_slice()).is_err());
        let file = directory.path().join("large");
        fs::write(&file, large).unwrap();
        is_refused(&file, "has more than");
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let handle = fs::File::open(path).unwrap().into();
        let found = in_directory(path, &handle, Err(ListError::TooManyNames));
        let problem = Err(ListError::TooManyNames.to_string());
        assert_eq!(found, [(path.to_owned(), problem)]);
    }

    #[test]
    fn what_cannot_be_read_keeps_nothing_else_from_being_checked() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("good"), GOOD).unwrap();
        // A part of its path is no directory.
        let within = at("good").join("x");
        let files = [at("absent"), within, PathBuf::from("/dev/zero"), at("good")];
        let mut told = Vec::new();
        let accepted = judged(&files, &mut judge(), |path, verdict| {
            told.push((path.to_owned(), verdict.is_ok()));
            Ok(())
        });
        assert!(!accepted.unwrap());
        let expected = [false, false, false, true];
        assert_eq!(told, files.into_iter().zip(expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_directory_stands_for_what_the_node_reads_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["b.yaml", "a.json", ".hidden"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("sub")).unwrap();
        symlink("sub", at("to-sub")).unwrap();
        symlink("a.json", at("within")).unwrap();
        symlink("/etc/hostname", at("leaves")).unwrap();
        symlink("nowhere", at("dangles")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRUSR).unwrap();
        let found = found_at(directory.path());
        let good = |text: &str| Ok(text.to_owned());
        let bad = |text: &str| Err(text.to_owned());
        let expected = [
            ("a.json", good("a.json")),
            ("b.yaml", good("b.yaml")),
            ("dangles", bad("is a link that leads nowhere")),
            ("fifo", bad("is a FIFO and is not read")),
            (
                "leaves",
                bad("is a link that leaves the directory, or begins with /"),
            ),
            ("within", good("a.json")),
        ];
        let expected = expected.map(|(name, content)| (name.to_owned(), content));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_link_that_is_named_itself_is_followed_as_the_node_follows_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let (link, elsewhere) = (directory.path().join("link"), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("a.yaml"), "x").unwrap();
        symlink(elsewhere.path(), &link).unwrap();
        assert_eq!(found_at(&link), [("a.yaml".to_owned(), Ok("x".to_owned()))]);
    }
}
