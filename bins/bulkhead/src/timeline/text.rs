//! A timeline as text. Pure.

use super::chart::{Chart, Kind};
use super::place::{Bar, PlacedLane, place};
use crate::escape::plain;
use crate::table::{self, Cell, Tone};

/// Longest name of a lane that is shown, and not more than half of the width.
const MAX_NAME: usize = 32;

/// Columns between names and bars.
const GAP: usize = 2;

/// Longest words about one span or mark.
const MAX_WORDS: usize = 200;

/// How a timeline is to be printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Columns of all.
    pub(super) width: usize,
    pub(super) colours: bool,
    /// Letters that every printer has.
    pub(super) ascii: bool,
}

impl Look {
    fn glyph(self, kind: Kind) -> char {
        match (kind, self.ascii) {
            (Kind::Preparing, false) => '░',
            (Kind::Preparing, true) => '-',
            (Kind::Pulling, false) => '▒',
            (Kind::Pulling, true) => '~',
            (Kind::Waiting, false) => '·',
            (Kind::Waiting, true) => '.',
            (Kind::Running, false) => '█',
            (Kind::Running, true) => '=',
            (Kind::Failed, false) => '▓',
            (Kind::Failed, true) => '#',
        }
    }
}

fn tone(kind: Kind) -> Tone {
    match kind {
        Kind::Preparing | Kind::Waiting => Tone::Plain,
        Kind::Pulling => Tone::Notable,
        Kind::Running => Tone::Good,
        Kind::Failed => Tone::Bad,
    }
}

fn mark(tone: Tone) -> char {
    match tone {
        Tone::Bad => '!',
        Tone::Notable => '*',
        Tone::Plain | Tone::Good => '|',
    }
}

/// The picture, its legend, and all that it shows in words.
pub(super) fn render(chart: &Chart, look: Look) -> String {
    let most = MAX_NAME.min(look.width / 2);
    let names = chart.lanes.iter().map(|lane| name(&lane.name, most));
    let names: Vec<String> = names.collect();
    let name_width = names.iter().map(|name| name.chars().count()).max();
    let name_width = name_width.unwrap_or(0) + GAP;
    let width = look.width.saturating_sub(name_width);
    let placed = place(chart, width, 1);
    let mut axis = vec![' '; width];
    for tick in &placed.ticks {
        let letters = axis.iter_mut().skip(tick.label_at).zip(tick.label.chars());
        letters.for_each(|(cell, letter)| *cell = letter);
    }
    let axis: String = axis.into_iter().collect();
    let mut text = format!("{:name_width$}{}\n", "", axis.trim_end());
    for (name, lane) in names.iter().zip(&placed.lanes) {
        text += &format!("{name:<name_width$}{}\n", row(lane, width, look));
    }
    text += &legend(look);
    text += &words(chart, look.colours);
    text
}

fn name(name: &str, most: usize) -> String {
    shortened(&plain(name), most)
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(3)).collect();
    kept + "..."
}

/// One lane: waits below what else there is, marks above all.
fn row(lane: &PlacedLane, width: usize, look: Look) -> String {
    let mut cells = vec![(' ', Tone::Plain); width];
    let (below, above): (Vec<&Bar>, Vec<&Bar>) =
        lane.bars.iter().partition(|bar| bar.kind == Kind::Waiting);
    for bar in below.into_iter().chain(above) {
        for cell in &mut cells[bar.from..bar.to] {
            *cell = (look.glyph(bar.kind), tone(bar.kind));
        }
        if bar.goes_on {
            cells[bar.to - 1] = ('>', tone(bar.kind));
        }
    }
    for point in &lane.points {
        cells[point.at] = (mark(point.tone), point.tone);
    }
    while cells.last().is_some_and(|(letter, _)| *letter == ' ') {
        cells.pop();
    }
    let same_tone = cells.chunk_by(|left, right| left.1 == right.1);
    let painted = same_tone.map(|cells| {
        let letters: String = cells.iter().map(|(letter, _)| letter).collect();
        cells[0].1.paint(&letters, look.colours)
    });
    painted.collect()
}

fn legend(look: Look) -> String {
    let kinds = Kind::ALL.map(|kind| {
        let glyph = tone(kind).paint(&look.glyph(kind).to_string(), look.colours);
        format!("{glyph} {}", kind.word())
    });
    format!(
        "\n{}\n> goes on   ! trouble   * event   | earlier start\n\
         The axis is not to scale: long times are drawn shorter.\n\n",
        kinds.join("   ")
    )
}

/// All spans and marks in words, the earliest first.
fn words(chart: &Chart, colours: bool) -> String {
    let mut rows = Vec::new();
    for lane in &chart.lanes {
        let mut add = |at, words: &str, tone| {
            let words = shortened(&plain(words), MAX_WORDS);
            let cells: Vec<Cell> = vec![
                chart.offset(at).into(),
                name(&lane.name, MAX_NAME).into(),
                Cell::toned(words, tone),
            ];
            rows.push((at, cells));
        };
        for span in &lane.spans {
            add(span.begin, &chart.words_of(span), tone(span.kind));
        }
        for mark in &lane.marks {
            add(mark.at, &mark.title, mark.tone);
        }
    }
    rows.sort_by_key(|(at, _)| *at);
    let rows: Vec<Vec<Cell>> = rows.into_iter().map(|(_, cells)| cells).collect();
    table::render(&["AT", "WHAT", "HAPPENED"], &rows, colours)
}
