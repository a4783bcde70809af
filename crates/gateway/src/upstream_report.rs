//! The state of a running gateway for its operators: its upstreams and the failures of late on all cores, and the
//! counters of each core.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use blitz_host::names::{LookupResult, NameChange};
use blitz_http::{Address, CoresHandle};
use blitz_site::{Counters, FAILURES_MAX, Failure, RecentFailure};

use crate::snapshot::{Snapshot, states_on_core};
use crate::target::Origin;
use crate::upstream::{
    AddressFigures, AddressState, Check, CheckState, States, UpstreamConfig, failure_of_name,
};

/// How long to wait for a core; the state of one that is busy for longer is not included.
const CORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Upstreams that a core is asked for at a time, so that no request waits long for the answer.
const UPSTREAMS_AT_A_TIME: usize = 256;

/// Reads the state of a running gateway from any thread. Clones read the same gateway.
#[derive(Clone)]
pub struct StateReader {
    cores: CoresHandle,
    newest: Arc<ArcSwap<Snapshot>>,
}

/// An upstream of the configuration in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamReport {
    /// Its URL.
    pub url: String,
    /// The names of upstreams of the configuration that it is a server of.
    pub names: Vec<String>,
    /// Whether routes have it alone, by its URL or as the one server of an upstream.
    pub is_used_alone: bool,
    /// Why its name has no address; `None` without a name, or if there are addresses.
    pub failure: Option<Failure>,
    /// The last change of the addresses of its name.
    pub change: Option<Arc<NameChange>>,
    /// Its addresses; empty while its name is being resolved.
    pub addresses: Vec<AddressReport>,
    /// Its checks, one for each way in which upstreams have it checked.
    pub checks: Vec<CheckReport>,
    /// Whether an operator has drained it.
    pub is_drained: bool,
}

/// The checks of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The names of upstreams that have it checked so.
    pub names: Vec<String>,
    /// The way, for people.
    pub way: String,
    /// The verdict.
    pub state: CheckState,
    /// When the verdict changed; `None` before the first one.
    pub changed: Option<SystemTime>,
    /// When the last check ended, and how long it took.
    pub last: Option<(SystemTime, Duration)>,
    /// Why the last check failed; `None` if it passed.
    pub problem: Option<String>,
    /// Checks that have passed.
    pub passed: u64,
    /// Checks that have failed.
    pub failed: u64,
}

/// Why a server cannot be drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainError {
    /// The configuration in use has no server with this URL.
    Unknown,
    /// Routes have it alone, so that their requests could go nowhere else.
    Alone,
    /// It is the last server of this upstream that gets requests: the others are drained, down by their checks, or have
    /// the weight 0.
    Last(String),
}

/// An address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressReport {
    /// The address.
    pub address: Address,
    /// Whether the name does not have it any more. Cores forget it when they need another address of the name.
    pub is_former: bool,
    /// Its state on each core that has used it.
    pub cores: Vec<AddressOnCore>,
}

/// An address of an upstream on one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressOnCore {
    /// The core.
    pub core: usize,
    /// Its idle connections, but those that begin with a PROXY header.
    pub idle: usize,
    /// Its connections in use, but those that begin with a PROXY header.
    pub in_use: usize,
    /// How long requests will avoid the address, because it could not be connected to.
    pub cooling_down: Option<Duration>,
    /// How long ago it could not be connected to for the last time.
    pub last_failure: Option<Duration>,
    /// Why.
    pub last_failure_cause: Option<Failure>,
    /// The requests that it got.
    pub figures: AddressFigures,
}

/// The counters of one core.
#[derive(Debug, Clone)]
pub struct CoreCounters {
    /// The core.
    pub core: usize,
    /// Those of the gateway.
    pub gateway: Counters,
    /// Those of HTTP.
    pub http: blitz_http::Counters,
}

impl StateReader {
    pub(crate) fn new(cores: CoresHandle, newest: &Arc<ArcSwap<Snapshot>>) -> StateReader {
        StateReader {
            cores,
            newest: Arc::clone(newest),
        }
    }

