//! [`KernelBoot`]: which boot of the node this is.

use std::path::Path;

use state_file::StateFile;

/// Where the kernel tells it (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The file with the boot that was seen last, and the version of its content.
const FILE: &str = "boot";
const VERSION: u32 = 1;

/// A boot of the node, by the name that the kernel gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelBoot(Option<String>);

impl KernelBoot {
    /// This one. Where the kernel does not tell, each is taken for the same.
    pub(crate) fn this() -> KernelBoot {
        let name = std::fs::read_to_string(BOOT_ID);
        KernelBoot(name.ok().map(|name| name.trim().to_owned()))
    }

    /// One with this name.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> KernelBoot {
        KernelBoot(Some(name.to_owned()))
    }

    /// Does what is to be done once in each boot; `work` says whether it is done. A process
    /// that is killed in it, or cannot do it, leaves it to the next one.
    pub(super) fn when_it_is_new(&self, state_directory: &Path, work: impl FnOnce() -> bool) {
        let file = StateFile::new(state_directory.join(FILE), VERSION);
        let last = file.load::<String>().unwrap_or_default();
        if self.0.is_none() || last == self.0 {
            return;
        }
        if !work() {
            return;
        }
        if let Err(error) = file.save(&self.0) {
            let error = telemetry::chain(&error);
            tracing::warn!(
                error,
                "the next process takes this boot of the node for a new one"
            );
        }
    }
}
