//! The terminal at standard output: how large it is, and to have all of it for a while.

use std::io::{self, Write as _};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};

/// Columns and rows of the terminal at standard output, if there is one that tells.
pub(crate) fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The whole terminal, with keys told one by one and not shown. As it ends, by whatever
/// way, the terminal is as it was.
pub(crate) struct FullScreen {
    before: Termios,
}

impl FullScreen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When standard input is none.
    pub(crate) fn enter() -> io::Result<FullScreen> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut keys = before.clone();
        // Control-C and the like are keys too: a signal would end the program before
        // the terminal is given back, and control-Z would leave it as it is.
        let line_by_line = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        keys.local_modes.remove(line_by_line);
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        let screen = FullScreen { before };
        print(ENTER)?;
        Ok(screen)
    }

    /// What shows these lines instead of those before, without a flicker.
    pub(crate) fn frame(lines: &[String]) -> String {
        let mut frame = "\x1b[H".to_owned();
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                frame += "\r\n";
            }
            frame += line;
            frame += "\x1b[K";
        }
        frame + "\x1b[J"
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        // Where the terminal is gone, there is nothing to give back.
        let _ = print(LEAVE);
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_begins_above_and_clears_what_it_does_not_fill() {
        let lines = ["one".to_owned(), "two".to_owned()];
        assert_eq!(
            FullScreen::frame(&lines),
            "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J"
        );
    }
}
