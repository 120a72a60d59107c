//! A program that gives credentials of registries, as a node's owner installs it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;
use test_support::BulkheadOptions;

/// Installs a script of the shell below `directory`, for these images; answers how
/// Bulkhead is told of it.
///
/// # Errors
/// When a file cannot be written.
pub fn install(directory: &Path, script: &str, images: &[String]) -> Result<BulkheadOptions> {
    let programs = directory.join("credential-programs");
    fs::create_dir(&programs).context("the directory of programs")?;
    let program = programs.join("program");
    fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
    for path in [&programs, &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    let config = directory.join("credential-providers.json");
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "program",
            "matchImages": images,
            "defaultCacheDuration": "1h",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "env": [{ "name": "USER_OF_REGISTRY", "value": "joe" }],
        }],
    });
    fs::write(&config, text.to_string())?;
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
    let flags = [
        format!("--image-credential-provider-config={}", config.display()),
        format!("--image-credential-provider-bin-dir={}", programs.display()),
    ];
    Ok(BulkheadOptions {
        flags: flags.to_vec(),
        ..BulkheadOptions::default()
    })
}
