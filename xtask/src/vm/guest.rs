//! What runs in the guest, and what its output says.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use test_support::{binaries, wait};

use crate::test::Totals;
use crate::tree::link;

/// The console is the first serial line; the tests have the second.
pub(super) const KERNEL_COMMAND_LINE: &str =
    "root=/dev/vda rw console=ttyS0 quiet systemd.unified_cgroup_hierarchy=1 panic=-1";

/// How many times longer than on a fast machine the tests wait for something.
const PATIENCE: &str = "5";

/// What the unit prints last.
const END: &str = "vm-test: the tests have ended";

/// What of Debian is not started: it takes time, or disturbs.
const MASKED: [&str; 6] = [
    "containerd.service",
    "serial-getty@ttyS0.service",
    "serial-getty@ttyS1.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "systemd-networkd-wait-online.service",
];

/// Puts the unit that runs the tests into the guest's tree, and keeps away what it does
/// not need.
pub(super) fn install(root: &Path, tests: &[PathBuf], filters: &[&str]) -> Result<()> {
    let units = root.join("etc/systemd/system");
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants).context("the guest's units")?;
    for unit in MASKED {
        link("/dev/null", &units.join(unit))?;
    }
    link(
        "/lib/systemd/system/multi-user.target",
        &units.join("default.target"),
    )?;
    fs::write(units.join("vm-test.service"), UNIT).context("the guest's unit")?;
    link("../vm-test.service", &wants.join("vm-test.service"))?;
    fs::write(root.join("vm-test.sh"), script(tests, filters)).context("the guest's script")?;
    fs::write(root.join("etc/hostname"), "guest\n").context("the guest's name")?;
    Ok(())
}

const UNIT: &str = "\
[Unit]
Description=Tests of Bulkhead

[Service]
Type=oneshot
ExecStart=/bin/sh /vm-test.sh
# Whatever became of the tests.
ExecStopPost=/bin/systemctl poweroff --force --force
";

/// Runs the tests one after the other; of each program those that are chosen.
fn script(tests: &[PathBuf], filters: &[&str]) -> String {
    let filters: Vec<String> = filters.iter().map(|filter| quoted(filter)).collect();
    let filters = filters.join(" ");
    let programs = tests.iter().map(|path| quoted(&path.to_string_lossy()));
    let runs: String = programs
        .map(|program| format!("{program} --test-threads 1 -- {filters}\n"))
        .collect();
    format!(
        "exec > /dev/ttyS1 2>&1\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root\n\
         export {built}=1 {patience}={PATIENCE}\n\
         cd {workspace}\n\
         uname -r; containerd --version; runc --version | head -n 1\n\
         grep cgroup /proc/self/mountinfo\n\
         {runs}\
         echo; echo '{END}'\n",
        built = binaries::BUILT_VARIABLE,
        patience = wait::PATIENCE_VARIABLE,
        workspace = quoted(&binaries::workspace().to_string_lossy()),
    )
}

/// As one word of a shell script.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What the guest printed so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    totals: Totals,
    /// The tests that were begun.
    tests: Vec<String>,
    on_version_2: bool,
    ended: bool,
}

impl Report {
    /// Adds a line of output.
    pub(super) fn add(&mut self, line: &str) {
        self.totals.add(line);
        // `test FILE::TEST ... ok`; the end may come in another line.
        let name = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "));
        self.tests.extend(name.map(|(name, _)| name.to_owned()));
        // A line of the table of mounts.
        self.on_version_2 |= line.contains(" /sys/fs/cgroup ") && line.contains(" - cgroup2 ");
        self.ended |= line == END;
    }

    /// Whether all of what was chosen ran on cgroup v2 and passed: a guest that ends
    /// early, or a test that is not there, is no success.
    pub(super) fn verdict(&self, filters: &[&str]) -> Result<()> {
        ensure!(self.ended, "the guest ended before its tests: {self}");
        ensure!(self.on_version_2, "the guest is not on cgroup v2");
        ensure!(self.totals.failed == 0 && self.totals.passed > 0, "{self}");
        for filter in filters {
            let ran = self.tests.iter().any(|test| test.contains(filter));
            ensure!(ran, "no test is called {filter}: {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.totals.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_one_word_each() {
        let programs = ["/t/it's", "/t/two"].map(PathBuf::from);
        let script = script(&programs, &["hooks::", "a b"]);
        for program in [r"'/t/it'\''s'", "'/t/two'"] {
            let command = format!("{program} --test-threads 1 -- 'hooks::' 'a b'");
            assert!(script.lines().any(|line| line == command), "{script}");
        }
    }

    #[test]
    fn only_what_ran_to_its_end_and_passed_is_a_success() {
        let mount = "29 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let result = |passed, failed| {
            format!("test result: it. {passed} passed; {failed} failed; 0 ignored; 0 measured")
        };
        let verdict = |lines: &[&str], filters: &[&str]| {
            let mut report = Report::default();
            for line in lines {
                report.add(line);
            }
            report.verdict(filters).is_ok()
        };
        let (one, two) = ("test hooks::one ... ok", "test edges::two ... noise");
        let (passed, failed) = (&*result(2, 0), &*result(1, 1));
        let both = ["hooks::one", "edges"];
        assert!(verdict(&[mount, one, two, passed, END], &both));
        // Ended early, on version 1, a test failed, or was not there, or none ran.
        assert!(!verdict(&[mount, one, two, passed], &both));
        assert!(!verdict(&[one, two, passed, END], &both));
        assert!(!verdict(&[mount, one, two, failed, END], &both));
        assert!(!verdict(&[mount, one, passed, END], &both));
        assert!(!verdict(&[mount, one, &result(0, 0), END], &["hooks"]));
    }
}
