//! Giving memory back that the allocator keeps after it was freed.

/// Has the allocator give every whole page back to the kernel that is in nobody's use
/// (malloc_trim(3)). What it does by itself, at the end of the heap alone, one small
/// allocation that lives on there prevents. Takes about a millisecond for each few
/// MiB of heap; the next use of a page that was given back costs a page fault.
///
/// With another C library than glibc it does nothing.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes no pointer, and glibc guards its heaps by their locks.
        unsafe { nix::libc::malloc_trim(0) };
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_bytes() -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kib = line.unwrap().trim().strip_suffix("kB").unwrap();
        kib.trim().parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn freed_memory_below_something_in_use_is_given_back() {
        const PIECES: usize = 40_000;
        const PIECE: usize = 1000;
        let before = resident_bytes();
        let mut pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; PIECE]).collect();
        // The last piece stays and keeps the end of the heap where it is.
        let last = pieces.pop();
        drop(pieces);
        give_back_memory();
        let kept = resident_bytes().saturating_sub(before);
        assert!(last.is_some());
        assert!(kept < (PIECES * PIECE / 4) as u64, "{kept} bytes are kept");
    }
}
