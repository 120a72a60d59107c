//! Sets of capabilities, and taking them from the calling process.

use std::fmt;
use std::io;

use nix::libc;
use topology::Capability;

/// Highest capability number that is ever asked for: the kernel's masks have 64
/// bits.
const MASK_BITS: u8 = 64;

/// Version 3 of the kernel's capability structures: two 32-bit words a mask.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// A set of Linux capabilities, as the kernel's bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySet(u64);

/// A name that capabilities(7) does not list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no capability {0}")]
pub struct UnknownCapability(pub String);

impl CapabilitySet {
    /// No capability.
    pub const EMPTY: CapabilitySet = CapabilitySet(0);

    /// The set with exactly this kernel mask.
    #[must_use]
    pub fn from_mask(mask: u64) -> CapabilitySet {
        CapabilitySet(mask)
    }

    /// The set of these names.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn of(
        names: impl IntoIterator<Item = Capability>,
    ) -> Result<CapabilitySet, UnknownCapability> {
        names
            .into_iter()
            .try_fold(CapabilitySet::EMPTY, |set, name| {
                let capability: caps::Capability = name
                    .0
                    .parse()
                    .map_err(|_error| UnknownCapability(name.0.to_owned()))?;
                Ok(CapabilitySet(set.0 | capability.bitmask()))
            })
    }

    /// What the calling thread may use and hand on: permitted and still in its
    /// bounding set.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn available() -> io::Result<CapabilitySet> {
        let status = std::fs::read_to_string("/proc/thread-self/status")?;
        let permitted = crate::status_text::hexadecimal_field(&status, "CapPrm").unwrap_or(0);
        let bounding = crate::status_text::hexadecimal_field(&status, "CapBnd").unwrap_or(0);
        Ok(CapabilitySet(permitted & bounding))
    }

    /// The kernel's mask.
    #[must_use]
    pub fn mask(self) -> u64 {
        self.0
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 & other.0)
    }

    /// What is in either.
    #[must_use]
    pub fn union(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 | other.0)
    }

    /// What is in `self` and not in `other`.
    #[must_use]
    pub fn without(self, other: CapabilitySet) -> CapabilitySet {
        CapabilitySet(self.0 & !other.0)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many it has.
    #[must_use]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn contains_number(self, number: u8) -> bool {
        number < MASK_BITS && self.0 & (1 << number) != 0
    }
}

/// Names in numeric order, separated by spaces; a number where this version
/// knows no name.
impl fmt::Display for CapabilitySet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for number in (0..MASK_BITS).filter(|number| self.contains_number(*number)) {
            formatter.write_str(separator)?;
            separator = " ";
            match caps::all()
                .into_iter()
                .find(|named| named.index() == number)
            {
                Some(named) => write!(formatter, "{named}")?,
                None => write!(formatter, "capability {number}")?,
            }
        }
        Ok(())
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets permitted and effective to `usable` and inheritable to `inheritable`,
/// for the calling thread. Async-signal-safe.
pub(crate) fn set_thread(usable: CapabilitySet, inheritable: CapabilitySet) -> io::Result<()> {
    let header = CapabilityHeader {
        version: CAPABILITY_VERSION_3,
        pid: 0,
    };
    let word = |shift: u32| CapabilityWord {
        effective: low_word(usable.0 >> shift),
        permitted: low_word(usable.0 >> shift),
        inheritable: low_word(inheritable.0 >> shift),
    };
    let words = [word(0), word(32)];
    // SAFETY: header and words are the structures that version 3 of the call
    // reads, they live until it returns, and it writes only to the header's
    // version, which `header` being a local copy makes harmless.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn low_word(mask: u64) -> u32 {
    u32::try_from(mask & u64::from(u32::MAX)).unwrap_or(0)
}

/// Takes everything outside `keep` from the bounding set of the calling thread.
/// Async-signal-safe. Needs CAP_SETPCAP when there is anything to take.
pub(crate) fn drop_bounding(keep: CapabilitySet) -> io::Result<()> {
    for number in (0..MASK_BITS).filter(|number| !keep.contains_number(*number)) {
        // SAFETY: takes integers only.
        let present =
            unsafe { libc::prctl(libc::PR_CAPBSET_READ, libc::c_ulong::from(number), 0, 0, 0) };
        // Negative: the kernel has no capability of this number.
        if present != 1 {
            continue;
        }
        // SAFETY: takes integers only.
        let dropped =
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if dropped != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lowers the calling process to `keep`: permitted, effective and bounding. Call
/// it before any other thread exists, since each thread has its own sets.
/// What is not available in the first place is left out and returned.
///
/// # Errors
/// When the kernel refuses; the process may then hold a part of what it had.
pub fn reduce_to(keep: CapabilitySet) -> io::Result<CapabilitySet> {
    let available = CapabilitySet::available()?;
    let held = keep.intersection(available);
    drop_bounding(held)?;
    set_thread(held, CapabilitySet::EMPTY)?;
    Ok(keep.without(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_masks_and_back() {
        let set = CapabilitySet::of([Capability("CAP_CHOWN"), Capability("CAP_KILL")]).unwrap();
        assert_eq!(set.mask(), 0b10_0001);
        assert_eq!(set.to_string(), "CAP_CHOWN CAP_KILL");
        assert_eq!(
            CapabilitySet::of([Capability("CAP_FLY")]),
            Err(UnknownCapability("CAP_FLY".to_owned()))
        );
    }

    #[test]
    fn every_capability_of_the_topology_exists() {
        for row in topology::PROCESSES {
            let names = row.capabilities.iter().map(|(name, _reason)| *name);
            let set = CapabilitySet::of(names).unwrap();
            assert_eq!(
                set.len() as usize,
                row.capabilities.len(),
                "{}",
                row.process
            );
        }
    }

    #[test]
    fn sets_are_united_intersected_and_subtracted_number_by_number() {
        let (low, high) = (CapabilitySet(0b0011), CapabilitySet(0b0110));
        assert_eq!(low.union(high).mask(), 0b0111);
        assert_eq!(low.intersection(high).mask(), 0b0010);
        assert_eq!(low.without(high).mask(), 0b0001);
        assert!(CapabilitySet(1 << 63).contains_number(63));
        assert!(!CapabilitySet(u64::MAX).contains_number(64));
    }
}
