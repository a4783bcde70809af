//! The arguments of `blitz load`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blitz_http::Protocol;
use clap::{Args, ValueEnum};

use super::rate::{RateProfile, Spacing};
use super::windows::Windows;

const EXAMPLES: &str = "\
Examples:
  blitz load http://localhost:8080/hello
      10 connections, as many requests as the server answers, for 10 s
  blitz load -c 100 -m 32 --http 2 --insecure https://localhost:8443/hello
      100 connections with 32 streams each over HTTP/2
  blitz load -R 2000 -d 60s http://localhost:8080/
      2,000 requests per second; latency counts from the planned time
  blitz load -R 100..5000 --arrivals poisson -d 2m http://localhost:8080/
      a ramp with random arrivals
  blitz load -n 500 -c 50 --warm-up 0s http://localhost:8080/json
      a cold run of 500 requests, connecting included
  blitz load --requests-file site.har -c 6 https://localhost:8443/
      the requests of a HAR file for this server
  blitz load --new-connections --no-resume https://localhost:8443/
      full handshakes
  blitz load -X POST -b '{\"n\":{{ n }}}' -H 'Content-Type: application/json' \\
             http://localhost:8080/echo
      content with a number that differs in each request

Exit codes: 0 a valid run, 1 requests failed or responses were wrong, 2 usage
error, 75 the result is INVALID: for example the generator was too slow.";

