//! Studies: loads on several subjects, whose runs are interleaved in rounds, and the report of their figures.
//!
//! A case is one load. Its subjects are what the load runs on: other servers, other versions of HTTP, other clients. Every
//! run is a process of `blitz load`, so that a study has no client and no recorder of its own.

mod case;
mod figure;
mod program;
mod run;
mod section;
mod stage;
mod surroundings;

pub(crate) use case::{Case, Length, Load, Measured, MeasuredSubject, Requests, Subject, Version};
pub(crate) use figure::{
    CLIENT_US, Cell, Figure, MEGABYTES_PER_SECOND, P50, P99, P999, REQUESTS_PER_SECOND,
    RESIDENT_MIB, SERVER_US, WHOLE_TIME, ratio_text,
};
pub(crate) use program::Program;
pub(crate) use run::{Generator, Run, Watched};
pub(crate) use section::{Sentence, conclusion, measure, measure_beyond, section};
pub(crate) use stage::{Contender, Stage, configuration};
pub(crate) use surroundings::{ReportFiles, Surroundings, Watch, finish, finish_files};
