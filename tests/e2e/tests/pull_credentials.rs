//! Images of a registry that lets nobody pull without a password: by the node's credentials,
//! by a Secret of the pod, and by what a program gives.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use e2e::{Ground, credential_program};
use serde_json::{Value, json};
use test_support::images;
use test_support::node::TestNode;
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd};
use topology::{Identities, Process};

/// `joe:hunter2`, as a client of HTTP says it and as Docker writes it down.
const AUTH: &str = "am9lOmh1bnRlcjI=";
const WORDS: [&str; 2] = ["hunter2", AUTH];

/// What runtimes make of the refusal: "401 Unauthorized" or, from containerd 2 on, "may
/// require authorization".
const REFUSED: &str = "uthoriz";

/// What begins with this is no HTTP. containerd 2 tries TLS first and, if it is answered in
/// HTTP, that.
const TLS_HANDSHAKE: u8 = 22;

/// A registry with one image, in the node. It ends with the test's process.
struct Registry {
    address: SocketAddr,
}

impl Registry {
    /// Serves the test image to who has the password.
    fn start(node: &TestNode, directory: &Path) -> Result<Registry> {
        let archives = images::archives()?;
        let is_busybox = |path: &&PathBuf| path.ends_with("busybox-test.tar");
        let archive = archives.iter().find(is_busybox).context("no busybox")?;
        let unpacked = directory.join("registry");
        fs::create_dir(&unpacked)?;
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(archive).arg("-C").arg(&unpacked);
        if !tar.status()?.success() {
            bail!("cannot unpack {}", archive.display());
        }
        let index: Value = serde_json::from_slice(&fs::read(unpacked.join("index.json"))?)?;
        let digest = index["manifests"][0]["digest"].as_str();
        let digest = digest.context("no manifest")?.to_owned();
        let listener = node.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))??;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is its own trouble.
                let _ = answer(&stream, &unpacked, &digest);
            }
        });
        Ok(Registry { address })
    }

    fn image(&self, name: &str) -> String {
        format!("{}/{name}:1", self.address)
    }
}

fn answer(mut stream: &TcpStream, unpacked: &Path, manifest: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut first = [0];
    stream.peek(&mut first)?;
    if first == [TLS_HANDSHAKE] {
        let _hello = stream.read(&mut [0; 1 << 14])?;
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let found = match headers.get("authorization") {
        Some(given) if *given == format!("Basic {AUTH}") => content(target, unpacked, manifest),
        _ => {
            let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\
                        Content-Length: 0\r\nConnection: close\r\n\r\n";
            return stream.write_all(head.as_bytes());
        }
    };
    let Some((kind, digest, path)) = found else {
        let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(head.as_bytes());
    };
    let body = fs::read(path)?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    match method {
        "HEAD" => Ok(()),
        _ => stream.write_all(&body),
    }
}

/// Type, digest and file of what is asked for.
fn content(target: &str, unpacked: &Path, manifest: &str) -> Option<(String, String, PathBuf)> {
    let is_manifest = target.contains("/manifests/");
    let last = target.split('?').next()?.rsplit('/').next()?;
    let digest = if last.starts_with("sha256:") {
        last
    } else {
        manifest
    };
    let blob = unpacked.join("blobs").join(digest.replace(':', "/"));
    let kind = match is_manifest {
        true => "application/vnd.oci.image.manifest.v1+json",
        false => "application/octet-stream",
    };
    let is_known = is_manifest || target.contains("/blobs/");
    (is_known && blob.exists()).then(|| (kind.to_owned(), digest.to_owned(), blob))
}

/// What a program of the node tells when it sees nothing of others.
const FINDS_NOTHING: &str = "finds (/home: /run: /tmp:)";

fn shell(image: &str, more: &Value) -> Value {
    shell_by("Always", image, more)
}

fn shell_by(policy: &str, image: &str, more: &Value) -> Value {
    let mut spec = json!({ "containers": [{
        "name": "shell", "image": image, "imagePullPolicy": policy,
        "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"],
    }] });
    let fields = spec.as_object_mut().expect("a spec");
    fields.extend(more.as_object().expect("fields").clone());
    spec
}

#[test]
fn images_are_pulled_by_credentials_of_the_node_and_by_secrets_of_pods() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let paths = ground.bulkhead.paths().clone();
    let registry = Registry::start(ground.node(), &paths.shared)?;
    let config = |place: &str| json!({ "auths": { place: { "auth": AUTH } } }).to_string();

    // By nothing, and by a Secret that is not there.
    ground.apply("of-node", shell(&registry.image("node/web"), &json!({})))?;
    ground.event("of-node", "Failed", REFUSED)?;
    let secrets = json!({ "imagePullSecrets": [{ "name": "registry" }] });
    ground.apply("of-pod", shell(&registry.image("pod/web"), &secrets))?;
    ground.event("of-pod", "FailedToRetrieveImagePullSecret", "(registry)")?;

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "registry" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config(&format!("{}/pod", registry.address)) },
    });
    ground
        .bulkhead
        .write_object("registry.json", &secret.to_string())?;
    ground.ready("of-pod")?;

    // A file that others may read counts for nothing.
    let file = &paths.pull_credentials;
    let new = file.with_extension("new");
    fs::write(&new, config(&format!("{}/node", registry.address)))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, file)?;
    let status = || ground.bulkhead.command_line(&["status"]);
    test_support::wait_for("the file to be refused", e2e::ground::TIMEOUT, || {
        let printed = status().map_err(|error| format!("{error:#}"))?.stdout;
        let is_told = printed.contains("is open to others than root (mode 0644)");
        is_told.then_some(()).ok_or(printed)
    })?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))?;
    // The first pod may wait for longer by now before it is tried again.
    ground.apply("later", shell(&registry.image("node/web"), &json!({})))?;
    ground.ready("later")?;

    nobody_tells_the_password(&ground, &["of-node", "of-pod", "later"])
}

