//! How the processes' allocator is told to keep little, whoever starts them.

/// Variables of each process (mallopt(3)): one arena, since each of them computes on one
/// thread, and fixed thresholds, so that one large message does not raise for good what is
/// kept for the next. And without two caches (tunables in the C library's manual): of free
/// pieces for each thread, which malloc_trim(3) does not empty, so each of hundreds of small
/// pieces would keep a page; and of the stacks of threads that have ended.
pub const ALLOCATOR_VARIABLES: [(&str, &str); 4] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    (
        "GLIBC_TUNABLES",
        "glibc.malloc.tcache_count=0:glibc.pthread.stack_cache_size=0",
    ),
];
