//! Renders the result of a run of the generator again.
//!
//! `cargo run -p blitz-bench --example load_report -- RESULT.json FOLDER` writes `load.html`, `load.md`,
//! `percentiles.csv` and `timeline.csv`, and prints the form for terminals.

use std::fs;
use std::io;
use std::path::Path;

use blitz_bench::load::{LoadResult, RESULT_VERSION};
use blitz_bench::report::{Report, Terminal, percentiles_csv, timeline_csv};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: load_report RESULT.json FOLDER"));
    };
    let result: LoadResult = serde_json::from_slice(&fs::read(file)?)?;
    if result.version != RESULT_VERSION {
        let version = result.version;
        return Err(io::Error::other(format!(
            "version {version} of the format is unknown"
        )));
    }
    let report = Report::of_load(&result);
    let folder = Path::new(&folder);
    fs::write(folder.join("load.html"), report.html())?;
    fs::write(folder.join("load.md"), report.markdown())?;
    fs::write(folder.join("percentiles.csv"), percentiles_csv(&result))?;
    fs::write(folder.join("timeline.csv"), timeline_csv(&result))?;
    print!("{}", report.text(&Terminal::of_stdout()));
    Ok(())
}
