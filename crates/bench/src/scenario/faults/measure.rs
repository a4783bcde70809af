//! The runs of a fault.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fault::{Fault, Schedule};
use super::stage::{Members, start_proxy};
use super::{BLITZ_TUNED, FaultContender, FaultsArguments};
use crate::fixed_response::{BODY, PATH};
use crate::invocation::Invocation;
use crate::machine;
use crate::member::RESPONSE_TAKES;
use crate::not_run::NotRun;
use crate::number;
use crate::peer::members::MembersProxy;
use crate::programs::missing;
use crate::report::{self, Timeline};
use crate::run_folder::RunFolder;
use crate::stats::order;
use crate::study::{
    Generator, Length, Load, Measured, MeasuredSubject, Requests, Run, Subject, Version, Watched,
    configuration,
};

/// Requests per second, which two of the members answer with a core to spare.
pub(super) const RATE: u32 = 400;
/// More than the requests that wait for a member that is silent.
const CONNECTIONS: u32 = 600;
/// The patience of clients. A response that takes longer counts as failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How far the fault may be from its planned moment.
const FAULT_WITHIN: Duration = Duration::from_millis(300);
/// How late the 99th percentile of requests may be noticed: not later than a member responds. Failures take longer.
const LAG_MAX: Duration = RESPONSE_TAKES;
/// The share of the time from which the generator measures itself.
const BUSY: f64 = 0.95;
/// How often a run that proves nothing is tried.
const ATTEMPTS_MAX: u32 = 3;
/// From the start of the generator to that of its warm-up: its process, its first requests and the start of its cores.
const GENERATOR_STARTS: Duration = Duration::from_millis(120);

/// A fault with the runs of all systems.
pub(super) struct MeasuredFault {
    pub(super) fault: Fault,
    pub(super) schedule: Schedule,
    pub(super) case: Measured,
    /// In the order of charts; also those that were not run.
    pub(super) systems: Vec<report::System>,
    /// The first run of each system.
    pub(super) timelines: Vec<Timeline>,
}

/// All runs of a fault: every system once in each round, in balanced orders.
pub(super) fn measure(
    arguments: &FaultsArguments,
    invocation: &Invocation,
    fault: Fault,
    folder: &RunFolder,
) -> Result<MeasuredFault, String> {
    let (contenders, not_run) = installed(arguments);
    let run = FaultRun {
        invocation,
        folder,
        fault,
        schedule: arguments.schedule(),
    };
    let mut systems: Vec<Option<report::System>> = contenders.iter().map(|_| None).collect();
    let mut subjects: Vec<MeasuredSubject> = contenders
        .iter()
        .map(|contender| MeasuredSubject {
            name: contender.name.to_owned(),
            runs: Vec::new(),
            void: None,
        })
        .collect();
    for round in 0..arguments.rounds() {
        for index in order(contenders.len(), round, arguments.seed) {
            if subjects[index].void.is_none() {
                let place = (&mut subjects[index], &mut systems[index]);
                run.add(contenders[index], place)?;
            }
        }
    }
    let timelines = subjects.iter().filter_map(|subject| {
        let first = subject.runs.first()?;
        Some(Timeline::of_intervals(
            &subject.name,
            &first.result.timeline,
        ))
    });
    let timelines = timelines.collect();
    let has_base = subjects.iter().any(|subject| subject.name == BLITZ_TUNED);
    let described = systems.into_iter().flatten();
    let left_out = not_run
        .iter()
        .map(|it| report::System::not_run(&it.name, "http/1.1", &it.reason));
    Ok(MeasuredFault {
        fault,
        schedule: run.schedule,
        systems: described.chain(left_out).collect(),
        timelines,
        case: Measured {
            title: fault.title().to_owned(),
            load: format!("GET {PATH}, {RATE} requests/s, {CONNECTIONS} connections, HTTP/1.1"),
            base: has_base.then(|| BLITZ_TUNED.to_owned()),
            subjects,
            not_run,
        },
    })
}

/// The chosen systems whose programs are there, and the others.
fn installed(arguments: &FaultsArguments) -> (Vec<&'static FaultContender>, Vec<NotRun>) {
    let mut not_run = Vec::new();
    let mut contenders = arguments.contenders();
    contenders.retain(|contender| {
        let Some(reason) = missing(contender.proxy.program().as_slice()) else {
            return true;
        };
        let name = contender.name.to_owned();
        not_run.push(NotRun { name, reason });
        false
    });
    (contenders, not_run)
}

/// The fault of several runs, and where they happen.
struct FaultRun<'a> {
    invocation: &'a Invocation,
    folder: &'a RunFolder,
    fault: Fault,
    schedule: Schedule,
}

