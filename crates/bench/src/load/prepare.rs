//! From the arguments to a checked plan.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_http::{Address, CaSet, ClientTls, ClientTlsSlot, IoChoice, Protocol, UpstreamTls};

use super::LookUp;
use super::arguments::{Check, IoArgument, LoadArguments, WarmUpArgument};
use super::check::Expected;
use super::plan::{Least, LoadPlan, WarmUp};
use super::probe::{self, Probed, Wanted};
use super::request::{RequestContent, RequestSpec};
use super::request_file;
use super::target::OriginUrl;
use super::windows;
use crate::descriptors;

/// Descriptors beside those of connections: of the cores, of files, of the names of hosts.
const DESCRIPTORS_BESIDE: u64 = 64;

const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const WARM_UP_DEFAULT: Duration = Duration::from_secs(1);
const MAX_DURATION_DEFAULT: Duration = Duration::from_secs(60);

/// Intervals of the timeline, unless the run is short.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVALS_MIN: u32 = 20;

/// Fields of the connection and of the framing of content, and one that changes when content is sent.
const OWN_FIELDS: [&str; 8] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Transfer-Encoding",
    "Upgrade",
];

/// Why a run does not begin.
pub(super) enum PrepareError {
    /// The command line can never work.
    Usage(String),
    /// The server is not found, or does not respond as it should.
    Server(String),
}

impl From<String> for PrepareError {
    fn from(message: String) -> PrepareError {
        PrepareError::Usage(message)
    }
}

/// A plan before the first requests.
struct PlanDraft {
    plan: LoadPlan,
    /// In the order in which they are tried.
    addresses: Vec<Address>,
    /// As the addresses.
    protocols: Vec<Protocol>,
    wanted: Wanted,
}

/// The plan, after first requests have shown what responses look like.
///
/// # Errors
/// The mistake and its remedy.
pub(super) fn prepare(
    arguments: &LoadArguments,
    look_up: LookUp<'_>,
) -> Result<(LoadPlan, Probed), PrepareError> {
    let PlanDraft {
        mut plan,
        addresses,
        protocols,
        wanted,
    } = draft(arguments, look_up)?;
    let probed = probe::probe(&plan, &addresses, &protocols, &wanted);
    let probed = probed.map_err(PrepareError::Server)?;
    plan.address = probed.address.clone();
    plan.protocol = probed.protocol;
    if !plan.protocol.capabilities().multiplexes && plan.streams > 1 {
        let problem = "HTTP/1.1 has one request at a time on a connection; leave out --streams, or write --http 2";
        return Err(PrepareError::Usage(problem.to_owned()));
    }
    for ((_, expected), found) in plan.requests.iter_mut().zip(&probed.expected) {
        expected.clone_from(found);
    }
    Ok((plan, probed))
}

fn draft(arguments: &LoadArguments, look_up: LookUp<'_>) -> Result<PlanDraft, PrepareError> {
    let origin = OriginUrl::parse(&arguments.url)?;
    let requests = requests(arguments, &origin)?;
    for request in &requests {
        request.check()?;
    }
    check_combinations(arguments, &requests)?;
    let connections = arguments.connections as usize;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let cores = arguments.cores.map_or(processors, |cores| cores as usize);
    descriptors::allow(connections as u64 + DESCRIPTORS_BESIDE)?;
    let (shortest, warm_up) = times(arguments)?;
    let (duration, least) = least(arguments, shortest);
    let protocols = protocols(arguments, &origin);
    if protocols == [Protocol::Http3] && !origin.is_https {
        return Err("HTTP/3 is always encrypted; write https://"
            .to_owned()
            .into());
    }
    let tls = tls(arguments, &origin)?;
    let wanted = wanted(arguments)?;
    let location = origin.location(arguments.address.as_deref())?;
    // Last, because a query may take a while.
    let addresses = location.resolve(look_up).map_err(PrepareError::Server)?;
    let plan = LoadPlan {
        address: addresses[0].clone(),
        protocol: protocols[0],
        tls,
        resume: !arguments.no_resume,
        requests: requests
            .into_iter()
            .map(|request| (request, Expected::default()))
            .collect(),
        connections,
        streams: arguments.streams as usize,
        cores: cores.min(connections),
        io: match arguments.io {
            IoArgument::Auto => IoChoice::Auto,
            IoArgument::Uring => IoChoice::Uring,
            IoArgument::Epoll => IoChoice::Epoll,
        },
        new_connections: arguments.new_connections,
        rate: arguments
            .rate
            .clone()
            .map(|rate| (rate, arguments.arrivals)),
        warm_up,
        duration,
        least,
        request_count: arguments.requests,
        windows: arguments.window.unwrap_or(windows::DEFAULT),
        timeout: arguments.timeout,
        keep_going: arguments.keep_going,
        interval: shortest.map_or(INTERVAL / 10, |shortest| {
            (shortest / INTERVALS_MIN).clamp(Duration::from_millis(10), INTERVAL)
        }),
        seed: arguments.seed.unwrap_or_else(seed),
    };
    Ok(PlanDraft {
        plan,
        addresses,
        protocols,
        wanted,
    })
}

