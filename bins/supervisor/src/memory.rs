//! Memory use of a process, from `/proc/PID/smaps_rollup`.

/// In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// What is in memory.
    pub(crate) resident_bytes: u64,
    /// The same with each shared page divided by its users.
    pub(crate) proportional_bytes: u64,
}

impl Memory {
    /// Reads it; `None` when the process is gone or may not be looked at.
    pub(crate) fn of(pid: u32) -> Option<Memory> {
        if pid == 0 {
            return None;
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        Memory::parse(&text)
    }

    fn parse(text: &str) -> Option<Memory> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Memory {
            resident_bytes: field("Rss:")?,
            proportional_bytes: field("Pss:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roll_up_is_understood() {
        let text = "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:   2048 kB\nPss:   1024 kB\nPss_Dirty: 1 kB\n";
        let memory = Memory {
            resident_bytes: 2 << 20,
            proportional_bytes: 1 << 20,
        };
        assert_eq!(Memory::parse(text), Some(memory));
        assert_eq!(Memory::parse("Rss: many kB\nPss: 1 kB\n"), None);
    }

    #[test]
    fn our_own_use_is_readable_and_that_of_nobody_is_not() {
        assert!(Memory::of(std::process::id()).unwrap().resident_bytes > 0);
        assert_eq!(Memory::of(0), None);
        assert_eq!(Memory::of(u32::MAX), None);
    }
}
