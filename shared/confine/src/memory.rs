//! Giving memory back that a process keeps and has no use for any more: what the allocator
//! holds after it was freed, and the stack as deep as it once was.

/// How far below the present end of the stack it is given back: no process of ours has been
/// deeper than a third of this. The kernel maps nothing within 128 MiB below the main stack.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const STACK_BYTES: usize = 1 << 20;

/// What is left below it for the calls that give back the rest.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_STACK_BYTES: usize = 16 << 10;

/// Has the allocator give every whole page back to the kernel that is in nobody's use
/// (malloc_trim(3)). What it does by itself, at the end of the heap alone, one small
/// allocation that lives on there prevents. Takes about a millisecond for each few
/// MiB of heap; the next use of a page that was given back costs a page fault.
///
/// On the main thread the pages of the stack go too that are below its present end: taking
/// a pod apart, for example, needs 100 KiB of it for a moment. Stacks of other threads end
/// with them.
///
/// With another C library than glibc it does nothing.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes no pointer, and glibc guards its heaps by their locks.
        unsafe { nix::libc::malloc_trim(0) };
        if nix::unistd::gettid() == nix::unistd::getpid() {
            // SAFETY: this is the main thread, below whose stack nothing is mapped.
            unsafe { give_back_stack() };
        }
    }
}

/// Gives back what is between [`KEPT_STACK_BYTES`] and [`STACK_BYTES`] below the present
/// end of this thread's stack.
///
/// # Safety
/// All that is mapped in this range has to be of the stack.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[inline(never)]
unsafe fn give_back_stack() {
    const PAGE_BYTES: usize = 4096;
    let here = 0_u8;
    let end = (&raw const here).addr() / PAGE_BYTES * PAGE_BYTES - KEPT_STACK_BYTES;
    let start = end - STACK_BYTES;
    // SAFETY: who calls says that it is of the stack. What is below its end is in nobody's
    // use, but for the calls that are made from here, which have what is kept. The part
    // that is not mapped is passed over (madvise(2), ENOMEM).
    unsafe {
        let start = std::ptr::with_exposed_provenance_mut(start);
        nix::libc::madvise(start, STACK_BYTES, nix::libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// What one test takes, another would count.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

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
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Needs so much of the stack for a moment.
    #[inline(never)]
    fn go_deep(levels: usize) -> u8 {
        let page = std::hint::black_box([1_u8; 4096]);
        let deeper = levels.checked_sub(1).map_or(0, go_deep);
        page[levels % page.len()].wrapping_add(deeper)
    }

    #[test]
    fn a_stack_is_given_back_as_deep_as_it_was() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // Of the thread's own stack, which is larger than what is given back.
        let thread = std::thread::Builder::new().stack_size(4 * STACK_BYTES);
        let thread = thread.spawn(|| {
            let before = resident_bytes();
            go_deep(STACK_BYTES / 2 / 4096);
            let deep = resident_bytes().saturating_sub(before);
            // SAFETY: only this thread's stack is within reach.
            unsafe { give_back_stack() };
            (deep, resident_bytes().saturating_sub(before))
        });
        let (deep, kept) = thread.unwrap().join().unwrap();
        let half = (STACK_BYTES / 2) as u64;
        assert!(deep >= half, "{deep}");
        assert!(kept < half / 2, "{kept} bytes are kept");
    }
}
