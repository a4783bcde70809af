//! The flags of `blitz bench bulk`.

use std::time::Duration;

use clap::Args;

use super::groups::{self, Origin, Row};
use super::size::ContentSize;
use crate::load_tool;
use crate::not_run::{self, NotRun};
use crate::programs::{Example, Programs, missing};
use crate::rounds::WARM_UP;

/// Flags of `blitz bench bulk`.
#[derive(Debug, Args)]
pub(crate) struct BulkArguments {
    /// Sizes of the content, separated by commas: 10k, 64k, 256k, 1m, 100m, any other, or all
    #[arg(long, value_delimiter = ',', default_value = "1m")]
    size: Vec<String>,
    /// Interleaved rounds; a goal needs at least 15
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one run in seconds; at least 2 for sizes from 16m
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Connections of the load tool [default: 16, or 4 for sizes from 16m]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: Option<u32>,
    /// Requests in flight on a connection of HTTP/2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    streams: u32,
    /// Only these groups and these programs, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the order in which the programs of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Three rounds of one second without a warm-up; the set is void and not saved
    #[arg(long)]
    quick: bool,
}

const CONNECTIONS: u32 = 16;
/// With more connections, a run of two seconds would end before the first response of a slow server.
const CONNECTIONS_HUGE: u32 = 4;
const LENGTH_HUGE_MIN: Duration = Duration::from_secs(2);

/// The resolved plan.
pub(crate) struct BulkPlan {
    pub(crate) sizes: Vec<ContentSize>,
    pub(crate) rounds: u32,
    run: Duration,
    warm_up: Option<Duration>,
    connections: Option<u32>,
    /// Requests in flight on each connection of HTTP/2.
    pub(crate) streams: u32,
    /// Of the order of the rows.
    pub(crate) seed: u64,
    /// The chosen rows that can run here.
    pub(crate) rows: Vec<Row>,
    /// The others.
    pub(crate) not_run: Vec<NotRun>,
    /// Results of `--quick` are not saved.
    pub(crate) save: bool,
}

impl BulkPlan {
    /// Fails if a name or a size is unknown, or if no chosen row can run here.
    pub(crate) fn new(arguments: &BulkArguments, programs: &Programs) -> Result<BulkPlan, String> {
        let quick = arguments.quick;
        let mut rows = groups::chosen(&arguments.only)?;
        let not_run = not_run::remove(&mut rows, Row::name, |row| obstacle(*row, programs));
        not_run::require_any(&rows, &not_run)?;
        Ok(BulkPlan {
            sizes: sizes(&arguments.size)?,
            rounds: if quick { 3 } else { arguments.rounds },
            run: Duration::from_secs(if quick { 1 } else { arguments.seconds }),
            warm_up: (!quick).then_some(WARM_UP),
            connections: arguments.connections,
            streams: arguments.streams,
            seed: arguments.seed,
            rows,
            not_run,
            save: !quick,
        })
    }

    /// The length of one run.
    pub(crate) fn length(&self, size: ContentSize) -> Duration {
        self.run.max(BulkPlan::length_min(size))
    }

    /// The run of each program before the first round, which does not count; none with `--quick`.
    pub(crate) fn warm_up(&self, size: ContentSize) -> Option<Duration> {
        self.warm_up
            .map(|warm_up| warm_up.max(BulkPlan::length_min(size)))
    }

    /// Every run of this size lasts at least this long, warm-up included.
    fn length_min(size: ContentSize) -> Duration {
        match size.is_huge() {
            true => LENGTH_HUGE_MIN,
            false => Duration::ZERO,
        }
    }

    pub(crate) fn connections(&self, size: ContentSize) -> u32 {
        self.connections.unwrap_or(match size.is_huge() {
            true => CONNECTIONS_HUGE,
            false => CONNECTIONS,
        })
    }
}

/// Why a row cannot run here.
fn obstacle(row: Row, programs: &Programs) -> Option<String> {
    let backend = || match row.origin()? {
        Origin::Program => programs.example(Example::BulkBackend).err(),
        Origin::Nginx => missing(&["nginx"]),
    };
    let paced = || match row.group.small_requests {
        true => programs.example(Example::PacedClient).err(),
        false => None,
    };
    row.system()
        .missing_program(programs)
        .or_else(|| load_tool::missing_tool(&row.group.group, programs))
        .or_else(|| missing(&["curl"]))
        .or_else(backend)
        .or_else(paced)
}

/// In ascending order, each once.
fn sizes(words: &[String]) -> Result<Vec<ContentSize>, String> {
    let mut sizes = Vec::new();
    for word in words {
        match word.as_str() {
            "all" => sizes.extend(ContentSize::ALL),
            word => sizes.push(word.parse()?),
        }
    }
    sizes.sort();
    sizes.dedup();
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_sorted_and_listed_once() {
        let printed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let sizes = sizes(&words)?;
            Ok::<Vec<_>, String>(sizes.iter().map(ToString::to_string).collect())
        };
        assert_eq!(
            printed(&["1m", "10k", "1024k"]).unwrap(),
            ["10 KiB", "1 MiB"]
        );
        assert_eq!(
            printed(&["all", "1m"]).unwrap().len(),
            ContentSize::ALL.len()
        );
        assert!(printed(&["some"]).is_err());
    }
}
