//! Crates that decide over plain values stay pure.

use std::path::Path;

use tidy::{is_test, packages, read, rust_files};

/// Crates that decide over plain values. What they do not depend on they cannot use.
const PURE: [&str; 14] = [
    "cri-requests",
    "documents",
    "eviction",
    "local-objects",
    "node-layout",
    "node-policy",
    "pod",
    "pod-lifecycle",
    "pod-manifest",
    "pod-validation",
    "pod-volumes",
    "pull-credentials",
    "turns",
    "value-errors",
];

/// What only crates around them need: async code, the kernel, mounts.
const IMPURE: [&str; 6] = [
    "async-trait",
    "futures-util",
    "nix",
    "node-host",
    "tokio",
    "tokio-util",
];

/// Where the operating system is in the standard library, and what reads a clock.
const SYSTEM: [&str; 7] = [
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "WallClock",
    "Instant::now",
    "SystemTime",
];

#[test]
fn crates_that_decide_know_neither_async_code_nor_the_system_nor_a_clock() {
    let packages = packages();
    for name in PURE {
        let package = packages.iter().find(|package| package["name"] == name);
        let dependencies = package.unwrap()["dependencies"].as_array().unwrap();
        for dependency in dependencies.iter().filter(|it| it["kind"].is_null()) {
            let dependency = dependency["name"].as_str().unwrap();
            assert!(!IMPURE.contains(&dependency), "{name} uses {dependency}");
        }
        let directory = Path::new("shared").join(name);
        for file in rust_files() {
            if !file.starts_with(&directory) || is_test(&file) {
                continue;
            }
            let text = read(&file);
            let tests = text.find("#[cfg(test)]\nmod tests {");
            let text = &text[..tests.unwrap_or(text.len())];
            for system in SYSTEM {
                let file = file.display();
                assert!(!text.contains(system), "{file} uses {system}");
            }
        }
    }
}
