//! The current context of a kubeconfig (client-go's `clientcmd`): which API server, and which
//! client certificate the node shows to it. Fields that would change where requests go or how
//! the node proves who it is are supported or refused; of contexts that are not the current
//! one nothing is judged.

use std::path::{Path, PathBuf};

use node_config::{ApiCredential, ApiServer};
use pod::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::document::{self, ConfigFileError, Kind};
use crate::pem_file;

const KIND: Kind = Kind {
    api_version: "v1",
    kind: "Config",
};

#[derive(Deserialize)]
struct Kubeconfig {
    #[serde(default, rename = "current-context")]
    current_context: String,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: ContextFields,
}

#[derive(Deserialize)]
struct ContextFields {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Map<String, Value>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ClusterFields {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<ByteString>,
    /// Only about the size of answers.
    #[serde(default, rename = "disable-compression")]
    _disable_compression: bool,
    /// Of tools, for themselves.
    #[serde(default, rename = "extensions")]
    _extensions: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct UserFields {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<ByteString>,
    client_key: Option<PathBuf>,
    client_key_data: Option<ByteString>,
    #[serde(default, rename = "extensions")]
    _extensions: Value,
}

/// Reads a kubeconfig, and the files that its current context names.
///
/// # Errors
/// When one of them cannot be read, or a field of the current context is missing, wrong or
/// not supported.
pub fn read(path: &Path) -> Result<ApiServer, ConfigFileError> {
    let refused = |(field, reason)| ConfigFileError::Value {
        path: path.to_owned(),
        field,
        reason,
    };
    let object = document::read(path, KIND)?;
    // Keys are in it.
    let config: Kubeconfig = document::typed(object, |_| true).map_err(refused)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    of_current_context(config, directory).map_err(refused)
}

type Fault = (String, String);

fn fault(field: impl Into<String>, reason: impl Into<String>) -> Fault {
    (field.into(), reason.into())
}

fn of_current_context(config: Kubeconfig, directory: &Path) -> Result<ApiServer, Fault> {
    let name = config.current_context;
    let mut contexts = config.contexts.into_iter();
    let context = contexts.find(|it| it.name == name);
    let context = context.ok_or_else(|| fault("current-context", no(&name, "contexts")))?;
    let ContextFields { cluster, user } = context.context;
    let mut clusters = config.clusters.into_iter();
    let of_cluster = clusters.find(|it| it.name == cluster);
    let of_cluster = of_cluster.ok_or_else(|| fault("clusters", no(&cluster, "clusters")))?;
    let mut users = config.users.into_iter();
    let of_user = users.find(|it| it.name == user);
    let of_user = of_user.ok_or_else(|| fault("users", no(&user, "users")))?;
    let at = |list: &'static str| move |(field, reason)| (format!("{list}.{field}"), reason);
    let cluster: ClusterFields =
        document::typed(of_cluster.cluster, |_| true).map_err(at("clusters"))?;
    let user: UserFields = document::typed(of_user.user, |_| true).map_err(at("users"))?;
    if !cluster.server.starts_with("https://") {
        return Err(fault("clusters.server", "is no https:// address"));
    }
    Ok(ApiServer {
        authority: pem(
            "clusters.certificate-authority",
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            directory,
        )?,
        url: cluster.server,
        server_name: cluster.tls_server_name,
        credential: Some(ApiCredential {
            certificate: pem(
                "users.client-certificate",
                user.client_certificate_data,
                user.client_certificate,
                directory,
            )?,
            key: pem(
                "users.client-key",
                user.client_key_data,
                user.client_key,
                directory,
            )?,
        }),
    })
}

fn no(name: &str, list: &str) -> String {
    format!("{name:?} is none of {list}")
}

/// What a pair of fields gives: data goes before a file, whose path counts from the directory
/// of the kubeconfig.
fn pem(
    field: &'static str,
    data: Option<ByteString>,
    file: Option<PathBuf>,
    directory: &Path,
) -> Result<String, Fault> {
    match (data, file) {
        (Some(data), _) => {
            String::from_utf8(data.0).map_err(|_| fault(format!("{field}-data"), "is not in PEM"))
        }
        (None, Some(file)) => {
            let path = directory.join(file);
            pem_file::read(&path)
                .map_err(|error| fault(field, format!("{}: {error}", path.display())))
        }
        (None, None) => Err(fault(
            field,
            format!("is required, or {field}-data: other ways are not supported yet"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
        contexts: [{name: here, context: {cluster: c, user: u}}]\n";

    #[test]
    fn the_current_context_names_the_server_and_the_certificate() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("ca.crt", "CA"), ("node.crt", "CERT"), ("node.key", "KEY")] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let path = directory.path().join("kubeconfig");
        for (cluster, user) in [
            (
                "certificate-authority: ca.crt",
                "client-certificate: node.crt, client-key: node.key",
            ),
            (
                "certificate-authority-data: Q0E=",
                "client-certificate-data: Q0VSVA==, client-key-data: S0VZ",
            ),
        ] {
            let text = format!(
                "{HEAD}clusters:\n- {{name: other, cluster: {{server: http://x}}}}\n\
                 - {{name: c, cluster: {{server: 'https://h:6443', {cluster}}}}}\n\
                 users:\n- {{name: u, user: {{{user}}}}}\n"
            );
            fs::write(&path, text).unwrap();
            let server = read(&path).unwrap();
            assert_eq!((&*server.url, &*server.authority), ("https://h:6443", "CA"));
            let credential = server.credential.unwrap();
            assert_eq!(
                (&*credential.certificate, &*credential.key),
                ("CERT", "KEY")
            );
        }
    }

    #[test]
    fn what_is_missing_or_not_supported_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let good = "client-certificate-data: QQ==, client-key-data: QQ==";
        for (cluster, user, expected) in [
            (
                "server: 'http://h', certificate-authority-data: QQ==",
                good,
                "clusters.server",
            ),
            (
                "server: 'https://h'",
                good,
                "clusters.certificate-authority",
            ),
            (
                "server: 'https://h', insecure-skip-tls-verify: true",
                good,
                "insecure-skip-tls-verify",
            ),
            (
                "server: 'https://h', certificate-authority-data: QQ==",
                "token: t",
                "token",
            ),
            (
                "server: 'https://h', certificate-authority-data: '?'",
                good,
                "clusters.certificate-authority-data",
            ),
        ] {
            let text = format!(
                "{HEAD}clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
                 users: [{{name: u, user: {{{user}}}}}]\n"
            );
            fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        fs::write(&path, HEAD).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("\"c\" is none of clusters"), "{error}");
    }
}
