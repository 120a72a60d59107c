//! The certificates and kubeconfigs of a control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Issues certificates, and kubeconfigs, into a directory.
pub struct Authority {
    directory: PathBuf,
    /// Host and port of the API server.
    server: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Writes `ca.crt`, and `sa.key` for tokens of service accounts.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn create(directory: &Path, server: &str) -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(directory.join("ca.crt"), issuer.pem())?;
        let of_accounts = KeyPair::generate()?;
        fs::write(directory.join("sa.key"), of_accounts.serialize_pem())?;
        fs::write(directory.join("sa.pub"), of_accounts.public_key_pem())?;
        Ok(Authority {
            directory: directory.to_owned(),
            server: server.to_owned(),
            issuer,
        })
    }

    /// Writes `NAME.crt` and `NAME.key` of a user, or of a server with these addresses.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn issue(
        &self,
        name: &str,
        user: &str,
        group: Option<&str>,
        addresses: &[&str],
    ) -> Result<()> {
        let addresses = addresses.iter().map(|it| (*it).to_owned());
        let mut params = CertificateParams::new(addresses.collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            let kind = DnType::OrganizationName;
            params.distinguished_name.push(kind, group);
        }
        self.write(name, &params)
    }

    /// The same of a server whose certificate is too old.
    ///
    /// # Errors
    /// When something cannot be written.
    pub fn issue_expired(&self, name: &str, address: &str) -> Result<()> {
        let mut params = CertificateParams::new(vec![address.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        self.write(name, &params)
    }

    fn write(&self, name: &str, params: &CertificateParams) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let path = |ending: &str| self.directory.join(format!("{name}.{ending}"));
        fs::write(path("crt"), certificate.pem())?;
        fs::write(path("key"), key.serialize_pem())?;
        Ok(())
    }

    /// Where all is written.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes `NAME.kubeconfig` for a user's certificate.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, name: &str) -> Result<()> {
        let server = &self.server;
        let path = self.directory.join(format!("{name}.kubeconfig"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://{server}', certificate-authority: ca.crt}}}}]\n\
             users: [{{name: u, user: {{client-certificate: {name}.crt, client-key: {name}.key}}}}]\n"
        );
        fs::write(&path, text)?;
        Ok(())
    }
}
