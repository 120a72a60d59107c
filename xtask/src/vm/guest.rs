//! What runs in the guest, and what its output says.

use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use test_support::{binaries, wait};

use crate::test::Totals;

/// The console is the first serial line; the tests have the second.
pub(super) const KERNEL_COMMAND_LINE: &str =
    "root=/dev/vda rw console=ttyS0 quiet systemd.unified_cgroup_hierarchy=1 panic=-1";

/// How many times longer than on a machine the tests wait for something.
const PATIENCE: &str = "10";

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

/// A test, or all tests of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// Its name without the ending, below `tests/e2e/tests`.
    file: String,
    test: Option<String>,
}

impl FromStr for Choice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (file, test) = match text.split_once("::") {
            Some((file, test)) => (file, Some(test)),
            None => (text, None),
        };
        for name in [Some(file), test].into_iter().flatten() {
            // They become words of a shell script.
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            if name.is_empty() || !name.chars().all(is_plain) {
                bail!("want FILE or FILE::TEST, not {text:?}");
            }
        }
        Ok(Self {
            file: file.to_owned(),
            test: test.map(str::to_owned),
        })
    }
}

/// The files that have the chosen tests, each once.
pub(super) fn files(choices: &[Choice]) -> Vec<&str> {
    let mut files: Vec<&str> = choices.iter().map(|choice| &*choice.file).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// A program with tests, and which of them are to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    pub(super) path: PathBuf,
    /// All, if empty.
    tests: Vec<String>,
}

impl TestProgram {
    /// The program of `file`, which is at `path`.
    pub(super) fn new(file: &str, path: PathBuf, choices: &[Choice]) -> Self {
        let of_file = choices.iter().filter(|choice| choice.file == file);
        // Whoever asks for all of them and for one asks for all.
        let tests = of_file.map(|choice| choice.test.clone());
        let tests = tests.collect::<Option<Vec<String>>>();
        Self {
            path,
            tests: tests.unwrap_or_default(),
        }
    }

    fn command(&self) -> String {
        let mut words = vec![quoted(&self.path), "--test-threads 1".to_owned()];
        if !self.tests.is_empty() {
            words.push("--exact".to_owned());
            words.extend(self.tests.iter().cloned());
        }
        words.join(" ")
    }
}

/// Puts the unit that runs the programs into the guest's tree, and keeps away what it
/// does not need.
pub(super) fn install(root: &Path, programs: &[TestProgram]) -> Result<()> {
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
    fs::write(root.join("vm-test.sh"), script(programs)).context("the guest's script")?;
    fs::write(root.join("etc/hostname"), "guest\n").context("the guest's name")?;
    Ok(())
}

fn link(to: &str, link: &Path) -> Result<()> {
    let _ = fs::remove_file(link);
    symlink(to, link).with_context(|| format!("cannot make {}", link.display()))
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

/// Runs all programs one after the other, also after one that failed.
fn script(programs: &[TestProgram]) -> String {
    let commands: Vec<String> = programs.iter().map(TestProgram::command).collect();
    format!(
        "exec > /dev/ttyS1 2>&1\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root\n\
         export {built}=1 {patience}={PATIENCE}\n\
         cd {workspace}\n\
         uname -r; containerd --version; runc --version | head -n 1\n\
         grep cgroup /proc/self/mountinfo\n\
         {commands}\n\
         echo; echo '{END}'\n",
        built = binaries::BUILT_VARIABLE,
        patience = wait::PATIENCE_VARIABLE,
        workspace = quoted(&binaries::workspace()),
        commands = commands.join("\n"),
    )
}

/// A path as one word of a shell script.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

/// What the guest printed so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    totals: Totals,
    on_version_2: bool,
    ended: bool,
}

impl Report {
    /// Adds a line of output.
    pub(super) fn add(&mut self, line: &str) {
        self.totals.add(line);
        // A line of the table of mounts.
        self.on_version_2 |= line.contains(" /sys/fs/cgroup ") && line.contains(" - cgroup2 ");
        self.ended |= line == END;
    }

    /// Whether all of what was chosen ran on cgroup v2 and passed: a guest that ends
    /// early, or a test that is not there, is no success.
    pub(super) fn verdict(&self, choices: &[Choice]) -> Result<()> {
        ensure!(self.ended, "the guest ended before its tests: {self}");
        ensure!(self.on_version_2, "the guest is not on cgroup v2");
        ensure!(self.totals.failed == 0, "{self}");
        let whole_files = choices.iter().any(|choice| choice.test.is_none());
        let passed = usize::try_from(self.totals.passed)?;
        ensure!(
            passed >= choices.len() && (whole_files || passed == choices.len()),
            "{self}, but {} were chosen",
            choices.len()
        );
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

    fn choice(text: &str) -> Choice {
        text.parse().unwrap()
    }

    #[test]
    fn tests_are_chosen_by_file_or_by_name() {
        let choices = [choice("hooks::one"), choice("edges"), choice("hooks::two")];
        assert_eq!(files(&choices), ["edges", "hooks"]);
        let program = |file| TestProgram::new(file, "/t/it's".into(), &choices).command();
        assert_eq!(
            program("hooks"),
            r"'/t/it'\''s' --test-threads 1 --exact one two"
        );
        assert_eq!(program("edges"), r"'/t/it'\''s' --test-threads 1");
        for text in ["", "::a", "a::", "a b", "a::b;c", "../a"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }

    #[test]
    fn who_asks_for_a_file_and_one_of_its_tests_asks_for_the_file() {
        let choices = [choice("hooks::one"), choice("hooks")];
        let program = TestProgram::new("hooks", "/hooks".into(), &choices);
        assert_eq!(program.tests, Vec::<String>::new());
    }

    #[test]
    fn only_what_ran_to_its_end_and_passed_is_a_success() {
        let mount = "29 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let result = |passed, failed| {
            format!("test result: it. {passed} passed; {failed} failed; 0 ignored; 0 measured")
        };
        let verdict = |lines: &[&str], choices: &[&str]| {
            let mut report = Report::default();
            for line in lines {
                report.add(line);
            }
            let choices: Vec<_> = choices.iter().map(|text| choice(text)).collect();
            report.verdict(&choices).is_ok()
        };
        let (one, failed) = (result(1, 0), result(1, 1));
        let two = ["hooks::one", "edges::two"];
        assert!(verdict(&[mount, &one, &one, END], &two));
        assert!(verdict(&[mount, &one, &one, END], &["hooks"]));
        // Ended early, on version 1, a test failed, or was not there, or none ran.
        assert!(!verdict(&[mount, &one, &one], &two));
        assert!(!verdict(&[&one, &one, END], &two));
        assert!(!verdict(&[mount, &one, &failed, END], &two));
        assert!(!verdict(&[mount, &one, END], &two));
        assert!(!verdict(&[mount, &result(0, 0), END], &["hooks"]));
    }
}