/// The arguments of `blitz load`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LoadArguments {
    /// The URL to request: http://, https:// or a unix socket with --address
    #[arg(value_name = "URL")]
    pub(super) url: String,

    /// Connections
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = count(1_000_000), help_heading = LOAD)]
    pub(super) connections: u32,

    /// Requests in flight on each connection; HTTP/1.1 has 1
    #[arg(short = 'm', long, value_name = "N", default_value_t = 1, value_parser = count(10_000), help_heading = LOAD)]
    pub(super) streams: u32,

    /// Length of the measured time, for example 30s [default: 10s, or until -n requests are done]
    #[arg(short, long, short_aliases = ['z', 'D'], value_name = "DURATION", value_parser = duration, help_heading = LOAD)]
    pub(super) duration: Option<Duration>,

    /// Number of requests; the run ends when they are done, without a warm-up
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = LOAD)]
    pub(super) requests: Option<u64>,

    /// Go on after --duration until so many responses have come
    #[arg(long, value_name = "N", conflicts_with_all = ["requests", "rate"], value_parser = clap::value_parser!(u64).range(1..), help_heading = LOAD)]
    pub(super) min_responses: Option<u64>,

    /// The longest measured time of --min-responses; the result is INVALID if it ends the run [default: 1m]
    #[arg(long, value_name = "DURATION", requires = "min_responses", value_parser = duration, help_heading = LOAD)]
    pub(super) max_duration: Option<Duration>,

    /// Requests per second, whatever the server does (open loop)
    ///
    /// 2000, 2.5k, 100..5000 for a ramp, 1000:10s,2000:10s for steps. Latency counts from the planned time of a
    /// request, so that the wait behind slow ones is part of it. Without it each stream sends its next request when it
    /// has the response to the last one (closed loop).
    #[arg(short = 'R', long, aliases = ["qps"], short_alias = 'q', value_name = "RATE", conflicts_with = "requests", help_heading = LOAD)]
    pub(super) rate: Option<RateProfile>,

    /// How the arrivals of --rate are spaced
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Spacing::Constant, requires = "rate", help_heading = LOAD)]
    pub(super) arrivals: Spacing,

    /// Time before the measured time: a duration, or steady [default: 1s; 0s with -n]
    ///
    /// steady warms up until the rate of responses no longer changes, for at most 15 s.
    #[arg(long, value_name = "DURATION", value_parser = warm_up, help_heading = LOAD)]
    pub(super) warm_up: Option<WarmUpArgument>,

    /// Generating cores, with one thread each [default: all processors]
    #[arg(short = 't', long, alias = "threads", value_name = "N", value_parser = count(1024), help_heading = LOAD)]
    pub(super) cores: Option<u32>,

    /// Version of HTTP [default: over TLS 2 if the server has it; otherwise 1.1]
    #[arg(long, value_enum, value_name = "VERSION", help_heading = CONNECTIONS)]
    pub(super) http: Option<HttpVersion>,

    /// Open a connection for each request
    #[arg(long, alias = "disable-keepalive", help_heading = CONNECTIONS)]
    pub(super) new_connections: bool,

    /// Make full TLS handshakes, and resume no session
    #[arg(long, help_heading = CONNECTIONS)]
    pub(super) no_resume: bool,

    /// Connect to this address: IP:PORT, or unix:/PATH [default: the host of the URL]
    ///
    /// The request still names the host of the URL. Of several addresses of a name, the first is used that a connection
    /// can be made to.
    #[arg(long, value_name = "ADDR", help_heading = CONNECTIONS)]
    pub(super) address: Option<String>,

    /// Bytes that a server may send before they are read: of a stream, and of a connection [default: 6m:15m]
    ///
    /// Those of browsers. 64k alone is a window of a stream; that of the connection is then 2.5 times as large. Over
    /// HTTP/3 a stream has at most 2m, because QUIC's library keeps no more gaps. HTTP/1.1 has those of the kernel.
    #[arg(long, value_name = "SIZE[:SIZE]", help_heading = CONNECTIONS)]
    pub(super) window: Option<Windows>,

    /// Authorities (PEM) that are trusted [default: the well-known ones]
    #[arg(long, value_name = "FILE", help_heading = CONNECTIONS)]
    pub(super) ca: Option<PathBuf>,

    /// Accept any certificate: for tests of development servers
    #[arg(long, conflicts_with = "ca", help_heading = CONNECTIONS)]
    pub(super) insecure: bool,

    /// The longest time for connecting, for a response, and for a silence within it
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, help_heading = CONNECTIONS)]
    pub(super) timeout: Duration,

    /// Method
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = REQUESTS)]
    pub(super) method: Option<String>,

    /// Header field; may be repeated
    ///
    /// {{ n }} is the number of the request, {{random}} and {{uuid}} differ in each; also in the URL and in --body.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", help_heading = REQUESTS)]
    pub(super) fields: Vec<String>,

    /// Content: text, or @FILE
    #[arg(short, long, value_name = "TEXT", help_heading = REQUESTS)]
    pub(super) body: Option<String>,

    /// Content of so many bytes of zero: 512, 64k, 10m
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "body", help_heading = REQUESTS)]
    pub(super) upload: Option<u64>,

    /// A file with requests: one a line, [METHOD] URL [weight=N], or a HAR file
    ///
    /// Lines after a request are its header fields, and @FILE its content. Requests with equal weights are sent in
    /// turn, others at random.
    #[arg(short = 'i', long, alias = "input-file", value_name = "FILE", conflicts_with_all = ["body", "upload", "method"], help_heading = REQUESTS)]
    pub(super) requests_file: Option<PathBuf>,

    /// The part of each response that is compared with the response to a first request
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Check::Auto, help_heading = CHECKS)]
    pub(super) check: Check,

    /// The status that responses must have [default: the first response's, which must be below 400]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599), help_heading = CHECKS)]
    pub(super) expect_status: Option<u16>,

    /// The SHA-256 of the content, in hexadecimal
    #[arg(long, value_name = "HASH", help_heading = CHECKS)]
    pub(super) expect_sha256: Option<String>,

    /// Count wrong responses, and do not end the run with the first one
    #[arg(long, help_heading = CHECKS)]
    pub(super) keep_going: bool,

    /// Write the result as JSON; - is the standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) json: Option<PathBuf>,

    /// Write a report as one HTML file: charts, tables, and how to repeat the run
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) html: Option<PathBuf>,

    /// Write the report as Markdown; - is the standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) markdown: Option<PathBuf>,

    /// Write the percentiles as CSV; - is the standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) csv: Option<PathBuf>,

    /// Write the intervals of the run as CSV; - is the standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(super) timeline_csv: Option<PathBuf>,

    /// Print no progress
    #[arg(long, help_heading = OUTPUT)]
    pub(super) quiet: bool,

    /// The seed of random arrivals and placeholders [default: random]
    #[arg(long, value_name = "N", help_heading = LOAD)]
    pub(super) seed: Option<u64>,

    /// I/O driver
    #[arg(long, value_enum, value_name = "DRIVER", default_value_t = IoArgument::Auto, help_heading = LOAD)]
    pub(super) io: IoArgument,

    /// Percentiles are always printed: for scripts written for wrk
    #[arg(long, hide = true)]
    latency: bool,
}

/// The longest time of a flag.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl LoadArguments {
    /// The files that the result is written to; `-` is the standard output.
    pub(super) fn output_files(&self) -> Vec<&Path> {
        let files = [
            &self.json,
            &self.html,
            &self.markdown,
            &self.csv,
            &self.timeline_csv,
        ];
        files
            .into_iter()
            .filter_map(|file| file.as_deref())
            .collect()
    }
}

const LOAD: &str = "Load";
const CONNECTIONS: &str = "Connections";
const REQUESTS: &str = "Requests";
const CHECKS: &str = "Checks";
const OUTPUT: &str = "Output";

/// Versions of HTTP on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum HttpVersion {
    /// HTTP/1.1
    #[value(name = "1.1", alias = "1")]
    Http11,
    /// HTTP/2, in clear text without asking first
    #[value(name = "2")]
    Http2,
    /// HTTP/3
    #[value(name = "3")]
    Http3,
}

