//! The certificate that the node makes for itself where it was given none, as a kubelet does
//! (`GenerateSelfSignedCertKey`): nobody checks it but who was told to.

use std::path::Path;

use clock::UnixNanos;
use node_config::{NodeConfig, ServingCertificate};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde::{Deserialize, Serialize};
use state_file::{StateFile, StateFileError};
use x509_parser::time::ASN1Time;

/// Below the process's state directory.
const FILE_NAME: &str = "serving-certificate.json";
const VERSION: u32 = 1;

const DAY_SECONDS: i64 = 24 * 3600;

/// How long it is valid; at a start in its last month another one is made.
const VALID_SECONDS: i64 = 365 * DAY_SECONDS;
const RENEW_SECONDS: i64 = 30 * DAY_SECONDS;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// It cannot be made.
    #[error("cannot make a serving certificate")]
    Make(#[from] rcgen::Error),
    /// The time is none.
    #[error("the clock shows no time that a certificate could have")]
    Time,
    /// It cannot be kept.
    #[error(transparent)]
    Keep(#[from] StateFileError),
}

#[derive(Serialize, Deserialize)]
struct Kept {
    chain: String,
    key: String,
    names: Vec<String>,
    not_after_unix_seconds: i64,
}

/// The one that is kept, unless it ends soon or is for another name or address; else a new one.
pub(crate) fn own(
    config: &NodeConfig,
    now: UnixNanos,
    state_dir: &Path,
) -> Result<ServingCertificate, CertificateError> {
    let file = StateFile::new(state_dir.join(FILE_NAME), VERSION);
    let address = config.node_ip.map(|address| address.to_string());
    let names: Vec<String> = [config.node_name.clone()]
        .into_iter()
        .chain(address)
        .collect();
    let now = now.0 / 1_000_000_000;
    let kept: Option<Kept> = file.load().unwrap_or_else(|error| {
        tracing::warn!(
            error = telemetry::chain(&error),
            "the serving certificate cannot be read: another one is made"
        );
        None
    });
    let kept = kept.filter(|kept| {
        kept.names == names && kept.not_after_unix_seconds > now.saturating_add(RENEW_SECONDS)
    });
    let kept = match kept {
        Some(kept) => kept,
        None => {
            let made = make(names, now)?;
            file.save(&made)?;
            made
        }
    };
    Ok(ServingCertificate {
        chain: kept.chain,
        key: kept.key,
    })
}

fn make(names: Vec<String>, now: i64) -> Result<Kept, CertificateError> {
    let time = |seconds| {
        let time = ASN1Time::from_timestamp(seconds);
        time.map(|time| time.to_datetime())
            .map_err(|_| CertificateError::Time)
    };
    let not_after_unix_seconds = now + VALID_SECONDS;
    let mut parameters = CertificateParams::new(names.clone())?;
    parameters.distinguished_name = DistinguishedName::new();
    let common_name = format!("{}@{now}", names[0]);
    parameters
        .distinguished_name
        .push(DnType::CommonName, common_name);
    parameters.not_before = time(now - 3600)?;
    parameters.not_after = time(not_after_unix_seconds)?;
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok(Kept {
        chain: certificate.pem(),
        key: key.serialize_pem(),
        names,
        not_after_unix_seconds,
    })
}

#[cfg(test)]
mod tests {
    use node_config::DirectoryLayout;

    use super::*;

    #[test]
    fn a_certificate_is_kept_until_it_ends_soon_or_the_node_is_called_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let at = |days: i64| UnixNanos((20_000 + days) * DAY_SECONDS * 1_000_000_000);
        let mut config = NodeConfig::with_defaults("node", DirectoryLayout::below("/t"));
        let first = own(&config, at(0), directory.path()).unwrap();
        assert_eq!(own(&config, at(330), directory.path()).unwrap(), first);
        let second = own(&config, at(336), directory.path()).unwrap();
        assert_ne!(second, first);
        config.node_ip = Some([10, 0, 0, 1].into());
        let third = own(&config, at(337), directory.path()).unwrap();
        assert_ne!(third, second);
        std::fs::write(directory.path().join(FILE_NAME), "broken").unwrap();
        own(&config, at(338), directory.path()).unwrap();
    }
}
