//! Writes OCI image archives (image layout in a tar file) from local files,
//! so that no registry is needed. The bytes depend on the content alone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";

/// One entry of an image's file system.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    /// A directory with its mode.
    Directory(u32),
    /// A file with its mode and content.
    File(u32, Vec<u8>),
    /// A symbolic link with its target.
    Link(String),
}

/// What an image is made of. Paths have no leading slash; parents that are
/// not listed are not made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// Canonical name with tag.
    pub(crate) name: String,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<String>,
    /// `User` of the image's configuration; empty: root.
    pub(crate) user: String,
}

/// Writes the archive that `ctr images import` takes.
pub(crate) fn write_archive(image: &Image, to: impl Write) -> io::Result<()> {
    let layer = layer(&image.entries)?;
    let config = config(image, &digest(&layer));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": [descriptor(LAYER_TYPE, &layer)],
    })
    .to_string()
    .into_bytes();
    let mut entry = descriptor(MANIFEST_TYPE, &manifest);
    entry["annotations"] = json!({ "io.containerd.image.name": image.name });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] }).to_string();

    let mut archive = tar::Builder::new(to);
    append_file(
        &mut archive,
        "oci-layout",
        0o644,
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    append_file(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in [&manifest, &config, &layer] {
        append_file(
            &mut archive,
            &format!("blobs/sha256/{}", hex_digest(blob)),
            0o644,
            blob,
        )?;
    }
    archive.into_inner()?.flush()
}

fn config(image: &Image, layer_digest: &str) -> Vec<u8> {
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": image.environment,
            "User": image.user,
        },
        "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
    })
    .to_string()
    .into_bytes()
}

fn layer(entries: &BTreeMap<String, Entry>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, entry) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match entry {
            Entry::Directory(mode) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(*mode);
                archive.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
            Entry::File(mode, content) => append_file(&mut archive, path, *mode, content)?,
            Entry::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                archive.append_link(&mut header, path, target)?;
            }
        }
    }
    archive.into_inner()
}

fn append_file<W: Write>(
    archive: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    content: &[u8],
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, path, content)
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(content), "size": content.len() })
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex_digest(content))
}

fn hex_digest(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Go's name of this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn archive() -> Vec<u8> {
        let mut image = Image {
            name: "localhost/x:test".to_owned(),
            ..Image::default()
        };
        image
            .entries
            .insert("bin".to_owned(), Entry::Directory(0o755));
        image
            .entries
            .insert("bin/a".to_owned(), Entry::File(0o755, b"program".to_vec()));
        image
            .entries
            .insert("bin/b".to_owned(), Entry::Link("/bin/a".to_owned()));
        let mut bytes = Vec::new();
        write_archive(&image, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn every_blob_has_the_name_of_its_content() {
        let bytes = archive();
        let mut blobs = 0;
        for entry in tar::Archive::new(&*bytes).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(name) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(name, hex_digest(&content));
                blobs += 1;
            }
        }
        assert_eq!(blobs, 3);
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        assert_eq!(archive(), archive());
    }
}
