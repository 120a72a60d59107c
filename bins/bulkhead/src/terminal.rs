//! The terminal at standard output: how large it is.

/// Columns and rows of the terminal at standard output, if there is one that tells.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
