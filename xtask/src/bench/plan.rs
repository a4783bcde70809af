//! The systems, rounds and times of a comparison.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::scenario::{BACKEND, BACKEND_NGINX, Scenario};
use super::system::System;

/// Flags of every comparison in rounds.
#[derive(Debug, Args)]
pub(crate) struct RoundsArguments {
    /// Interleaved rounds; a goal needs at least 15
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Connections of the load tool [default: 100, or 32 with 32 streams each for HTTP/2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: Option<u32>,
    /// The HTTP/1.1 server behind the proxies
    #[arg(long, value_enum, default_value_t = Backend::Ring)]
    backend: Backend,
    /// Only these systems or groups, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Three rounds of one second; the set is void and not saved
    #[arg(long)]
    quick: bool,
}

/// The HTTP/1.1 server behind the proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// The bare ring that parses nothing
    Ring,
    /// nginx with a fixed response
    Nginx,
}

impl Backend {
    pub(crate) fn system(self) -> &'static System {
        match self {
            Backend::Ring => &BACKEND,
            Backend::Nginx => &BACKEND_NGINX,
        }
    }
}

/// The resolved plan.
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) run: Duration,
    pub(crate) connections: u32,
    /// Requests in flight on each.
    pub(crate) streams: u32,
    pub(crate) systems: Vec<&'static System>,
    pub(crate) backend: Backend,
    /// Results of `--quick` are not saved.
    pub(crate) save: bool,
}

/// One run per system before the first round; it does not count.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

impl Plan {
    pub(crate) fn new(
        scenario: &'static Scenario,
        arguments: &RoundsArguments,
    ) -> Result<Plan, String> {
        let quick = arguments.quick;
        Ok(Plan {
            rounds: if quick { 3 } else { arguments.rounds },
            run: Duration::from_secs(if quick { 1 } else { arguments.seconds }),
            connections: arguments.connections.unwrap_or(scenario.connections),
            streams: scenario.streams,
            systems: chosen(scenario, &arguments.only)?,
            backend: arguments.backend,
            save: !quick,
        })
    }
}

/// Keeps the order of the table, in which every round runs the systems.
fn chosen(scenario: &'static Scenario, only: &[String]) -> Result<Vec<&'static System>, String> {
    let systems = scenario.systems;
    for word in only {
        if !systems.iter().any(|system| system.matches(word)) {
            let groups = scenario.groups.iter().map(|group| group.name);
            let names = groups.chain(systems.iter().map(|system| system.name));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(format!("there is no system '{word}'; known: {names}"));
        }
    }
    let wanted = |system: &&System| {
        (only.is_empty() && system.by_default) || only.iter().any(|word| system.matches(word))
    };
    Ok(systems.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::super::scenario::H1;
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|&word| word.to_owned()).collect();
        chosen(&H1, &only)
            .unwrap()
            .iter()
            .map(|system| system.name)
            .collect()
    }

    #[test]
    fn a_group_selects_its_systems_in_the_order_of_the_table() {
        let proxies = names(&["proxy"]);
        assert_eq!(proxies.first(), Some(&"relay"));
        assert!(proxies.contains(&"nginx-proxy"));
        assert!(!proxies.contains(&"limit"));
        assert_eq!(names(&["nginx", "limit"]), ["limit", "nginx"]);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = chosen(&H1, &["ngnix".to_owned()]).err().unwrap();
        assert!(
            error.contains("ngnix") && error.contains("fixed, proxy, limit,"),
            "{error}"
        );
    }
}
