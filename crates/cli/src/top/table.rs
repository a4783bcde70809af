//! Tables whose least important columns go first.

use unicode_width::UnicodeWidthStr;

use crate::terminal::line::{Line, Tone, cut};

/// Names are cut to no less than this before a column goes.
pub(super) const NAME_MIN: usize = 24;

/// A longer name is cut, also if there is room.
pub(super) const NAME_MAX: usize = 64;

/// A text is cut to no less than this before a column goes.
const TEXT_MIN: usize = 13;

/// A meaning needs so many columns.
const MEANING_MIN: usize = 50;

/// Between two columns.
const GAP: usize = 2;

/// A column behind the name.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    /// The column with the highest rank goes first.
    pub(super) rank: u8,
}

/// The contents of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
    /// A sentence, which gets the rest of the line.
    Meaning,
}

pub(super) const fn number(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        kind: Kind::Number,
        rank,
    }
}

pub(super) const fn text(title: &'static str, rank: u8) -> Column {
    Column {
        title,
        kind: Kind::Text,
        rank,
    }
}

/// A cell.
pub(super) struct Cell {
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// Rows with a name each.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// Whether it is shown only where others leave room.
    pub(super) is_optional: bool,
    /// The line in place of rows if there are none.
    pub(super) empty: &'static str,
}

pub(super) struct Row {
    pub(super) name: Cell,
    /// One for each column.
    pub(super) cells: Vec<Cell>,
}

impl Row {
    /// Whether it is a text alone, which has the whole line.
    fn is_note(&self) -> bool {
        self.cells.iter().all(|cell| cell.text.is_empty())
    }
}

impl Table {
    pub(super) fn widest_name(&self) -> usize {
        let rows = self.rows.iter().filter(|row| !row.is_note());
        rows.map(|row| row.name.text.width())
            .max()
            .unwrap_or_default()
    }

    /// The width of its names, which take what its columns leave.
    fn width_of_names(&self, name_width: usize, columns: usize) -> usize {
        name_width.max(self.widest_name().min(self.room(columns)))
    }

    /// How many of the first rows have a name for two lines.
    pub(super) fn long_names(&self, rows: usize, name_width: usize, columns: usize) -> usize {
        let width = self.width_of_names(name_width, columns);
        let shown = self.rows.iter().take(rows);
        shown
            .filter(|row| !row.is_note() && halves(&row.name.text, width).is_some())
            .count()
    }

    /// The title, and at most so many rows. So many long names have two lines; others are cut.
    pub(super) fn lines(
        &self,
        rows_max: usize,
        mut long_names: usize,
        name_width: usize,
        columns: usize,
    ) -> Vec<Line> {
        let shown = &self.rows[..self.rows.len().min(rows_max)];
        let title = match shown.len() < self.rows.len() {
            true => format!("{} · {} of {}", self.title, shown.len(), self.rows.len()),
            false => self.title.clone(),
        };
        let name_width = self.width_of_names(name_width, columns);
        let layout = self.layout(name_width, columns);
        let mut head = Line::of(Tone::Strong, &cut(&title, name_width));
        let mut at = name_width;
        for (column, width) in &layout {
            let column = &self.columns[*column];
            align(&mut head, at, *width, column.kind, Tone::Dim, column.title);
            at += GAP + width;
        }
        let mut lines = vec![head];
        if shown.is_empty() {
            lines.push(Line::of(Tone::Dim, self.empty));
        }
        for row in shown {
            let name = &row.name;
            if row.is_note() {
                lines.push(Line::of(name.tone, &cut(&name.text, columns)));
                continue;
            }
            let halves = halves(&name.text, name_width).filter(|_| long_names > 0);
            let (first, second) = halves.unwrap_or((&name.text, ""));
            let mut line = Line::of(name.tone, &cut(first, name_width));
            let mut at = name_width;
            for (column, width) in &layout {
                let Cell { tone, text } = &row.cells[*column];
                let kind = self.columns[*column].kind;
                align(&mut line, at, *width, kind, *tone, text);
                at += GAP + width;
            }
            lines.push(line);
            if !second.is_empty() {
                long_names -= 1;
                let second = format!("{INDENT}{second}");
                lines.push(Line::of(name.tone, &cut(&second, name_width)));
            }
        }
        lines
    }

    /// The columns that all numbers and texts leave to names.
    fn room(&self, columns: usize) -> usize {
        let all = (0..self.columns.len()).filter(|at| self.columns[*at].kind != Kind::Meaning);
        let used: usize = all.map(|at| GAP + self.width(at, columns)).sum();
        columns.saturating_sub(used).min(NAME_MAX)
    }

    /// The columns that fit behind the name, with their widths.
    fn layout(&self, name_width: usize, columns: usize) -> Vec<(usize, usize)> {
        let mut kept: Vec<_> = (0..self.columns.len()).collect();
        loop {
            let least = kept.iter().map(|at| GAP + self.width_min(*at));
            let least = name_width + least.sum::<usize>();
            if let Some(mut spare) = columns.checked_sub(least) {
                let widths = kept.into_iter().map(|at| {
                    let more = self.width(at, columns) - self.width_min(at);
                    let more = more.min(spare);
                    spare -= more;
                    (at, self.width_min(at) + more)
                });
                return widths.collect();
            }
            let last = kept.iter().copied().max_by_key(|at| self.columns[*at].rank);
            let Some(last) = last else {
                return Vec::new();
            };
            kept.retain(|at| *at != last);
        }
    }

