//! Huge pages of the machine. Blocking.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Bytes of huge pages that are set aside, by page size, from directories like
/// `hugepages-2048kB`; none on a kernel without huge pages.
pub(super) fn huge_pages(sys_dir: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(sys_dir.join("kernel/mm/hugepages"))
        .into_iter()
        .flatten()
        .flatten();
    let pages = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let size = kilobytes.parse::<u64>().ok()?.checked_mul(1024)?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages"));
        let count: u64 = count.map_or(0, |count| count.trim().parse().unwrap_or(0));
        Some((size, size.saturating_mul(count)))
    });
    pages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_those_that_the_kernel_has_set_aside() {
        let sys = tempfile::tempdir().unwrap();
        assert!(huge_pages(sys.path()).is_empty());
        for name in [
            "hugepages-1048576kB",
            "hugepages-2048kB",
            "other",
            "hugepages-xkB",
        ] {
            fs::create_dir_all(sys.path().join("kernel/mm/hugepages").join(name)).unwrap();
        }
        let small = sys.path().join("kernel/mm/hugepages/hugepages-2048kB");
        fs::write(small.join("nr_hugepages"), "3\n").unwrap();
        let expected = [(2 << 20, 6 << 20), (1 << 30, 0)];
        assert_eq!(huge_pages(sys.path()), expected.into());
    }
}