#[test]
fn an_image_of_the_secret_of_one_pod_is_for_those_who_have_it_whoever_dies() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let directory = ground.bulkhead.paths().shared.clone();
    let registry = Registry::start(ground.node(), &directory)?;
    let config = json!({ "auths": { registry.address.to_string(): { "auth": AUTH } } });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "registry" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config.to_string() },
    });
    let secret = secret.to_string();
    ground.bulkhead.write_object("registry.json", &secret)?;
    let image = registry.image("pod/web");
    let (with, without) = (
        json!({ "imagePullSecrets": [{ "name": "registry" }] }),
        json!({}),
    );
    ground.apply("owner", shell_by("IfNotPresent", &image, &with))?;
    ground.ready("owner")?;

    for round in ["before", "after"] {
        if round == "after" {
            ground.bulkhead.kill(Process::PodWorkerPool)?;
        }
        let name = |who: &str| format!("{who}-{round}");
        let same = shell_by("Never", &image, &with);
        ground.apply(&name("same"), same)?;
        ground.ready(&name("same"))?;
        let pulls = shell_by("IfNotPresent", &image, &without);
        ground.apply(&name("pulls"), pulls)?;
        ground.event(&name("pulls"), "Failed", REFUSED)?;
        let never = shell_by("Never", &image, &without);
        ground.apply(&name("never"), never)?;
        let words = "is not present with pull policy of Never";
        ground.event(&name("never"), "ErrImageNeverPull", words)?;
    }
    Ok(())
}

fn nobody_tells_the_password(ground: &Ground, pods: &[&str]) -> Result<()> {
    for pod in pods {
        for (reason, message) in ground.events_of(pod)? {
            assert!(
                !WORDS.iter().any(|word| message.contains(word)),
                "{reason}: {message}"
            );
        }
    }
    let log = ground.bulkhead.log(Process::Supervisor);
    assert!(!WORDS.iter().any(|word| log.contains(word)));
    Ok(())
}

#[test]
fn images_are_pulled_by_credentials_that_a_program_of_the_node_gives() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let node = containerd.node();
    let directory = node.directory_of(0);
    let registry = Registry::start(node, &directory)?;
    let place = format!("{}/node", registry.address);
    // It tells whose process it is and what it finds, and fails for one image.
    let script = format!(
        r#"read -r request
echo "runs as uid $(id -u)" >&2
echo "finds ($(echo $(ls /tmp /home /run)))" >&2
test -e '{}' || echo "does not see the registry" >&2
touch /tmp/own '{}/own' && echo "writes what it may" >&2
case "$request" in *node/bad*) exit 3;; esac
echo '{{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1",'
echo '"cacheKeyType":"Image","auth":{{"{place}":{{'
echo "\"username\":\"$USER_OF_REGISTRY\",\"password\":\"hunter2\"}}}}}}""#,
        directory.join("registry").display(),
        directory.join("state-dir/credential-provider").display(),
    );
    let options = credential_program::install(&directory, &script, &[place])?;
    let mut ground = Ground {
        bulkhead: BulkheadInstance::start(&containerd, &options)?,
        containerd,
    };
    ground.apply("web", shell(&registry.image("node/web"), &json!({})))?;
    ground.ready("web")?;
    let log = ground.bulkhead.log(Process::CredentialProvider);
    let uid = Identities::from_base(ground.bulkhead.uid_base())?.uid(Process::CredentialProvider);
    for told in [
        &format!("runs as uid {uid}"),
        FINDS_NOTHING,
        "does not see the registry",
        "writes what it may",
    ] {
        assert!(log.contains(told), "{told}: {log}");
    }

    // Who asks while the process is away waits for it.
    ground.bulkhead.kill(Process::CredentialProvider)?;
    ground.apply("later", shell(&registry.image("node/later"), &json!({})))?;
    ground.ready("later")?;
    // What an earlier run has written is gone.
    let log = ground.bulkhead.log(Process::CredentialProvider);
    assert_eq!(log.matches(FINDS_NOTHING).count(), 2, "{log}");

    // A failure is told, and the pull is tried without.
    ground.apply("bad", shell(&registry.image("node/bad"), &json!({})))?;
    let failure = "(program: it ended with exit status: 3)";
    ground.event("bad", "FailedCredentialProvider", failure)?;
    ground.event("bad", "Failed", REFUSED)?;

    let public = ground.bulkhead.paths().run.join("node.json");
    assert!(!fs::read_to_string(public)?.contains("USER_OF_REGISTRY"));
    nobody_tells_the_password(&ground, &["web", "later", "bad"])
}
