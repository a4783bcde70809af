//! Reports: one model, and its forms for browsers, documents, terminals and programs.

mod axis;
mod chart;
mod csv;
pub(crate) mod escape;
mod grid;
mod html;
mod load;
mod markdown;
mod model;
mod schema;
mod settled;
mod style;
mod svg;
mod terminal;
mod wording;

use crate::load_result::LoadResult;

pub use csv::{percentiles_csv, timeline_csv};
pub(crate) use escape::terminal as terminal_text;
pub(crate) use model::REPORT_VERSION;
pub use model::{
    Axis, AxisScale, Column, ColumnKind, Comparison, Conclusion, ConclusionKind, Configuration,
    Curve, CurvePoint, CurveSet, Direction, Estimate, Fact, FactGroup, LatencySet, Mark, Measure,
    MeasureResult, NamedDistribution, Panel, Reference, Report, Section, Step, System, SystemState,
    Table, Timeline, TimelinePoint, TimelineSet, Verdict,
};
pub use schema::{load_result_schema, report_schema};
pub use terminal::Terminal;

impl Report {
    /// One HTML file that needs no network: charts, tables and the report's JSON.
    #[must_use]
    pub fn html(&self) -> String {
        html::render(self)
    }

    /// Markdown with tables, for a repository or a forum.
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// Text for a terminal of this width.
    #[must_use]
    pub fn text(&self, terminal: &Terminal) -> String {
        terminal::render(self, terminal)
    }

    /// The report of one run of the generator.
    #[must_use]
    pub fn of_load(result: &LoadResult) -> Report {
        load::report(result)
    }
}