impl HttpVersion {
    pub(super) fn protocol(self) -> Protocol {
        match self {
            HttpVersion::Http11 => Protocol::Http1,
            HttpVersion::Http2 => Protocol::Http2,
            HttpVersion::Http3 => Protocol::Http3,
        }
    }
}

/// The part of a response that is compared with the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Check {
    /// As much as two first responses have in common
    Auto,
    /// The status only
    Status,
    /// Status and length
    Length,
    /// Status and every byte of the content
    Content,
}

/// The I/O driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum IoArgument {
    /// io_uring if the kernel allows it
    Auto,
    Uring,
    Epoll,
}

/// The value of `--warm-up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WarmUpArgument {
    For(Duration),
    Steady,
}

fn count(max: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=max)
}

/// `30s`, `1m`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().ok();
    let duration = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let parsed = match duration {
        Some(duration) => duration,
        None => blitz_config::parse_duration_sum(text).map_err(|_| no_duration(text))?,
    };
    if parsed.is_zero() {
        return Err(no_duration(text));
    }
    limited(parsed, text)
}

/// A length of time that clocks and sums can hold.
pub(super) fn limited(duration: Duration, text: &str) -> Result<Duration, String> {
    match duration > DURATION_MAX {
        true => Err(format!("`{text}` is too long; write 365days or less")),
        false => Ok(duration),
    }
}

fn no_duration(text: &str) -> String {
    format!("`{text}` is no length of time; write 500ms, 30s or 2m")
}

fn warm_up(text: &str) -> Result<WarmUpArgument, String> {
    match text {
        "steady" => Ok(WarmUpArgument::Steady),
        "0" | "0s" => Ok(WarmUpArgument::For(Duration::ZERO)),
        _ => duration(text)
            .map(WarmUpArgument::For)
            .map_err(|error| format!("{error}, 0s for a cold run, or steady")),
    }
}

/// Bytes: `512`, `64k`, `10m`, `1g`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];
    let unit = units.iter().find(|(unit, _)| lower.ends_with(*unit));
    let digits = lower.trim_end_matches(['k', 'm', 'g']);
    let number = digits.parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(unit.map_or(1, |(_, factor)| *factor)))
        .ok_or_else(|| format!("`{text}` is no size; write 512, 64k, 10m or 1g"))
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn parse(words: &str) -> Result<LoadArguments, clap::Error> {
        let command = LoadArguments::augment_args(Command::new("load"));
        let matches = command.try_get_matches_from(words.split(' '))?;
        LoadArguments::from_arg_matches(&matches)
    }

    #[test]
    fn flags_of_other_generators_mean_the_same() {
        let wrk = parse("load -t4 -c100 -d10s --latency http://a/").unwrap();
        assert_eq!((wrk.cores, wrk.connections), (Some(4), 100));
        assert_eq!(wrk.duration, Some(Duration::from_secs(10)));
        let wrk2 = parse("load -t2 -c100 -d30 -R2000 http://a/").unwrap();
        assert_eq!(wrk2.rate.unwrap().constant(), Some(2000.0));
        let h2load = parse("load -n10000 -c100 -m100 http://a/").unwrap();
        assert_eq!((h2load.requests, h2load.streams), (Some(10_000), 100));
        let h2load = parse("load -D 10 -i urls http://a/").unwrap();
        assert_eq!(h2load.duration, Some(Duration::from_secs(10)));
        let ab = parse("load -n 1000 -c 10 -H A:b http://a/").unwrap();
        assert_eq!(ab.fields, ["A:b"]);
        let oha = parse("load -z 10s -q 100 --disable-keepalive --insecure https://a/").unwrap();
        assert!(oha.new_connections && oha.insecure && oha.rate.is_some());
    }

    #[test]
    fn wrong_values_say_what_to_write() {
        for (words, part) in [
            ("load -d soon http://a/", "30s"),
            ("load -d 0s http://a/", "30s"),
            ("load -d 500000000000years http://a/", "365days or less"),
            ("load -d 4294967295 http://a/", "365days or less"),
            ("load --warm-up 2years http://a/", "365days or less"),
            ("load --timeout 2years http://a/", "365days or less"),
            ("load -R 10:2years http://a/", "365days or less"),
            ("load --warm-up never http://a/", "steady"),
            ("load --upload big http://a/", "64k"),
            ("load --window 0 http://a/", "6m:15m"),
            ("load -c 0 http://a/", "1..="),
            ("load -n 5 -R 10 http://a/", "cannot be used"),
            ("load --min-responses 5 -R 10 http://a/", "cannot be used"),
            ("load --max-duration 5s http://a/", "--min-responses"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(part), "{words}: {error}");
        }
        assert_eq!(size("64k"), Ok(65_536));
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
