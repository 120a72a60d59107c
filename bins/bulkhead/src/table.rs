//! Text in columns, as kubectl prints it.

/// Spaces between two columns.
const GAP: usize = 3;

/// Most letters of a cell; an event's message has half of that.
const MAX_CELL: usize = 2_048;

/// Widest column. A cell that is wider stands out of its row: it widens no other one.
const MAX_WIDTH: usize = 256;

/// How a cell is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing special.
    Plain,
    /// As it should be.
    Good,
    /// On its way, or worth a look.
    Notable,
    /// Wrong.
    Bad,
}

impl Tone {
    fn escape(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some("\x1b[32m"),
            Tone::Notable => Some("\x1b[33m"),
            Tone::Bad => Some("\x1b[31m"),
        }
    }

    /// `text` in the colour of the tone.
    pub(crate) fn paint(self, text: &str, colours: bool) -> String {
        match self.escape().filter(|_| colours && !text.is_empty()) {
            Some(escape) => format!("{escape}{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}

/// A cell: text without control characters, and its tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    /// A cell of some tone, cut where it is too long.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        let mut text = text.into();
        if let Some((end, _)) = text.char_indices().nth(MAX_CELL) {
            text.truncate(end);
            text += "...";
            text.shrink_to_fit();
        }
        Cell { text, tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// Aligns rows under headings; the last column is not padded.
pub(crate) fn render(headings: &[&str], rows: &[Vec<Cell>], colours: bool) -> String {
    let mut columns = Columns::new(headings);
    columns.fit(rows);
    let mut text = columns.headings(headings, colours);
    text.extend(rows.iter().map(|row| columns.line(row, colours)));
    text
}

/// The widths of a table that may grow after it was begun.
#[derive(Clone, Debug)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    /// As wide as the headings.
    pub(crate) fn new(headings: &[&str]) -> Columns {
        Columns(headings.iter().map(|heading| width(heading)).collect())
    }

    /// Widens columns to what the rows need.
    pub(crate) fn fit(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            for (widest, cell) in self.0.iter_mut().zip(row) {
                *widest = (*widest).max(width(&cell.text).min(MAX_WIDTH));
            }
        }
    }

    /// The headings as a line.
    pub(crate) fn headings(&self, headings: &[&str], colours: bool) -> String {
        let row: Vec<Cell> = headings.iter().map(|&heading| heading.into()).collect();
        self.line(&row, colours)
    }

    /// A row as a line.
    pub(crate) fn line(&self, row: &[Cell], colours: bool) -> String {
        let mut line = String::new();
        let mut padding = 0;
        for (cell, widest) in row.iter().zip(&self.0) {
            // An empty cell at the end leaves no blanks behind.
            if !cell.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', padding));
                line += &cell.tone.paint(&cell.text, colours);
                padding = 0;
            }
            padding += widest + GAP - width(&cell.text).min(*widest);
        }
        line.push('\n');
        line
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["a".into(), "bb".into()],
            vec!["ccccc".into(), "".into()],
        ];
        assert_eq!(
            render(&["X", "Y"], &rows, false),
            "X       Y\na       bb\nccccc\n"
        );
    }

    #[test]
    fn a_cell_that_is_too_wide_is_still_apart_from_the_next() {
        let mut columns = Columns::new(&["X", "Y"]);
        let row = vec!["abc".into(), "d".into()];
        assert_eq!(columns.line(&row, false), "abc   d\n");
        columns.fit(&[row]);
        assert_eq!(columns.line(&["a".into(), "d".into()], false), "a     d\n");
    }

    #[test]
    fn a_cell_of_any_length_is_cut_and_makes_no_other_row_longer() {
        let long = vec!["\u{e4}".repeat(1 << 20).into(), "b".into()];
        let short = vec!["a".into(), "b".into()];
        let text = render(&["X", "Y"], &[long, short], false);
        let lines: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lines[1], MAX_CELL + "...   b".len());
        assert_eq!(lines[2], MAX_WIDTH + GAP + 1);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let rows = vec![vec![Cell::toned("ok", Tone::Good), "b".into()]];
        assert_eq!(
            render(&["STATE", "Y"], &rows, true),
            "STATE   Y\n\x1b[32mok\x1b[0m      b\n"
        );
        assert_eq!(
            render(&["STATE", "Y"], &rows, false),
            "STATE   Y\nok      b\n"
        );
    }
}