impl FaultRun<'_> {
    /// Adds a run. One that proves nothing is repeated before it makes the system void.
    fn add(
        &self,
        contender: &FaultContender,
        (subject, system): (&mut MeasuredSubject, &mut Option<report::System>),
    ) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            let reason = match self.once(contender, system) {
                Ok(Ok(run)) => match void_reason(&run) {
                    None => {
                        subject.void = None;
                        subject.runs.push(run);
                        return Ok(());
                    }
                    Some(reason) => reason,
                },
                Ok(Err(reason)) => reason,
                Err(error) if contender.proxy == MembersProxy::Blitz => {
                    return Err(format!("{}: {error}", contender.name));
                }
                Err(error) => error,
            };
            subject.void = Some(reason);
        }
        Ok(())
    }

    /// Starts everything, sends the load, and makes a member fail meanwhile. The inner error is a fault that came at another
    /// moment than planned, as on a busy machine.
    fn once(
        &self,
        contender: &FaultContender,
        system: &mut Option<report::System>,
    ) -> Result<Result<Run, String>, String> {
        let programs = &self.invocation.programs;
        let mut members = Members::start(programs)?;
        let (command, proxy) = start_proxy(contender, &members, self.folder)?;
        system.get_or_insert_with(|| {
            let version = match contender.proxy.program() {
                Some(program) => machine::version(program),
                None => format!("blitz {}", self.invocation.revision),
            };
            report::System {
                configuration: configuration(&command, self.folder.path()),
                ..report::System::run(contender.name, "http/1.1", &version)
            }
        });
        let subject = Subject {
            name: contender.name.to_owned(),
            load: self.load(&format!("http://{}", proxy.address)),
            watched: Watched {
                servers: vec![proxy.process()],
                beside: members.processes(),
            },
            may_fail: true,
        };
        let generator = Generator {
            programs,
            folder: self.folder,
            link: None,
        };
        let (run, broken_at) = thread::scope(|scope| {
            let (ended, has_ended) = mpsc::channel();
            let breaking = scope.spawn(|| {
                // A receiver belongs to one thread.
                let has_ended = has_ended;
                self.break_member(&mut members, &has_ended)
            });
            let run = generator.run(&subject);
            drop(ended);
            (run, breaking.join())
        });
        let run = run?;
        let broken_at = broken_at.map_err(|_| "the fault has failed".to_owned())??;
        let since = broken_at - run.result.started_at;
        Ok(match is_in_time(since, self.schedule) {
            true => Ok(run),
            false => Err(format!(
                "The fault came {since:.2} s after the start of the measured time."
            )),
        })
    }

    fn load(&self, base: &str) -> Load {
        let length = Length::Time {
            measured: self.schedule.measured,
            warm_up: self.schedule.warm_up,
        };
        let requests = Requests::Path(PATH.to_owned());
        let load = Load::new(base, requests, Version::Http1, length);
        let mut load = load.with(CONNECTIONS, 1).expecting(BODY);
        let patience = format!("{}s", PATIENCE.as_secs());
        let flags = ["--keep-going", "--timeout", &patience];
        load.flags.extend(flags.map(str::to_owned));
        load.rate = Some(f64::from(RATE));
        load
    }

    /// Breaks the member at its moment, and makes it well again. The moment, in seconds since 1970. The end of the generator
    /// ends the wait.
    fn break_member(
        &self,
        members: &mut Members<'_>,
        generator_ends: &mpsc::Receiver<()>,
    ) -> Result<f64, String> {
        let fault_at = self.schedule.fault_at();
        let before = GENERATOR_STARTS + self.schedule.warm_up + fault_at;
        let wait = |length| match generator_ends.recv_timeout(length) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err("The generator ended before the fault.".to_owned()),
        };
        wait(before)?;
        members.begin(self.fault);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let moment = since.map_or(0.0, |since| since.as_secs_f64());
        if let Some(repair_at) = self.schedule.repair_at(self.fault) {
            wait(repair_at.saturating_sub(fault_at))?;
            members.repair(self.fault)?;
        }
        Ok(moment)
    }
}

/// Whether a fault so many seconds after the start of the measured time is where it was planned.
fn is_in_time(since: f64, schedule: Schedule) -> bool {
    (since - schedule.fault_at().as_secs_f64()).abs() <= FAULT_WITHIN.as_secs_f64()
}

/// Why the figures of a run prove nothing: the generator had too little of the machine, or nothing was answered. Failed
/// requests, and those that wait at the end, are what is measured.
fn void_reason(run: &Run) -> Option<String> {
    let generator = &run.result.generator;
    if run.result.counts.completed == 0 {
        return Some("No request was answered.".to_owned());
    }
    if generator.busiest_core > BUSY {
        return Some("The generator was the bottleneck.".to_owned());
    }
    let lag = generator.lag.quantile(0.99)?;
    (lag > LAG_MAX).then(|| {
        let lag = number::duration(lag.as_nanos() as f64);
        format!(
            "The generator noticed 1 % of the requests more than {lag} after their planned time."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;

    fn run(completed: u64, lag: Duration) -> Run {
        let mut run = Run::default();
        run.result.counts.completed = completed;
        run.result.counts.unfinished = 100;
        let mut recorder = Recorder::new();
        recorder.record(lag);
        run.result.generator.lag = recorder.distribution();
        run
    }

    #[test]
    fn failures_are_results_and_those_of_a_late_generator_are_none() {
        let reason = void_reason(&run(1, Duration::from_millis(1)));
        assert_eq!(reason, None);
        let late = void_reason(&run(1, Duration::from_millis(20)));
        assert!(late.is_some_and(|reason| reason.contains("planned time")));
        assert!(void_reason(&run(0, Duration::ZERO)).is_some());
        let mut busy = run(1, Duration::ZERO);
        busy.result.generator.busiest_core = 0.99;
        assert!(void_reason(&busy).is_some());
    }

    #[test]
    fn a_fault_at_another_moment_is_none_of_this_run() {
        let schedule = Schedule::new(Duration::from_secs(1), Duration::from_secs(8));
        assert!(is_in_time(2.2, schedule) && is_in_time(1.8, schedule));
        assert!(!is_in_time(2.5, schedule) && !is_in_time(1.0, schedule));
    }
}
