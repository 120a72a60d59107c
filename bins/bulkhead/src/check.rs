//! `check`: validates manifests as config-sourcer would, without a node.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use node_config::{NODE_CONFIG_FILE, NodeConfig};
use pod::{Pod, PodExt as _};
use pod_validation::{MAX_MANIFEST_BYTES, Origin, static_pods};

use crate::arguments::CheckOptions;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::Tone;
use crate::words::plain;

/// Stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Ends the names of static pods where no node tells its own.
const ANY_NODE: &str = "node";

/// Checks all files; the exit code tells whether all are accepted.
pub(crate) fn check(
    run_dir: &Path,
    options: &CheckOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let config = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE));
    let node_name = config.map_or_else(|_| ANY_NODE.to_owned(), |config| config.node_name);
    let mut accepted = true;
    let mut seen = BTreeMap::new();
    for file in expand(&options.files)? {
        let verdict = match read(&file) {
            Ok(bytes) => verdict(&bytes, &file, &node_name, &mut seen),
            Err(problem) => Err(vec![problem]),
        };
        accepted &= verdict.is_ok();
        output.text(&rendered(&file, &verdict, output.colours))?;
    }
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Files of the command line, directories replaced by what the node would read
/// in them.
fn expand(files: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut expanded = Vec::new();
    for path in files {
        if !path.is_dir() {
            expanded.push(path.clone());
            continue;
        }
        let failure = |source| Failure::Local {
            action: format!("read the directory {}", path.display()),
            source,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden && entry.path().is_file() {
                found.push(entry.path());
            }
        }
        found.sort();
        expanded.extend(found);
    }
    Ok(expanded)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    if path.as_os_str() == STANDARD_INPUT {
        return read_bounded(io::stdin().lock());
    }
    // A pipe or a device would be waited for for ever.
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("this is not a regular file; the node never reads it".to_owned());
    }
    read_bounded(File::open(path).map_err(|error| error.to_string())?)
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

/// The names of a manifest's pods, or everything that is wrong with it. `seen`
/// are the pods of the files before, by namespace and name: two of one name are
/// one too many.
fn verdict(
    bytes: &[u8],
    path: &Path,
    node_name: &str,
    seen: &mut BTreeMap<String, PathBuf>,
) -> Result<Vec<String>, Vec<String>> {
    let origin = path.to_string_lossy();
    let pods = static_pods(bytes, Origin::File(&origin), node_name)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let full_name = |pod: &Pod| format!("{}/{}", pod.namespace(), pod.name());
    let names: Vec<String> = pods.iter().map(full_name).collect();
    let mut problems = Vec::new();
    for name in &names {
        if let Some(other) = seen.insert(name.clone(), path.to_owned()) {
            problems.push(format!("pod {name} is in {} too", other.display()));
        }
    }
    if problems.is_empty() {
        Ok(names)
    } else {
        Err(problems)
    }
}

fn rendered(path: &Path, verdict: &Result<Vec<String>, Vec<String>>, colours: bool) -> String {
    let path = plain(&path.display().to_string());
    match verdict {
        Ok(names) => {
            let word = Tone::Good.paint("accepted", colours);
            format!("{path}: {word}: {}\n", plain(&names.join(", ")))
        }
        Err(problems) => {
            let word = Tone::Bad.paint("refused", colours);
            let line = |problem: &String| format!("{path}: {word}: {}\n", plain(problem));
            problems.iter().map(line).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: localhost/web:1}]}
";

    fn check_text(
        text: &str,
        seen: &mut BTreeMap<String, PathBuf>,
    ) -> Result<Vec<String>, Vec<String>> {
        verdict(text.as_bytes(), Path::new("/m/a.yaml"), "n1", seen)
    }

    #[test]
    fn a_good_manifest_is_accepted_with_the_names_of_its_pods() {
        let verdict = check_text(GOOD, &mut BTreeMap::new());
        assert_eq!(verdict, Ok(vec!["default/web-n1".to_owned()]));
        assert_eq!(
            rendered(Path::new("a.yaml"), &verdict, false),
            "a.yaml: accepted: default/web-n1\n"
        );
    }

    #[test]
    fn a_bad_manifest_is_refused_with_the_field_of_each_error() {
        let bad = GOOD.replace(
            "image: localhost/web:1",
            "image: localhost/web:1, ports: [{containerPort: 99999}]",
        );
        let problems = check_text(&bad, &mut BTreeMap::new()).unwrap_err();
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
        let mut seen = BTreeMap::new();
        check_text(GOOD, &mut seen).unwrap();
        let problems = check_text(GOOD, &mut seen).unwrap_err();
        assert_eq!(problems, ["pod default/web-n1 is in /m/a.yaml too"]);
    }

    #[test]
    fn what_the_node_never_reads_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).is_err());
        assert!(read(&directory.path().join("absent")).is_err());
        assert!(read(Path::new("/dev/zero")).is_err());
        let large = vec![b'#'; MAX_MANIFEST_BYTES + 1];
        assert!(read_bounded(large.as_slice()).is_err());
    }

    #[test]
    fn a_directory_stands_for_what_the_node_reads_in_it() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", ".hidden"] {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        fs::create_dir(directory.path().join("sub")).unwrap();
        let expanded = expand(&[directory.path().to_owned()]).unwrap();
        let names: Vec<_> = expanded
            .iter()
            .map(|path| path.file_name().unwrap())
            .collect();
        assert_eq!(names, ["a.json", "b.yaml"]);
    }
}
