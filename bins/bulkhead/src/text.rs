//! Text that grows line by line.

use crate::escape::plain;

/// Where values begin.
pub(crate) const VALUE_COLUMN: usize = 20;

/// Text that grows line by line; what comes from elsewhere cannot steer the
/// terminal.
#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn heading(&mut self, heading: &str) {
        self.0 += heading;
        self.0 += ":\n";
    }

    pub(crate) fn line(&mut self, depth: usize, line: &str) {
        self.0 += &" ".repeat(depth * 2);
        self.0 += plain(line).trim_end();
        self.0.push('\n');
    }

    /// `Key:  value`, with values in one column.
    pub(crate) fn field(&mut self, depth: usize, key: &str, value: &str) {
        let width = VALUE_COLUMN.saturating_sub(depth * 2);
        self.line(depth, &format!("{:<width$}{value}", format!("{key}:")));
    }

    pub(crate) fn optional(&mut self, depth: usize, key: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value.filter(|value| !value.as_ref().is_empty()) {
            self.field(depth, key, value.as_ref());
        }
    }

    /// Several values below one another.
    pub(crate) fn values(&mut self, depth: usize, key: &str, values: &[String]) {
        for (index, value) in values.iter().enumerate() {
            if index == 0 {
                self.field(depth, key, value);
            } else {
                let indent = VALUE_COLUMN.saturating_sub(depth * 2);
                self.line(depth, &format!("{}{value}", " ".repeat(indent)));
            }
        }
    }

    /// Lines that are made already, indented.
    pub(crate) fn block(&mut self, block: &str) {
        for line in block.lines() {
            self.0 += "  ";
            self.0 += line;
            self.0.push('\n');
        }
    }
}
