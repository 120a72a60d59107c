//! Generates Rust from `proto/bulkhead/v1` with protox, so that no system
//! `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files: Vec<_> = [
        "types",
        "supervisor",
        "config_sourcer",
        "pleg",
        "prober",
        "status_syncer",
        "sync_loop",
        "pod_worker_pool",
    ]
    .iter()
    .map(|name| root.join(format!("bulkhead/v1/{name}.proto")))
    .collect();
    let descriptors = protox::compile(files, [&root])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
