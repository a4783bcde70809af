//! The systems, rounds and times of a comparison.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::group::ServerWork;
use crate::load_tool;
use crate::not_run::{self, NotRun};
use crate::programs::{Example, Programs};
use crate::scenario::{BACKEND, BACKEND_BLITZ, BACKEND_H2C, BACKEND_NGINX, Scenario};
use crate::system::System;

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
    /// The HTTP/1.1 server behind the proxies [default: ring, or blitz without --programs]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Only these systems or groups, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of the order in which the systems of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Three rounds of one second without a warm-up; the set is void and not saved
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
    /// The built-in response of Blitz
    Blitz,
}

impl Backend {
    /// The cheapest one that there is.
    fn by_default(programs: &Programs) -> Backend {
        match programs.example(Example::LimitResponder) {
            Ok(_) => Backend::Ring,
            Err(_) => Backend::Blitz,
        }
    }

    fn system(self) -> &'static System {
        match self {
            Backend::Ring => &BACKEND,
            Backend::Nginx => &BACKEND_NGINX,
            Backend::Blitz => &BACKEND_BLITZ,
        }
    }
}

/// The resolved plan.
pub(crate) struct RoundsPlan {
    pub(crate) rounds: u32,
    pub(crate) run: Duration,
    /// The run of each system before the first round, which does not count; none with `--quick`.
    pub(crate) warm_up: Option<Duration>,
    pub(crate) connections: u32,
    /// Requests in flight on each.
    pub(crate) streams: u32,
    /// Of the order of the systems.
    pub(crate) seed: u64,
    /// The chosen systems that can run here.
    pub(crate) systems: Vec<&'static System>,
    /// The others.
    pub(crate) not_run: Vec<NotRun>,
    backend: Backend,
    /// Results of `--quick` are not saved.
    pub(crate) save: bool,
}

/// The usual length of a run before the first round.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);

impl RoundsPlan {
    /// Fails if a chosen name is unknown, or if no chosen system can run here.
    pub(crate) fn new(
        scenario: &'static Scenario,
        arguments: &RoundsArguments,
        programs: &Programs,
    ) -> Result<RoundsPlan, String> {
        let quick = arguments.quick;
        let backend = arguments.backend;
        let mut plan = RoundsPlan {
            rounds: if quick { 3 } else { arguments.rounds },
            run: Duration::from_secs(if quick { 1 } else { arguments.seconds }),
            warm_up: (!quick).then_some(WARM_UP),
            connections: arguments.connections.unwrap_or(scenario.connections),
            streams: scenario.streams,
            seed: arguments.seed,
            systems: chosen(scenario, &arguments.only)?,
            not_run: Vec::new(),
            backend: backend.unwrap_or_else(|| Backend::by_default(programs)),
            save: !quick,
        };
        let mut systems = std::mem::take(&mut plan.systems);
        plan.not_run = not_run::remove(
            &mut systems,
            |system| system.name.to_owned(),
            |system| plan.obstacle(system, programs),
        );
        plan.systems = systems;
        not_run::require_any(&plan.systems, &plan.not_run)?;
        Ok(plan)
    }

    /// Why a system cannot run here.
    fn obstacle(&self, system: &System, programs: &Programs) -> Option<String> {
        let backend = || {
            let backend = self.backend_of(system)?;
            let missing = backend.missing_program(programs)?;
            Some(format!("its backend: {missing}"))
        };
        system
            .missing_program(programs)
            .or_else(|| load_tool::missing_tool(system.group, programs))
            .or_else(backend)
    }

    /// The backend that a proxy forwards to.
    pub(crate) fn backend_of(&self, system: &System) -> Option<&'static System> {
        match system.group.role {
            ServerWork::ProxyToHttp1 => Some(self.backend.system()),
            ServerWork::ProxyToH2c => Some(&BACKEND_H2C),
            ServerWork::Respond
            | ServerWork::RespondHealth
            | ServerWork::SendContent
            | ServerWork::SendFile { .. }
            | ServerWork::Board
            | ServerWork::ProxyContentToHttp1 => None,
        }
    }

    /// The backends of all systems, each once.
    pub(crate) fn backends(&self) -> Vec<&'static System> {
        let mut backends: Vec<&'static System> = Vec::new();
        for backend in self
            .systems
            .iter()
            .filter_map(|system| self.backend_of(system))
        {
            if !backends.iter().any(|known| known.name == backend.name) {
                backends.push(backend);
            }
        }
        backends
    }

    /// The installed programs that run: peers and load tools.
    pub(crate) fn installed(&self) -> impl Iterator<Item = &'static str> {
        let backends = self.backends();
        let tools = self
            .systems
            .iter()
            .flat_map(|system| load_tool::names(system.group));
        let systems = self.systems.iter().copied().chain(backends);
        tools.chain(systems.filter_map(System::peer))
    }
}

/// Keeps the order of the table.
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
    use super::*;
    use crate::scenario::H1;

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

    #[test]
    fn systems_without_their_programs_are_not_run() {
        let arguments = RoundsArguments {
            rounds: 15,
            seconds: 2,
            connections: None,
            backend: None,
            only: vec!["limit".to_owned(), "relay".to_owned()],
            seed: 1,
            quick: true,
        };
        let programs = Programs::new(None).unwrap();
        let error = RoundsPlan::new(&H1, &arguments, &programs).err().unwrap();
        assert!(error.contains("its folder): limit\n"), "{error}");
        assert!(error.contains("its folder): relay\n"), "{error}");
    }
}