    /// The upstreams of the configuration in use, in its order. A core that does not answer within a second is left out.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamReport> {
        let snapshot = self.newest.load_full();
        let mut reports: Vec<_> = snapshot.upstreams().map(report).collect();
        for (number, report) in reports.iter_mut().enumerate() {
            report.is_used_alone = snapshot.is_used_alone(number);
        }
        add_checks(&mut reports, &snapshot);
        let has_name = |(config, _): (&UpstreamConfig, _)| config.name.is_some();
        let have_names: Vec<_> = snapshot.upstreams().map(has_name).collect();
        let id = snapshot.id();
        for start in (0..reports.len()).step_by(UPSTREAMS_AT_A_TIME) {
            let range = start..reports.len().min(start + UPSTREAMS_AT_A_TIME);
            for (core, states) in self.states(id, range) {
                for (number, addresses) in states {
                    add(&mut reports[number], have_names[number], core, addresses);
                }
            }
        }
        // A service with servers is none itself.
        let mut is_server = snapshot
            .upstreams()
            .map(|(config, _)| match &config.service {
                Some(service) => service.failure().is_some(),
                None => true,
            });
        reports.retain(|_| is_server.next().unwrap_or(true));
        reports
    }

    /// Drains a server, which then gets only the requests of clients that stay with it by a cookie, or has it take
    /// requests again. Returns whether that is a change. It stays so over reloads, as long as the configuration has the
    /// server.
    ///
    /// # Errors
    /// See [`DrainError`].
    pub fn set_drained(&self, url: &str, is_drained: bool) -> Result<bool, DrainError> {
        let snapshot = self.newest.load_full();
        let members: Vec<_> = snapshot.members_of(url).collect();
        if members.is_empty() {
            return Err(DrainError::Unknown);
        }
        if is_drained {
            if members
                .iter()
                .any(|(number, _)| snapshot.is_used_alone(*number))
            {
                return Err(DrainError::Alone);
            }
            if let Some(name) = snapshot.last_of(url) {
                return Err(DrainError::Last(name));
            }
        }
        let mut is_change = false;
        for (_, member) in members {
            is_change |= member.is_drained() != is_drained;
            member.set_drained(is_drained);
        }
        Ok(is_change)
    }

    /// The counters of each core. A core that does not answer within a second is left out.
    #[must_use]
    pub fn counters(&self) -> Vec<CoreCounters> {
        self.of_cores(|core| CoreCounters {
            core,
            gateway: blitz_site::counters(),
            http: blitz_http::counters(),
        })
    }

    /// The failures of late, those that occurred last first. A core that does not answer within a second is left out.
    #[must_use]
    pub fn failures(&self) -> Vec<RecentFailure> {
        let mut all: Vec<RecentFailure> = Vec::new();
        for one in self
            .of_cores(|_| blitz_site::recent_failures())
            .into_iter()
            .flatten()
        {
            match all.iter_mut().find(|known| known.is_same(&one)) {
                Some(known) => known.add(one),
                None => all.push(one),
            }
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.last.at));
        all.truncate(FAILURES_MAX);
        all
    }

    fn states(&self, snapshot: u64, range: Range<usize>) -> Vec<(usize, States)> {
        self.of_cores(move |core| (core, states_on_core(snapshot, &range)))
    }

    /// The values that the cores read of themselves, in their order.
    fn of_cores<T: Send + 'static>(
        &self,
        read: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let (sender, receiver) = mpsc::channel();
        self.cores.post_all(move |core| {
            // Fails if the core is too late.
            let _ = sender.send((core, read(core)));
        });
        let mut all = Vec::with_capacity(self.cores.count());
        while let Ok(one) = receiver.recv_timeout(CORE_TIMEOUT) {
            all.push(one);
        }
        all.sort_by_key(|(core, _)| *core);
        all.into_iter().map(|(_, one)| one).collect()
    }
}

/// An upstream whose state on the cores is not known yet.
fn report((config, names): (&UpstreamConfig, Vec<&str>)) -> UpstreamReport {
    let url = config.identity.url();
    let mut failure = None;
    let addresses = match (config.identity.origin(), &config.name) {
        (Origin::Ip(address), _) => vec![Address::Tcp(*address)],
        (Origin::Unix(path), _) => vec![Address::unix(path)],
        (Origin::Localhost(_), _) | (Origin::Name(..), None) => Vec::new(),
        (Origin::Service(_), _) => {
            let service = config.service.as_ref();
            let reason = service.and_then(|service| service.failure());
            failure = reason.map(failure_of_name);
            Vec::new()
        }
        (Origin::Name(..), Some(name)) => match &**name.latest() {
            LookupResult::Pending => Vec::new(),
            LookupResult::Addresses(all) => all.iter().copied().map(Address::Tcp).collect(),
            LookupResult::Failed(reason) => {
                failure = Some(failure_of_name(*reason));
                Vec::new()
            }
        },
    };
    let unused = |address| AddressReport {
        address,
        is_former: false,
        cores: Vec::new(),
    };
    let names = names.into_iter().filter(|name| *name != url);
    UpstreamReport {
        names: names.map(str::to_owned).collect(),
        is_used_alone: false,
        failure,
        change: config.name.as_ref().and_then(|name| name.last_change()),
        addresses: addresses.into_iter().map(unused).collect(),
        checks: Vec::new(),
        is_drained: config.member.is_drained(),
        url,
    }
}

/// The checks of each server.
fn add_checks(reports: &mut [UpstreamReport], snapshot: &Snapshot) {
    let mut known = HashMap::new();
    for (number, check, name) in snapshot.numbered_checks() {
        let all = &mut reports[number].checks;
        let at = *known.entry((number, check.id)).or_insert_with(|| {
            all.push(report_of_check(check));
            all.len() - 1
        });
        let names = &mut all[at].names;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

fn report_of_check(check: &Check) -> CheckReport {
    let last = check.last();
    let [passed, failed] = check.counts();
    CheckReport {
        names: Vec::new(),
        way: check.settings.to_string(),
        state: check.state(),
        changed: last.changed,
        last: last.ended,
        problem: last.problem,
        passed,
        failed,
    }
}

fn add(report: &mut UpstreamReport, has_name: bool, core: usize, states: Vec<AddressState>) {
    for state in states {
        let on_core = AddressOnCore {
            core,
            idle: state.idle,
            in_use: state.in_use,
            cooling_down: state.cooling_down,
            last_failure: state.last_failure.map(|(ago, _)| ago),
            last_failure_cause: state.last_failure.map(|(_, failure)| failure),
            figures: state.figures,
        };
        let mut known = report.addresses.iter();
        match known.position(|one| one.address == state.address) {
            Some(at) => report.addresses[at].cores.push(on_core),
            None => report.addresses.push(AddressReport {
                address: state.address,
                is_former: has_name,
                cores: vec![on_core],
            }),
        }
    }
}
