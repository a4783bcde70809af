//! The lines of the result.

use super::comments::CommentLines;
use super::outline::{Outline, Statement, TableSection};
use super::text;
use super::value::{FormattedLine, Writer};

/// The whole text.
pub(super) fn arranged(outline: &Outline<'_>) -> String {
    let mut lines = Vec::new();
    comments(&outline.head, &mut lines);
    for section in &outline.sections {
        arrange(section, outline.writer, &mut lines);
    }
    if !outline.end.is_empty() {
        part(&mut lines);
        comments(&outline.end, &mut lines);
    }
    written(&lines)
}

fn arrange<'a>(
    section: &'a TableSection<'a>,
    writer: Writer<'a>,
    lines: &mut Vec<FormattedLine<'a>>,
) {
    let is_top = section.path.is_empty();
    if is_top && section.statements.is_empty() {
        return;
    }
    part(lines);
    if !is_top {
        before(&section.before, lines);
        let keys = text::dotted(&[], &section.path);
        let mut header = FormattedLine::new(match section.is_item {
            true => format!("[[{keys}]]"),
            false => format!("[{keys}]"),
        });
        header.comment = section.comment;
        lines.push(header);
    }
    for (at, statement) in section.statements.iter().enumerate() {
        let follows_footer = at > 0 && !section.statements[at - 1].footer.is_empty();
        let is_apart = statement
            .before
            .0
            .first()
            .is_some_and(|line| line.is_empty());
        if at > 0 && (is_apart || follows_footer) {
            part(lines);
        }
        arrange_statement(statement, &section.path, writer, lines);
    }
    comments(&section.footer, lines);
}

fn arrange_statement<'a>(
    statement: &'a Statement<'a>,
    path: &[&'a str],
    writer: Writer<'a>,
    lines: &mut Vec<FormattedLine<'a>>,
) {
    before(&statement.before, lines);
    let name = format!("{} = ", text::dotted(path, &statement.keys));
    let mut path = [path, &statement.keys].concat();
    writer.write(&name, &mut path, statement.value, "", lines);
    if let Some(last) = lines.last_mut() {
        last.comment = statement.comment;
    }
    comments(&statement.footer, lines);
}

fn comments<'a>(found: &CommentLines<'a>, lines: &mut Vec<FormattedLine<'a>>) {
    lines.extend(found.trimmed().iter().copied().map(FormattedLine::new));
}

/// Comments above a statement or a header. An empty line below them stays.
fn before<'a>(found: &CommentLines<'a>, lines: &mut Vec<FormattedLine<'a>>) {
    comments(found, lines);
    if !found.is_empty() && found.0.last().is_some_and(|line| line.is_empty()) {
        lines.push(FormattedLine::new(""));
    }
}

/// An empty line, but not at the beginning.
fn part(lines: &mut Vec<FormattedLine<'_>>) {
    if lines.last().is_some_and(|last| !last.text.is_empty()) {
        lines.push(FormattedLine::new(""));
    }
}

/// Longer lines have their comment two columns behind their end.
const COLUMN_MAX: usize = 60;

/// The text, with the comments of adjacent lines in one column.
fn written(lines: &[FormattedLine<'_>]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for (at, line) in lines.iter().enumerate() {
        text += &line.text;
        if let Some(comment) = line.comment {
            if at == 0 || width_before_comment(&lines[at - 1]).is_none() {
                let run = lines[at..].iter().map_while(width_before_comment);
                column = run.filter(|width| *width <= COLUMN_MAX).max().unwrap_or(0);
            }
            let width = width_before_comment(line).unwrap_or(COLUMN_MAX);
            text += &" ".repeat(column.saturating_sub(width) + 2);
            text += comment;
        }
        text.push('\n');
    }
    text
}

/// The columns of a line that shares the column of its comment with others; headers do not.
fn width_before_comment(line: &FormattedLine<'_>) -> Option<usize> {
    line.comment?;
    (!line.text.starts_with('[')).then(|| line.text.chars().count())
}
