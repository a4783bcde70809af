//! Bars, sparklines and wrapped text.

/// Eighths of a cell, from the left.
const EIGHTHS_LEFT: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Eighths of a cell, from below.
const EIGHTHS_BELOW: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar of this share of the width, followed by spaces.
pub(super) fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS_LEFT[eighths % 8]);
    }
    let filled = bar.chars().count();
    bar + &" ".repeat(width.saturating_sub(filled))
}

/// Values over time, one cell each. Where there are more values than cells, a cell shows the lowest of its values, so
/// that no gap disappears. A value above zero is never empty.
pub(super) fn sparkline(values: &[f64], largest: f64, width: usize) -> String {
    let per_cell = values.len().div_ceil(width.max(1)).max(1);
    let cells = values.chunks(per_cell).map(|chunk| {
        let lowest = chunk.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        let share = if largest > 0.0 { lowest / largest } else { 0.0 };
        let eighths = (share.clamp(0.0, 1.0) * 8.0).round() as usize;
        EIGHTHS_BELOW[eighths.max(usize::from(lowest > 0.0))]
    });
    cells.collect()
}

/// Lines of at most so many characters, broken at spaces. A longer word has a line of its own.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_a_resolution_of_an_eighth() {
        assert_eq!(
            [0.0, 0.5, 1.0, 2.0].map(|share| bar(share, 3)),
            ["   ", "█▌ ", "███", "███"]
        );
        assert_eq!(bar(f64::NAN, 2), "  ");
    }

    #[test]
    fn a_gap_stays_visible_in_a_sparkline() {
        assert_eq!(sparkline(&[8.0, 4.0, 0.0, 0.1], 8.0, 4), "█▄ ▁");
        assert_eq!(sparkline(&[8.0, 8.0, 0.0, 8.0], 8.0, 2), "█ ");
        assert_eq!(sparkline(&[], 0.0, 2), "");
    }

    #[test]
    fn words_are_kept_whole() {
        assert_eq!(
            wrap("one two three incomprehensible", 8),
            ["one two", "three", "incomprehensible"]
        );
    }
}
