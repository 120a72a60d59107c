//! Generates Rust from `proto/bulkhead/v1` with protox, so that no system
//! `protoc` is needed.

use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::{Label, Type};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    let files: Vec<_> = [
        "types",
        "api_gateway",
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
    std::fs::write(out.join("parts.rs"), parts(&descriptors)?)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::Codec")
        // Their Debug would print secrets; ours is in `secrets.rs`.
        .skip_debug([
            "bulkhead.v1.ObjectValue",
            "bulkhead.v1.OpenSessionResponse",
            "bulkhead.v1.PullCredential",
            "bulkhead.v1.ReviewTokenRequest",
        ])
        .compile_fds(descriptors)?;
    Ok(())
}

/// The names of all services and their methods, as a Rust constant: the tests
/// of who may call what go over them.
fn services(descriptors: &FileDescriptorSet) -> String {
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

/// The fields of each message that may bring parts, as `codec` counts them: lists, and
/// messages, which may have lists.
fn parts(descriptors: &FileDescriptorSet) -> Result<String, String> {
    let files = descriptors.file.iter();
    let messages = files.flat_map(|file| file.message_type.iter());
    let mut text = String::new();
    for message in messages {
        let mut fields = String::new();
        for field in &message.field {
            let is_list = field.label() == Label::Repeated;
            let inner = match field.r#type() {
                Type::Message => field.type_name().rsplit('.').next().unwrap_or_default(),
                Type::String | Type::Bytes => "",
                _ if is_list => return Err(format!("{}: numbers in lists", field.name())),
                _ => continue,
            };
            let is_map = message.nested_type.iter().any(|it| it.name() == inner);
            let inner = match inner {
                // An entry of a map has no lists in it.
                _ if inner.is_empty() || is_map => "&[]".to_owned(),
                _ => format!("<v1::{inner} as codec::Parts>::FIELDS"),
            };
            if is_list || inner != "&[]" {
                let number = field.number();
                fields += &format!(
                    "codec::Field {{ number: {number}, is_list: {is_list}, fields: {inner} }},"
                );
            }
        }
        text += &format!(
            "impl codec::Parts for v1::{} {{ const FIELDS: &'static [codec::Field] = &[{fields}]; }}\n",
            message.name()
        );
    }
    Ok(text)
}
