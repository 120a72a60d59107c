//! How long logind waits for a lock: raised in its configuration where it is less than what
//! the pods of the node may take, as a kubelet does (`nodeshutdown_manager_linux.go`).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use node_config::LOGIN_MANAGER;
use system_bus::{Error, Logind};

/// After those of distributions, and before an administrator's own of a later name.
const FILE: &str = "99-bulkhead.conf";

/// Looks whether logind has read its configuration again, and the wait between them.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Has logind wait at least so long. What is left to say when it does not.
pub(super) async fn raise(login: &dyn Logind, wanted: Duration) -> Result<Option<String>, Error> {
    if login.longest_delay().await? >= wanted {
        return Ok(None);
    }
    let written = blocking::spawn(move || write(Path::new(LOGIN_MANAGER), wanted)).await;
    if let Ok(Err(error)) = written {
        let path = Path::new(LOGIN_MANAGER).join(FILE);
        tracing::warn!(%error, path = %path.display(), "logind cannot be told to wait longer");
    }
    login.reload().await?;
    for _ in 0..LOOKS {
        if login.longest_delay().await? >= wanted {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let delay = login.longest_delay().await?;
    Ok(Some(format!(
        "degraded: a shutdown of the node waits {delay:?} for pods, not {wanted:?}: \
         set InhibitDelayMaxSec in logind.conf"
    )))
}

fn write(directory: &Path, wanted: Duration) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    let text = content(wanted);
    let readable = |file: &File| file.set_permissions(fs::Permissions::from_mode(0o644));
    state_file::write_atomically(&directory.join(FILE), text.as_bytes(), readable)
}

fn content(wanted: Duration) -> String {
    let seconds = wanted.as_millis().div_ceil(1000);
    format!(
        "# Made by Bulkhead: so long a shutdown of the node may wait for its pods.\n\
         [Login]\nInhibitDelayMaxSec={seconds}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logind_can_read_how_long_it_shall_wait_in_whole_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("logind.conf.d");
        for (millis, line) in [(30_000, "=30"), (1_500, "=2")] {
            write(&place, Duration::from_millis(millis)).unwrap();
            let file = place.join(FILE);
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.ends_with(&format!("{line}\n")), "{text}");
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
        }
    }
}
