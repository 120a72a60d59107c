//! A kubeconfig whose API server never answers: with it api-gateway runs too, and no pod of
//! source `api` comes.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Nobody listens there.
const SERVER: &str = "https://127.0.0.1:9";

/// Writes the kubeconfig below `directory`; answers the flag that names it.
///
/// # Errors
/// When it cannot be written.
pub fn install(directory: &Path) -> Result<String> {
    let made = rcgen::generate_simple_self_signed(["system:node:nobody".to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    for (name, text) in [("node.crt", &certificate), ("node.key", &key)] {
        fs::write(directory.join(name), text)?;
    }
    let path = directory.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{SERVER}', certificate-authority: node.crt}}}}]\n\
         users: [{{name: u, user: {{client-certificate: node.crt, client-key: node.key}}}}]\n"
    );
    fs::write(&path, text)?;
    Ok(format!("--kubeconfig={}", path.display()))
}
