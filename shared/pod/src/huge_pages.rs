//! Huge pages as resources: `hugepages-2Mi` and the like, one name a page size. How a
//! container may ask for them is in `pod-validation`.

use std::collections::BTreeMap;

use crate::quantity::Quantity;

/// What the names begin with; the page size follows, as a quantity of bytes.
pub const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// The page size in bytes that a resource's name tells; `None` for any other resource.
#[must_use]
pub fn page_size(resource: &str) -> Option<u64> {
    bytes(resource.strip_prefix(HUGE_PAGES_PREFIX)?)
}

/// A page size in bytes as names have it, `2Mi` for example; `None` if it is none.
#[must_use]
pub fn bytes(size: &str) -> Option<u64> {
    let size: Quantity = size.parse().ok()?;
    u64::try_from(size.value()).ok().filter(|size| *size > 0)
}

/// Bytes of huge pages by page size in bytes, of amounts by resource.
#[must_use]
pub fn by_page_size<'a>(
    amounts: impl IntoIterator<Item = (&'a str, Quantity)>,
) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for (name, amount) in amounts {
        if let Some(size) = page_size(name) {
            let bytes = u64::try_from(amount.value()).unwrap_or(0);
            let all: &mut u64 = pages.entry(size).or_default();
            *all = all.saturating_add(bytes);
        }
    }
    pages
}

/// A page size as the kernel names it in cgroups: 64KB, 2MB, 1GB.
#[must_use]
pub fn kernel_name(size_bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
    let mut amount = size_bytes;
    let mut unit = 0;
    while amount >= 1024 && amount.is_multiple_of(1024) && unit + 1 < UNITS.len() {
        amount /= 1024;
        unit += 1;
    }
    format!("{amount}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_page_size() {
        for (name, size) in [
            ("hugepages-2Mi", Some(2 << 20)),
            ("hugepages-2048Ki", Some(2 << 20)),
            ("hugepages-1Gi", Some(1 << 30)),
            ("hugepages-", None),
            ("hugepages-x", None),
            ("hugepages-0", None),
            ("hugepages--2Mi", None),
            ("memory", None),
        ] {
            assert_eq!(page_size(name), size, "{name}");
        }
    }

    #[test]
    fn amounts_are_found_by_page_size() {
        let amounts = [
            ("memory", "1Gi"),
            ("hugepages-2Mi", "6Mi"),
            ("hugepages-2048Ki", "2Mi"),
            ("hugepages-1Gi", "0"),
        ]
        .map(|(name, amount)| (name, amount.parse().unwrap()));
        let pages = [(2 << 20, 8 << 20), (1 << 30, 0)].into();
        assert_eq!(by_page_size(amounts), pages);
    }

    #[test]
    fn page_sizes_have_the_kernels_names() {
        for (bytes, name) in [
            (64 << 10, "64KB"),
            (2 << 20, "2MB"),
            (1 << 30, "1GB"),
            (16 << 30, "16GB"),
            (0, "0B"),
        ] {
            assert_eq!(kernel_name(bytes), name);
        }
    }
}
