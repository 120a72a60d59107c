//! Whether a program is static: its ELF headers name no loader. Not here: what
//! the program does.

/// Program header of the path of the loader (PT_INTERP).
const LOADER: u32 = 3;

/// Where the fields are in one of the two formats, 32 and 64 bits.
struct Format {
    /// Offset of the program headers' offset, and its width in bytes.
    headers_offset: (usize, usize),
    /// Offset of the size of one program header; the number of them follows.
    header_size: usize,
}

const FORMAT_32: Format = Format {
    headers_offset: (0x1c, 4),
    header_size: 0x2a,
};
const FORMAT_64: Format = Format {
    headers_offset: (0x20, 8),
    header_size: 0x36,
};

/// Whether these are the bytes of an ELF program that runs without a loader
/// and shared libraries. Not of one whose headers are cut off.
#[must_use]
pub fn is_static(program: &[u8]) -> bool {
    program_header_types(program).is_some_and(|types| !types.contains(&LOADER))
}

fn program_header_types(program: &[u8]) -> Option<Vec<u32>> {
    let rest = program.strip_prefix(b"\x7fELF")?;
    let (class, order) = (*rest.first()?, *rest.get(1)?);
    let format = match class {
        1 => FORMAT_32,
        2 => FORMAT_64,
        _ => return None,
    };
    let number = |offset: usize, width: usize| -> Option<usize> {
        let bytes = program.get(offset..offset.checked_add(width)?)?;
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = match order {
            1 => bytes.iter().rev().fold(0, append),
            2 => bytes.iter().fold(0, append),
            _ => return None,
        };
        usize::try_from(number).ok()
    };
    let first = number(format.headers_offset.0, format.headers_offset.1)?;
    let size = number(format.header_size, 2)?;
    let count = number(format.header_size + 2, 2)?;
    (0..count)
        .map(|index| {
            let offset = first.checked_add(index.checked_mul(size)?)?;
            u32::try_from(number(offset, 4)?).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers of a program for 64 bits, least byte first, with program
    /// headers of these types.
    fn program(types: &[u32]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(0x40, 0);
        bytes[0x20] = 0x40;
        bytes[0x36] = 0x38;
        bytes[0x38] = u8::try_from(types.len()).unwrap();
        for kind in types {
            bytes.extend(kind.to_le_bytes());
            bytes.resize(bytes.len() + 0x34, 0);
        }
        bytes
    }

    #[test]
    fn a_program_is_static_when_it_names_no_loader() {
        assert!(is_static(&program(&[1, 1, 6])));
        assert!(!is_static(&program(&[6, LOADER, 1])));
    }

    #[test]
    fn the_other_width_and_byte_order_are_read_too() {
        let mut bytes = b"\x7fELF\x01\x02\x01".to_vec();
        bytes.resize(0x34 + 0x20, 0);
        bytes[0x1f] = 0x34;
        bytes[0x2b] = 0x20;
        bytes[0x2d] = 1;
        bytes[0x37] = 1;
        assert!(is_static(&bytes));
        bytes[0x37] = 3;
        assert!(!is_static(&bytes));
    }

    #[test]
    fn what_is_no_whole_program_is_not_static() {
        let whole = program(&[1]);
        for length in [0, 3, 5, 0x38, 0x41] {
            assert!(!is_static(&whole[..length]), "{length} bytes");
        }
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn a_program_that_the_compiler_links_as_usual_needs_a_loader() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(!is_static(&own));
    }
}
