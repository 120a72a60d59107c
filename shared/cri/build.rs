//! Generates Rust from `proto/` with protox, so that no system `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files = [
        "runtime/v1/runtime",
        "containerd/events",
        "containerd/envelope",
        "containerd/tasks",
        "containerd/task_service",
        "containerd/process_details",
    ]
    .map(|name| root.join(format!("{name}.proto")));
    let descriptors = protox::compile(files, [&root])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        // A made runtime answers Unimplemented to what it does not model, as real ones do.
        .generate_default_stubs(true)
        // One module tree, because the packages refer to each other.
        .include_file("cri.rs")
        // Maps in order, so that equal requests are equal bytes.
        .btree_map(".")
        // Their Debug would print secrets; ours is in `secrets.rs`.
        .skip_debug([
            "runtime.v1.AuthConfig",
            "runtime.v1.ExecResponse",
            "runtime.v1.AttachResponse",
            "runtime.v1.PortForwardResponse",
        ])
        .compile_fds(descriptors)?;
    Ok(())
}
