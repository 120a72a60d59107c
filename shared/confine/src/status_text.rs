//! Fields of `/proc/PID/status` (proc_pid_status(5)).

/// The trimmed rest of the line that begins with `name:`.
pub(crate) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

pub(crate) fn hexadecimal_field(status: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(status, name)?, 16).ok()
}
