//! The images of the tests and the demo, built from local files and kept
//! under `target/test-images` until what they are made of changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::binaries;
use crate::elf;
use crate::oci::{self, Entry, Image};

/// The sandbox image.
pub const PAUSE: &str = "localhost/pause:test";
/// A shell and the usual small tools.
pub const BUSYBOX: &str = "localhost/busybox:test";
/// The test program, with busybox beside it.
pub const TESTAPP: &str = "localhost/testapp:test";
/// [`TESTAPP`] with a numeric user that is not root.
pub const TESTAPP_NONROOT: &str = "localhost/testapp:nonroot";

/// [`TESTAPP`] with the user [`AGENT_USER`], by number.
pub const TESTAPP_AGENT_NUMBER: &str = "localhost/testapp:agent-number";
/// The same by a name that only the image knows.
pub const TESTAPP_AGENT_NAME: &str = "localhost/testapp:agent-name";
/// A user for a test that gives it to a process of Bulkhead.
pub const AGENT_USER: u32 = 61_003;

/// Where busybox installs itself, the static one and the one that is not.
const BUSYBOX_PATHS: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// A directory on the search path of busybox's shell.
const SEARCH_PATH: &str = "PATH=/bin:/sbin:/usr/bin:/usr/sbin";

/// The archives of all images, built first if needed. Safe to call from
/// several processes at once.
///
/// # Errors
/// When busybox is missing or a program cannot be built.
pub fn archives() -> Result<Vec<PathBuf>> {
    let directory = binaries::target_directory()?.join("test-images");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let lock = File::create(directory.join("lock")).context("cannot make the images' lock")?;
    lock.lock().context("cannot lock the images")?;

    let names = [
        PAUSE,
        BUSYBOX,
        TESTAPP,
        TESTAPP_NONROOT,
        TESTAPP_AGENT_NUMBER,
        TESTAPP_AGENT_NAME,
    ];
    let archives: Vec<PathBuf> = names
        .iter()
        .map(|name| directory.join(archive_name(name)))
        .collect();
    let busybox = fs::read(static_busybox()?).context("cannot read busybox")?;
    let fingerprint = fingerprint(&busybox)?;
    let stamp = directory.join("fingerprint");
    let current = fs::read_to_string(&stamp).is_ok_and(|text| text == fingerprint)
        && archives.iter().all(|path| path.exists());
    if !current {
        // Not valid until the new stamp is written.
        let _ = fs::remove_file(&stamp);
        let pause = build_static("pause")?;
        let testapp = build_static("testapp")?;
        for (image, path) in all(&busybox, pause, testapp)?.iter().zip(&archives) {
            // Whole or not at all: another test may be reading the former one.
            let unfinished = path.with_extension("new");
            let file =
                File::create(&unfinished).with_context(|| unfinished.display().to_string())?;
            oci::write_archive(image, BufWriter::new(file))
                .and_then(|()| fs::rename(&unfinished, path))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        fs::write(&stamp, fingerprint).context("cannot write the images' fingerprint")?;
    }
    Ok(archives)
}

fn archive_name(image: &str) -> String {
    format!(
        "{}.tar",
        image.trim_start_matches("localhost/").replace(':', "-")
    )
}

fn all(busybox: &[u8], pause: Vec<u8>, testapp: Vec<u8>) -> Result<[Image; 6]> {
    let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let system = system_entries(busybox)?;
    let mut with_testapp = system.clone();
    with_testapp.insert("bin/testapp".to_owned(), Entry::File(0o755, testapp));
    let testapp = Image {
        name: TESTAPP.to_owned(),
        entries: with_testapp,
        entrypoint: words(&["/bin/testapp"]),
        environment: words(&[SEARCH_PATH]),
        ..Image::default()
    };
    Ok([
        Image {
            name: PAUSE.to_owned(),
            entries: BTreeMap::from([("pause".to_owned(), Entry::File(0o755, pause))]),
            entrypoint: words(&["/pause"]),
            ..Image::default()
        },
        Image {
            name: BUSYBOX.to_owned(),
            entries: system,
            command: words(&["sh"]),
            environment: words(&[SEARCH_PATH]),
            ..Image::default()
        },
        testapp.clone(),
        Image {
            name: TESTAPP_NONROOT.to_owned(),
            user: "1000:1000".to_owned(),
            ..testapp.clone()
        },
        Image {
            name: TESTAPP_AGENT_NUMBER.to_owned(),
            user: AGENT_USER.to_string(),
            ..testapp.clone()
        },
        Image {
            name: TESTAPP_AGENT_NAME.to_owned(),
            user: "agent".to_owned(),
            ..testapp
        },
    ])
}

/// The small system that every image but the sandbox's has.
fn system_entries(busybox: &[u8]) -> Result<BTreeMap<String, Entry>> {
    let mut entries = BTreeMap::new();
    for (path, mode) in [
        ("bin", 0o755),
        ("dev", 0o755),
        ("etc", 0o755),
        ("proc", 0o755),
        ("root", 0o700),
        ("sys", 0o755),
        ("tmp", 0o1777),
        ("var", 0o755),
    ] {
        entries.insert(path.to_owned(), Entry::Directory(mode));
    }
    let passwd = format!(
        "root:x:0:0:root:/root:/bin/sh\n\
         app:x:1000:1000:app:/tmp:/bin/sh\n\
         agent:x:{AGENT_USER}:1000:agent:/tmp:/bin/sh\n\
         nobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
    );
    let group = "root:x:0:\napp:x:1000:\nnobody:x:65534:\n";
    entries.insert("etc/passwd".to_owned(), Entry::File(0o644, passwd.into()));
    entries.insert("etc/group".to_owned(), Entry::File(0o644, group.into()));
    entries.insert(
        "bin/busybox".to_owned(),
        Entry::File(0o755, busybox.to_vec()),
    );
    for applet in applets()? {
        entries
            .entry(format!("bin/{applet}"))
            .or_insert(Entry::Link("/bin/busybox".to_owned()));
    }
    Ok(entries)
}

fn applets() -> Result<Vec<String>> {
    let output = Command::new(static_busybox()?)
        .arg("--list")
        .output()
        .context("cannot ask busybox for its applets")?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// The busybox that runs without this machine's libraries.
///
/// # Errors
/// When there is none, or only one that is not static.
pub fn static_busybox() -> Result<&'static Path> {
    let installed = BUSYBOX_PATHS.iter().map(Path::new);
    let mut installed = installed.filter(|path| path.exists()).peekable();
    if installed.peek().is_none() {
        bail!("busybox is not installed (package busybox-static)");
    }
    installed
        .find(|path| fs::read(path).is_ok_and(|bytes| elf::is_static(&bytes)))
        .context("busybox is not static (install the package busybox-static)")
}

/// Builds one program of `tests/images` without shared libraries and returns
/// its bytes.
fn build_static(program: &str) -> Result<Vec<u8>> {
    let output = binaries::cargo_command()
        .args(["rustc", "--package", "test-images", "--bin", program, "--"])
        // For the last step alone: build scripts and macros stay as they are.
        .args(["-C", "target-feature=+crt-static", "-C", "opt-level=s"])
        .args(["-C", "strip=symbols", "-C", "debuginfo=0"])
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!(
            "cannot build {program}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let path = binaries::target_directory()?.join("debug").join(program);
    fs::read(&path).with_context(|| path.display().to_string())
}

/// Changes when anything does that the images are made of.
fn fingerprint(busybox: &[u8]) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(Sha256::digest(busybox));
    for own_source in [include_str!("images.rs"), include_str!("oci.rs")] {
        hash.update(own_source);
    }
    let mut open = vec![binaries::workspace().join("tests/images")];
    let mut files = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).context("tests/images")? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    for path in files {
        hash.update(path.to_string_lossy().as_bytes());
        hash.update(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
