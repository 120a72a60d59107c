//! Files that need each other in a circle cannot be read one after the other. The
//! rule is at the head of `tidy::modules`.

use std::path::Path;

use tidy::modules::Needs;
use tidy::{packages, root};

/// Packages that still have circles, and how many of their files are in one. A number
/// may only become smaller; no package may be added.
const KNOWN: &[(&str, usize)] = &[
    ("bulkhead-cli", 3),
    ("confine", 4),
    ("e2e", 2),
    ("node-policy", 4),
    ("simulated-runtime", 3),
    ("simulation", 2),
    ("state-file", 2),
    ("supervisor", 4),
    ("test-images", 3),
    ("test-support", 6),
];

#[test]
fn no_files_of_a_crate_need_each_other_in_a_circle() {
    let mut faults = Vec::new();
    let mut crates = 0;
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let known = KNOWN.iter().find(|(known, _)| *known == name);
        let allowed = known.map_or(0, |(_, files)| *files);
        let mut lines = Vec::new();
        let mut files = 0;
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if !["lib", "bin"].contains(&kind) {
                continue;
            }
            crates += 1;
            let file = Path::new(target["src_path"].as_str().unwrap());
            let needs = Needs::of_crate(file.strip_prefix(root()).unwrap());
            for circle in needs.circles() {
                files += circle.len();
                lines.extend(needs.among(&circle));
            }
        }
        if files > allowed {
            let lines = lines.join("\n  ");
            faults.push(format!(
                "{name}: {files} files are in circles, {allowed} are allowed:\n  {lines}"
            ));
        } else if files < allowed {
            faults.push(format!(
                "{name}: {files} files are in circles, and no more are allowed from now on: \
                 lower its number in this list"
            ));
        }
    }
    assert!(crates > 20, "only {crates} crates were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
