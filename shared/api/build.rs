//! Generates Rust from `proto/bulkhead/v1` with protox, so that no system
//! `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files: Vec<_> = [
        "types",
        "supervisor",
        "config_sourcer",
        "credential_provider",
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
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("services.rs"), services(&descriptors))?;
    tonic_prost_build::configure()
        .build_transport(false)
        // Their Debug would print secrets; ours is in `secrets.rs`.
        .skip_debug(["bulkhead.v1.ObjectValue", "bulkhead.v1.PullCredential"])
        .compile_fds(descriptors)?;
    Ok(())
}

/// The names of all services and their methods, as a Rust constant: the tests
/// of who may call what go over them.
fn services(descriptors: &prost_types::FileDescriptorSet) -> String {
    let mut text = String::from("pub const SERVICES: &[(&str, &[&str])] = &[\n");
    for file in &descriptors.file {
        for service in &file.service {
            let methods: Vec<&str> = service.method.iter().map(|method| method.name()).collect();
            text += &format!(
                "({:?}, &{methods:?}),\n",
                format!("{}.{}", file.package(), service.name())
            );
        }
    }
    text + "];\n"
}
