//! Files that need each other in a circle cannot be read one after the other. The
//! rule is at the head of `tidy::modules`.

use std::path::Path;

use tidy::modules::Needs;
use tidy::{packages, root};

#[test]
fn no_files_of_a_crate_need_each_other_in_a_circle() {
    let mut faults = Vec::new();
    let mut crates = 0;
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let mut lines = Vec::new();
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if !["lib", "bin"].contains(&kind) {
                continue;
            }
            crates += 1;
            let file = Path::new(target["src_path"].as_str().unwrap());
            let needs = Needs::of_crate(file.strip_prefix(root()).unwrap());
            for circle in needs.circles() {
                lines.extend(needs.among(&circle));
            }
        }
        if !lines.is_empty() {
            faults.push(format!("{name}:\n  {}", lines.join("\n  ")));
        }
    }
    assert!(crates > 20, "only {crates} crates were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
