//! Tables of a page. They scroll on their own where the page is narrow.

use std::fmt::Write;

use super::super::escape::Html;
use super::super::grid::{Cell, Grid, is_number};
use super::super::model::ConclusionKind;

/// Longer names may be broken into lines.
const NAME_CHARACTERS: usize = 24;

/// A table. The first cell of each row is its heading.
pub(super) fn write(out: &mut String, grid: &Grid) {
    let caption = Html(&grid.caption);
    let _ = write!(
        out,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table>\n\
         <caption>{caption}</caption>\n<thead><tr>"
    );
    for column in &grid.columns {
        let class = class(is_number(column));
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", Html(&column.title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &grid.rows {
        out.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let is_number = grid.columns.get(index).is_some_and(is_number);
            write_cell(out, cell, index, is_number, grid.columns.len() - index);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// `rest` is the number of columns from this one to the last.
fn write_cell(out: &mut String, cell: &Cell, index: usize, is_number: bool, rest: usize) {
    let text = Html(cell.text());
    let _ = match cell {
        Cell::Value(_) if index == 0 => {
            let class = match cell.text().chars().count() <= NAME_CHARACTERS {
                true if !is_number => " class=\"name\"",
                _ => class(is_number),
            };
            write!(out, "<th scope=\"row\"{class}>{text}</th>")
        }
        Cell::Value(_) => write!(out, "<td{}>{text}</td>", class(is_number)),
        Cell::Verdict(words, kind) => {
            let badge = match kind {
                // The words say the same.
                ConclusionKind::Equal | ConclusionKind::Undecided => String::new(),
                kind => super::badge(*kind),
            };
            let _ = write!(out, "<td class=\"compared\">{badge}");
            write_compared(out, words);
            write!(out, "</td>")
        }
        Cell::Absent(_) => write!(out, "<td class=\"absent\" colspan=\"{rest}\">{text}</td>"),
    };
}

/// A difference, and its interval on a line of its own where the column is narrow.
fn write_compared(out: &mut String, words: &str) {
    let _ = match words.split_once(" (") {
        Some((difference, interval)) => {
            let (difference, interval) = (Html(difference), Html(interval));
            write!(
                out,
                "<span>{difference}</span> <span class=\"small\">({interval}</span>"
            )
        }
        None => write!(out, "{}", Html(words)),
    };
}

fn class(is_number: bool) -> &'static str {
    if is_number { " class=\"number\"" } else { "" }
}
