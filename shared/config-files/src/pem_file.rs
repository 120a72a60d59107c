//! Files with certificates or keys.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Largest one: a bundle of authorities has some KiB each.
const MAX_BYTES: u64 = 1 << 20;

/// What is in a file in PEM, as far as it is read.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}
