//! The generator: requests to a server, and the times of its responses.

mod arguments;
mod ask;
mod by_request;
mod check;
mod comparable;
mod connection;
mod control;
mod exchange;
mod live_latency;
mod live_view;
mod machine_time;
mod pacer;
mod plan;
mod prepare;
mod probe;
mod problems;
mod rate;
mod recorder;
mod refusal;
mod request;
mod request_file;
mod run;
mod steady;
mod summary;
mod target;
mod template;
mod turns;
mod windows;
mod worker;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blitz_host::names::look_up_once;

use crate::invocation;
use crate::output;
use crate::report::{Report, percentiles_csv, timeline_csv};
use prepare::PrepareError;

pub use crate::load_result::{
    Affects, Connects, Counts, GeneratorFacts, Interval, LoadResult, PlanFacts, Problem,
    RESULT_VERSION, TargetFacts, Times, WindowFacts,
};
pub use arguments::LoadArguments;
pub(crate) use ask::{Answer, Ask, ask_all};
pub(crate) use comparable::facts;
pub(crate) use windows::sentence as windows_sentence;

/// The exit code of usage errors, as clap's.
const USAGE: u8 = 2;
/// EX_TEMPFAIL of sysexits(3): the result is INVALID, try again.
const INVALID: u8 = 75;

/// Returns the addresses of a host's name with this port, or the reason why there are none.
type LookUp<'a> = &'a dyn Fn(&str, u16) -> Result<Vec<SocketAddr>, String>;

/// Sends the load and prints the result. `words` are the words of the command line, which results name.
pub fn run(arguments: &LoadArguments, words: impl IntoIterator<Item = String>) -> ExitCode {
    let (plan, probed) = match prepare::prepare(arguments, &look_up_once) {
        Ok(prepared) => prepared,
        Err(PrepareError::Usage(message)) => return failed(&message, USAGE),
        Err(PrepareError::Server(message)) => return failed(&message, 1),
    };
    let command = invocation::command(words);
    let ended = match run::run(plan, &probed, command, arguments.quiet) {
        Ok(ended) => ended,
        Err(message) => return failed(&message, 1),
    };
    if let Err(message) = write(arguments, &ended.result) {
        return failed(&message, 1);
    }
    if let Some(evidence) = ended.evidence {
        output::message(&format!("blitz load: {evidence}"));
        return ExitCode::FAILURE;
    }
    let result = &ended.result;
    match (result.counts.errors(), result.problems.is_empty()) {
        (0, true) => ExitCode::SUCCESS,
        (0, false) => ExitCode::from(INVALID),
        _ => ExitCode::FAILURE,
    }
}

fn failed(message: &str, code: u8) -> ExitCode {
    output::message(&format!("blitz load: {message}"));
    ExitCode::from(code)
}

/// Writes the files, and the summary unless a file is the standard output.
fn write(arguments: &LoadArguments, result: &LoadResult) -> Result<(), String> {
    type Form = fn(&LoadResult) -> String;
    let forms: [(&Option<PathBuf>, Form); 5] = [
        (&arguments.json, |result| {
            serde_json::to_string_pretty(result).expect("it has only keys that are text")
        }),
        (&arguments.html, |result| Report::of_load(result).html()),
        (&arguments.markdown, |result| {
            Report::of_load(result).markdown()
        }),
        (&arguments.csv, percentiles_csv),
        (&arguments.timeline_csv, timeline_csv),
    ];
    let wanted = forms
        .into_iter()
        .filter_map(|(file, form)| Some((file.as_deref()?, form)));
    let (printed, files): (Vec<_>, Vec<_>) = wanted.partition(|(file, _)| *file == Path::new("-"));
    // Files first: they are there even if nobody can read the standard output.
    for (file, form) in files {
        fs::write(file, form(result)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    if printed.is_empty() {
        return output::print(&summary::summary(result));
    }
    printed
        .into_iter()
        .try_for_each(|(_, form)| output::print(&(form(result) + "\n")))
}