/// Flags that exclude each other, or cannot do what they say.
fn check_combinations(arguments: &LoadArguments, requests: &[RequestSpec]) -> Result<(), String> {
    if arguments.new_connections && arguments.streams > 1 {
        let connections = u64::from(arguments.connections) * u64::from(arguments.streams);
        return Err(format!(
            "--new-connections sends one request on each connection; write -c {connections} in place of --streams"
        ));
    }
    let files = arguments.output_files();
    let printed = files.iter().filter(|file| **file == Path::new("-"));
    if printed.count() > 1 {
        let problem = "only one form of the result can be the standard output (-); name a file for the others";
        return Err(problem.to_owned());
    }
    let folders = files.iter().filter_map(|file| file.parent());
    if let Some(missing) = folders
        .filter(|it| *it != Path::new(""))
        .find(|it| !it.is_dir())
    {
        return Err(format!(
            "{}: there is no such folder; make it before the run",
            missing.display()
        ));
    }
    let needs_sample = matches!(arguments.check, Check::Content | Check::Length);
    let unsafe_one = requests.iter().find(|request| !probe::is_safe(request));
    match unsafe_one {
        Some(request) if needs_sample => Err(format!(
            "--check content and length compare with a first response, and {} is not sent before the run, because it may \
             change something; write --expect-sha256 or --check status",
            request.method
        )),
        _ => Ok(()),
    }
}

/// The longest measured time, and the least.
fn least(
    arguments: &LoadArguments,
    duration: Option<Duration>,
) -> (Option<Duration>, Option<Least>) {
    let (Some(responses), Some(time)) = (arguments.min_responses, duration) else {
        return (duration, None);
    };
    let longest = arguments.max_duration.unwrap_or(MAX_DURATION_DEFAULT);
    (Some(longest.max(time)), Some(Least { time, responses }))
}

/// The measured time, and the warm-up before it.
fn times(arguments: &LoadArguments) -> Result<(Option<Duration>, WarmUp), String> {
    let is_counted = arguments.requests.is_some();
    let duration = match is_counted {
        true => arguments.duration,
        false => Some(arguments.duration.unwrap_or(DURATION_DEFAULT)),
    };
    let warm_up = match arguments.warm_up {
        Some(WarmUpArgument::For(length)) => WarmUp::For(length),
        Some(WarmUpArgument::Steady) => WarmUp::UntilSteady,
        None if is_counted => WarmUp::For(Duration::ZERO),
        None => WarmUp::For(WARM_UP_DEFAULT),
    };
    if is_counted && warm_up != WarmUp::For(Duration::ZERO) {
        return Err("-n counts every request; leave out --warm-up, or write -d instead".to_owned());
    }
    if arguments.rate.is_some() && warm_up == WarmUp::UntilSteady {
        return Err("--rate plans the warm-up as well; write --warm-up 5s".to_owned());
    }
    Ok((duration, warm_up))
}

fn wanted(arguments: &LoadArguments) -> Result<Wanted, String> {
    Ok(Wanted {
        check: arguments.check,
        status: arguments.expect_status,
        sha256: arguments.expect_sha256.as_deref().map(hash).transpose()?,
        keep_going: arguments.keep_going,
    })
}

/// In the order in which they are tried.
fn protocols(arguments: &LoadArguments, origin: &OriginUrl) -> Vec<Protocol> {
    match arguments.http {
        Some(version) => vec![version.protocol()],
        None if origin.is_https => vec![Protocol::Http2, Protocol::Http1],
        None => vec![Protocol::Http1],
    }
}

fn tls(arguments: &LoadArguments, origin: &OriginUrl) -> Result<Option<UpstreamTls>, String> {
    if !origin.is_https {
        return Ok(None);
    }
    let mut builder = ClientTls::builder();
    if let Some(file) = &arguments.ca {
        builder = builder.authorities(CaSet::load(file).map_err(|error| error.to_string())?);
    }
    if arguments.insecure {
        builder = builder.danger_accept_any_certificate();
    }
    let tls = builder.build().map_err(|error| error.to_string())?;
    let tls = UpstreamTls::new(&ClientTlsSlot::from(tls), origin.name());
    tls.map(Some).map_err(|error| error.to_string())
}

fn requests(arguments: &LoadArguments, origin: &OriginUrl) -> Result<Vec<RequestSpec>, String> {
    let mut requests = match &arguments.requests_file {
        Some(file) => request_file::read(file, &origin.base)?,
        None => vec![request(arguments, origin)?],
    };
    for field in &arguments.fields {
        let (name, value) = field
            .split_once(':')
            .ok_or_else(|| format!("`{field}` is no header field; write 'Name: value'"))?;
        let is_own = |own: &&&str| own.eq_ignore_ascii_case(name.trim());
        if let Some(own) = OWN_FIELDS.iter().find(is_own) {
            return Err(format!(
                "blitz load decides itself about {own}; leave it out"
            ));
        }
        for request in &mut requests {
            let field = (name.trim().to_owned(), value.trim().to_owned());
            request.fields.push(field);
        }
    }
    Ok(requests)
}

/// The request of the command line.
fn request(arguments: &LoadArguments, origin: &OriginUrl) -> Result<RequestSpec, String> {
    let rest = match origin.rest.as_str() {
        "" => "/",
        rest => rest,
    };
    let url = format!("{}{rest}", origin.base);
    let content = match (&arguments.body, arguments.upload) {
        (Some(text), _) => match text.strip_prefix('@') {
            Some(file) => {
                RequestContent::Bytes(fs::read(file).map_err(|error| format!("{file}: {error}"))?)
            }
            None => RequestContent::Text(text.clone()),
        },
        (None, Some(length)) => RequestContent::Zeros(length),
        (None, None) => RequestContent::None,
    };
    let default = match content {
        RequestContent::None => "GET",
        _ => "POST",
    };
    Ok(RequestSpec {
        method: arguments.method.as_deref().unwrap_or(default).to_owned(),
        content,
        ..RequestSpec::get(&url)
    })
}

fn hash(text: &str) -> Result<[u8; 32], String> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes = digits.collect::<Option<Vec<u8>>>();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no SHA-256; write its 64 hexadecimal digits"))
}

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64 & 0xFFFF_FFFF)
}
