//! Text in columns, as kubectl prints it.

/// Spaces between two columns.
const GAP: usize = 3;

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
    /// A cell of some tone.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell {
            text: text.into(),
            tone,
        }
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
                *widest = (*widest).max(width(&cell.text));
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