    fn width_min(&self, column: usize) -> usize {
        let width = self.width(column, MEANING_MIN);
        match self.columns[column].kind {
            Kind::Number | Kind::Meaning => width,
            Kind::Text => width.min(TEXT_MIN),
        }
    }

    /// The width of the longest text, or for a meaning that of the terminal.
    fn width(&self, column: usize, columns: usize) -> usize {
        let title = self.columns[column].title.width();
        match self.columns[column].kind {
            Kind::Meaning => columns.max(MEANING_MIN),
            Kind::Number | Kind::Text => {
                let cells = self.rows.iter().map(|row| row.cells[column].text.width());
                cells.max().unwrap_or_default().max(title)
            }
        }
    }
}

/// Before the second line of a name.
const INDENT: &str = "  ";

/// A text that is too long, divided at the last space that fits.
fn halves(text: &str, width: usize) -> Option<(&str, &str)> {
    if text.width() <= width {
        return None;
    }
    let spaces = text.match_indices(' ').map(|(at, _)| at);
    let fitting = spaces.take_while(|at| text[..*at].width() <= width);
    let (first, second) = text.split_at(fitting.last()?);
    Some((first, second.trim_start()))
}

fn align(line: &mut Line, at: usize, width: usize, kind: Kind, tone: Tone, text: &str) {
    let text = cut(text, width);
    let indent = match kind {
        Kind::Number => width - text.width(),
        Kind::Text | Kind::Meaning => 0,
    };
    line.pad_to(at + GAP + indent);
    line.add(tone, &text);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        number("REQ/S", 0),
        number("P50", 2),
        number("P99", 1),
        Column {
            title: "MEANING",
            kind: Kind::Meaning,
            rank: 3,
        },
    ];

    const STATES: &[Column] = &[text("STATE", 0), number("REQ/S", 1)];

    fn table(rows: usize) -> Table {
        let cell = |text: &str| Cell {
            tone: Tone::Plain,
            text: text.to_owned(),
        };
        let row = || Row {
            name: cell("app.example/api"),
            cells: vec![
                cell("12"),
                cell("1.2 ms"),
                cell("250 ms"),
                cell("A sentence."),
            ],
        };
        Table {
            title: "ROUTES".to_owned(),
            columns: COLUMNS,
            rows: (0..rows).map(|_| row()).collect(),
            is_optional: false,
            empty: "none",
        }
    }

    fn text_of(table: &Table, rows: usize, columns: usize) -> Vec<String> {
        let lines = table.lines(rows, 0, 20, columns);
        lines.iter().map(|line| line.text(columns, false)).collect()
    }

    #[test]
    fn the_least_important_columns_go_first() {
        assert_eq!(
            text_of(&table(1), 1, 43),
            [
                "ROUTES                REQ/S     P50     P99",
                "app.example/api          12  1.2 ms  250 ms",
            ]
        );
        assert_eq!(
            text_of(&table(1), 1, 42),
            [
                "ROUTES                REQ/S     P99",
                "app.example/api          12  250 ms",
            ]
        );
        assert_eq!(text_of(&table(1), 1, 30)[0], "ROUTES                REQ/S");
        assert_eq!(text_of(&table(1), 1, 10), ["ROUTES", "app.examp…"]);
        let wide = text_of(&table(1), 1, 100);
        assert!(wide[0].ends_with("P99  MEANING") && wide[1].ends_with("250 ms  A sentence."));
    }

    #[test]
    fn longer_names_take_the_room_that_columns_leave() {
        let mut table = table(1);
        table.columns = STATES;
        table.rows[0].name.text = "app.example/a/long/path".to_owned();
        let lines = table.lines(1, 0, 20, 43);
        assert_eq!(
            lines[1].text(43, false),
            "app.example/a/long/path  12     1.2 ms"
        );
        let lines = table.lines(1, 0, 20, 36);
        assert_eq!(
            lines[1].text(36, false),
            "app.example/a/long/p…  12     1.2 ms"
        );
    }

    #[test]
    fn long_names_have_two_lines_where_there_are_lines() {
        let mut table = table(2);
        table.columns = STATES;
        for row in &mut table.rows {
            row.name.text = "the upstream's certificate is too old".to_owned();
        }
        assert_eq!(table.long_names(1, 20, 36), 1);
        assert_eq!(table.long_names(2, 20, 70), 0);
        let lines = table.lines(2, 1, 20, 36);
        let lines: Vec<_> = lines.iter().map(|line| line.text(36, false)).collect();
        assert_eq!(
            lines[1..],
            [
                "the upstream's         12     1.2 ms",
                "  certificate is too…",
                "the upstream's certi…  12     1.2 ms"
            ]
        );
    }

    #[test]
    fn texts_are_cut_before_a_column_goes() {
        let mut table = table(1);
        table.columns = STATES;
        table.rows[0].cells[0].text = "no address: the name does not exist".to_owned();
        table.rows[0].cells[1].text = "1,234".to_owned();
        for (columns, row) in [
            (
                70,
                "app.example/api       no address: the name does not exist  1,234",
            ),
            (50, "app.example/api       no address: the name…  1,234"),
            (42, "app.example/api       no address: …  1,234"),
            (41, "app.example/api       no address: the na…"),
        ] {
            assert_eq!(text_of(&table, 1, columns)[1], row);
        }
    }

    #[test]
    fn a_title_says_how_many_rows_there_are() {
        assert_eq!(text_of(&table(5), 3, 30)[0], "ROUTES · 3 of 5       REQ/S");
        assert_eq!(text_of(&table(5), 3, 30).len(), 4);
        assert_eq!(text_of(&table(0), 3, 30)[1], "none");
    }
}
