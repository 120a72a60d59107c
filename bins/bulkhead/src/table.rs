//! Text in columns, as kubectl prints it.

/// Spaces between two columns.
const GAP: usize = 3;

/// Aligns rows under headings; the last column is not padded.
pub(crate) fn render(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings
        .iter()
        .map(|heading| heading.chars().count())
        .collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let headings: Vec<String> = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    std::iter::once(&headings)
        .chain(rows)
        .map(|row| line(row, &widths))
        .collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in row.iter().zip(widths) {
        line += cell;
        let padding = (width + GAP).saturating_sub(cell.chars().count());
        line.extend(std::iter::repeat_n(' ', padding));
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![
            vec!["a".to_owned(), "bb".to_owned()],
            vec!["ccccc".to_owned(), String::new()],
        ];
        assert_eq!(render(&["X", "Y"], &rows), "X       Y\na       bb\nccccc\n");
    }
}
