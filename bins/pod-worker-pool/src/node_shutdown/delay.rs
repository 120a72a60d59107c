//! How long logind waits for a lock: raised in its configuration where it is less than what
//! the pods of the node may take, as a kubelet does (`nodeshutdown_manager_linux.go`).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use state_file::SAVE_MAY_TAKE;
use system_bus::{Error, Logind};

/// After those of distributions, and before an administrator's own of a later name.
const FILE: &str = "99-bulkhead.conf";

/// Looks whether logind has read its configuration again, and the wait between them.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What logind is asked for beyond what the pods may take: it counts from the begin of the
/// shutdown, and the pods' time from when this process heard of it, which may just be
/// restarted. Nobody waits for what is not used.
const MARGIN: Duration = Duration::from_secs(15);

/// Has logind, whose configuration is in `directory`, wait so long, and some time more. What is
/// left to say when it does not wait at least so long.
pub(super) async fn raise(
    login: &dyn Logind,
    directory: &Path,
    wanted: Duration,
) -> Result<Option<String>, Error> {
    let asked = wanted.saturating_add(MARGIN);
    if login.longest_delay().await? >= asked {
        return Ok(None);
    }
    let place = directory.to_owned();
    let writing = blocking::spawn(move || write(&place, asked));
    let written = match tokio::time::timeout(SAVE_MAY_TAKE, writing).await {
        Ok(written) => written.unwrap_or(Ok(())),
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = written {
        let path = directory.join(FILE);
        tracing::warn!(%error, path = %path.display(), "logind cannot be told to wait longer");
    }
    login.reload().await?;
    let mut delay = login.longest_delay().await?;
    for _ in 0..LOOKS {
        if delay >= asked {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        delay = login.longest_delay().await?;
    }
    Ok((delay < wanted).then(|| {
        format!(
            "degraded: a shutdown of the node waits {delay:?} for pods, not {wanted:?}: \
             set InhibitDelayMaxSec in logind.conf"
        )
    }))
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
    use std::os::fd::OwnedFd;

    use async_trait::async_trait;
    use system_bus::ShutdownSignals;

    use super::*;

    /// One that waits so long whatever it is told.
    #[derive(Debug)]
    struct WaitsFor(Duration);

    #[async_trait]
    impl Logind for WaitsFor {
        async fn delay_shutdown(&self, _who: &str, _why: &str) -> Result<OwnedFd, Error> {
            panic!("nobody delays a shutdown here")
        }

        async fn longest_delay(&self) -> Result<Duration, Error> {
            Ok(self.0)
        }

        async fn is_shutting_down(&self) -> Result<bool, Error> {
            Ok(false)
        }

        async fn signals(&self) -> Result<ShutdownSignals, Error> {
            Ok(ShutdownSignals::new(futures_util::stream::pending()))
        }

        async fn reload(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    const WANTED: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn logind_is_to_wait_longer_than_the_pods_may_take() {
        for (waits, is_written, is_told) in [(5, true, true), (20, true, false), (35, false, false)]
        {
            let directory = tempfile::tempdir().unwrap();
            let login = WaitsFor(Duration::from_secs(waits));
            let told = raise(&login, directory.path(), WANTED).await.unwrap();
            assert_eq!(told.is_some(), is_told, "{waits} s: {told:?}");
            let written = fs::read_to_string(directory.path().join(FILE));
            assert_eq!(written.is_ok(), is_written, "{waits} s");
            assert!(written.is_err() || written.unwrap().ends_with("=35\n"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_is_guarded_though_the_disk_of_the_configuration_hangs() {
        blocking::stay_on_this_thread(|| Box::pin(std::future::pending()));
        let login = WaitsFor(Duration::from_secs(5));
        let raised = raise(&login, Path::new("/nowhere"), WANTED);
        let told = tokio::time::timeout(Duration::from_secs(60), raised).await;
        assert!(told.unwrap().unwrap().is_some());
    }

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
