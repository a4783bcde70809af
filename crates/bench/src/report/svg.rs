//! Drawings as inline SVG. Colours, fonts and dashes are classes of the page's style sheet, so that one drawing suits
//! light, dark and printed pages.

use std::fmt::Write;

use super::escape::Html;

/// A point, in units of the drawing, from the upper left corner.
pub(crate) type Point = (f64, f64);

/// A drawing.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty drawing.
    pub(crate) fn new(width: f64, height: f64) -> Svg {
        let body = String::new();
        Svg {
            width,
            height,
            body,
        }
    }

    /// Begins a group; a title is the tooltip of its parts.
    pub(crate) fn open(&mut self, class: &str, title: &str) {
        let _ = write!(self.body, r#"<g class="{class}">"#);
        if !title.is_empty() {
            let _ = write!(self.body, "<title>{}</title>", Html(title));
        }
    }

    /// Ends a group.
    pub(crate) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: Point, to: Point) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let (x1, y1, x2, y2) = (short(x1), short(y1), short(x2), short(y2));
        let _ = write!(
            self.body,
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        );
    }

    /// Lines through points. Nothing for fewer than two.
    pub(crate) fn polyline(&mut self, class: &str, points: &[Point]) {
        if points.len() < 2 {
            return;
        }
        let _ = write!(self.body, r#"<polyline class="{class}" points=""#);
        for (index, &(x, y)) in points.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            let _ = write!(self.body, "{space}{},{}", short(x), short(y));
        }
        self.body.push_str("\"/>");
    }

    /// A path, moved to `at`.
    pub(crate) fn path(&mut self, class: &str, at: Point, path: &str) {
        let (x, y) = (short(at.0), short(at.1));
        let _ = write!(
            self.body,
            r#"<path class="{class}" transform="translate({x} {y})" d="{path}"/>"#
        );
    }

    /// A rectangle. Its size is not negative.
    pub(crate) fn rect(&mut self, class: &str, at: Point, size: (f64, f64)) {
        let (x, y) = (short(at.0), short(at.1));
        let (width, height) = (short(size.0.max(0.0)), short(size.1.max(0.0)));
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        );
    }

    /// A filled circle.
    pub(crate) fn circle(&mut self, class: &str, at: Point, radius: f64) {
        let (x, y, r) = (short(at.0), short(at.1), short(radius));
        let _ = write!(
            self.body,
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#
        );
    }

    /// One line of text, on the base line `at`.
    pub(crate) fn text(&mut self, class: &str, at: Point, anchor: Anchor, text: &str) {
        let (x, y) = (short(at.0), short(at.1));
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = Html(text);
        let _ = write!(
            self.body,
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// The element. `description` replaces the drawing for those who do not see it.
    pub(crate) fn finish(self, description: &str) -> String {
        let (width, height) = (short(self.width), short(self.height));
        let description = Html(description);
        let body = self.body;
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" style=\"--w:{width}px\" role=\"img\" \
             aria-label=\"{description}\">{body}</svg>"
        )
    }
}

/// The text, cut to so many characters.
pub(crate) fn cut(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let kept = characters_max.saturating_sub(1);
    text.chars().take(kept).chain(['…']).collect()
}

/// A coordinate with at most one decimal.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_titles_are_escaped() {
        let mut svg = Svg::new(10.0, 20.5);
        svg.open("series", "<b>");
        svg.text("tick", (1.0, 2.04), Anchor::End, "a & b");
        svg.close();
        assert_eq!(
            svg.finish("\"quoted\""),
            "<svg viewBox=\"0 0 10 20.5\" style=\"--w:10px\" role=\"img\" \
             aria-label=\"&quot;quoted&quot;\"><g class=\"series\"><title>&lt;b&gt;</title>\
             <text class=\"tick\" x=\"1\" y=\"2\" text-anchor=\"end\">a &amp; b</text></g></svg>"
        );
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(cut("blitz", 5), "blitz");
        assert_eq!(cut("blitz-proxy", 6), "blitz…");
    }

    #[test]
    fn one_point_is_no_line() {
        let mut svg = Svg::new(1.0, 1.0);
        svg.polyline("line", &[(0.0, -0.04)]);
        assert!(!svg.finish("").contains("polyline"));
        assert_eq!([short(-0.04), short(2.55), short(3.0)], ["0", "2.5", "3"]);
    }
}
