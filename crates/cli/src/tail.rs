//! `blitz tail`: the requests of a running process, as they end.

mod text;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::thread;

use blitz_config::{Network, parse_duration_sum};
use blitz_gateway::access_log::LogFormat;
use blitz_http::Signals;
use clap::{Args, ValueEnum};

use self::text::Layout;
use crate::control_client::{self, ANSWER_TIMEOUT, Place, StreamedContent, usual_paths};
use crate::followers::{FORMATS, WantedStatus, dropped_lines};
use crate::terminal::{columns, has_colour};

const EXAMPLES: &str = "\
Examples:
  blitz tail                                  all requests, as they end
  blitz tail --status 5xx,none --slower 100ms failures that took longer
  blitz tail --route /api --client 10.0.0.0/8 those of a route and of some clients
  blitz tail -n 100 --format json > some.json the next hundred

A request is shown if it meets all conditions; each is met by any of its values. Values
of queries are left out, as in the access log. Control-C ends it. If the process ends, it
says so, and the exit code is 1.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TailArguments {
    /// Socket of the process [default: /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Statuses of responses: 404, 5xx, or none for requests without a response
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    status: Vec<String>,

    /// Sites, by the names in the configuration
    #[arg(long, value_name = "SITE", value_delimiter = ',')]
    site: Vec<String>,

    /// Routes, by their paths in the configuration, as /api or app.example/api
    #[arg(long, value_name = "ROUTE", value_delimiter = ',')]
    route: Vec<String>,

    /// Clients: addresses or networks
    #[arg(long, value_name = "ADDR", value_delimiter = ',', value_parser = client)]
    client: Vec<String>,

    /// Requests that took longer
    #[arg(long, value_name = "DURATION", value_parser = slower, allow_hyphen_values = true)]
    slower: Option<String>,

    /// The form of lines; all but text are those of the access log
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Ends after so many requests
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Columns for people, in colours on a terminal
    Text,
    /// A JSON object for each request
    Json,
    Logfmt,
    /// The combined format of nginx and Apache httpd
    Combined,
}

impl Format {
    /// That of the lines which the process sends.
    fn of_lines(self) -> LogFormat {
        match self {
            Format::Text | Format::Json => LogFormat::Json,
            Format::Logfmt => LogFormat::Logfmt,
            Format::Combined => LogFormat::Combined,
        }
    }
}

pub(crate) fn run(arguments: &TailArguments) -> ExitCode {
    match follow(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

const NEEDS_SOCKET: &str = "\
blitz: only the control socket has requests, this is a control address
  write --control PATH with its socket, on the same machine; `blitz top` reads addresses";

/// Prints requests until there are enough, or until nobody reads them.
///
/// # Errors
/// The process has ended, or cannot be followed.
fn follow(arguments: &TailArguments) -> Result<(), String> {
    let chosen = arguments.control.clone();
    let address = chosen.as_deref().and_then(Path::to_str);
    if address.is_some_and(|text| text.parse::<SocketAddr>().is_ok()) {
        return Err(NEEDS_SOCKET.to_owned());
    }
    let paths = chosen.map_or_else(usual_paths, |path| vec![path]);
    let places: Vec<_> = paths.into_iter().map(Place::Socket).collect();
    let content = control_client::open(&places, &target(arguments), ANSWER_TIMEOUT)?;
    end_on_signal()?;
    let mut printer = Printer::new(arguments);
    let printed = printer.head().and_then(|()| printer.print_all(content));
    match printed {
        Ok(End::Enough) => Ok(()),
        Ok(End::OfContent) => {
            Err("blitz: the process ends, and shows no further requests".to_owned())
        }
        Ok(End::OfProcess) => {
            let problem =
                "blitz: the process has ended, or nobody has read its requests for a minute";
            Err(problem.to_owned())
        }
        // Such as `head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(format!("blitz: the requests cannot be printed: {error}")),
    }
}

/// Why there are no further requests.
enum End {
    Enough,
    OfContent,
    OfProcess,
}

fn target(arguments: &TailArguments) -> String {
    let all = |name: &'static str, values: &[String]| -> Vec<_> {
        values.iter().map(|value| (name, value.clone())).collect()
    };
    let format = arguments.format.of_lines();
    let names = FORMATS.iter().filter(|(_, known)| *known == format);
    let names: Vec<_> = names
        .map(|(name, _)| ("format", (*name).to_owned()))
        .collect();
    let pairs = [
        names,
        all("status", &arguments.status),
        all("site", &arguments.site),
        all("route", &arguments.route),
        all("client", &arguments.client),
        all("slower", arguments.slower.as_slice()),
    ];
    control_client::target("/tail", &pairs.concat())
}

/// Control-C is the usual end, and no failure.
fn end_on_signal() -> Result<(), String> {
    let failed = |error: io::Error| format!("blitz: signals cannot be handled: {error}");
    let signals = Signals::install().map_err(failed)?;
    let waiting = thread::Builder::new().spawn(move || {
        let _ = signals.wait(None);
        process::exit(0);
    });
    waiting.map(drop).map_err(failed)
}

/// Writes lines to standard output.
struct Printer {
    format: Format,
    layout: Layout,
    left: Option<u64>,
    /// The beginning of a line whose rest has not come.
    begun: Vec<u8>,
}

impl Printer {
    fn new(arguments: &TailArguments) -> Printer {
        Printer {
            format: arguments.format,
            layout: Layout::new(columns(), has_colour()),
            left: arguments.count,
            begun: Vec::new(),
        }
    }

    /// The titles of columns, for people.
    fn head(&self) -> io::Result<()> {
        match self.format == Format::Text && io::stdout().is_terminal() {
            true => write(&(self.layout.head() + "\n")),
            false => Ok(()),
        }
    }

    fn print_all(&mut self, mut content: StreamedContent) -> io::Result<End> {
        loop {
            if self.left == Some(0) {
                return Ok(End::Enough);
            }
            match content.next() {
                Ok(Some(piece)) => self.print(&piece)?,
                Ok(None) => return Ok(End::OfContent),
                Err(_) => return Ok(End::OfProcess),
            }
        }
    }

    /// Prints the lines that are complete, and no more than are wanted.
    fn print(&mut self, piece: &[u8]) -> io::Result<()> {
        self.begun.extend_from_slice(piece);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let rest = self.begun.split_off(end + 1);
        let lines = std::mem::replace(&mut self.begun, rest);
        let mut out = String::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            if let Some(dropped) = dropped_lines(self.format.of_lines(), line) {
                // Where they are missing.
                write(&std::mem::take(&mut out))?;
                eprintln!(
                    "blitz: {dropped} requests are missing here, as they came faster than they were read"
                );
                continue;
            }
            if self.left == Some(0) {
                break;
            }
            self.left = self.left.map(|left| left - 1);
            out += &match self.format {
                Format::Text => self.layout.line(line),
                Format::Json | Format::Logfmt | Format::Combined => line.to_owned(),
            };
            out.push('\n');
        }
        write(&out)
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn status(value: &str) -> Result<String, String> {
    WantedStatus::parse(value).map(|_| value.to_owned())
}

fn client(value: &str) -> Result<String, String> {
    let client = Network::parse(value);
    client
        .map(|_| value.to_owned())
        .map_err(|error| error.to_string())
}

fn slower(value: &str) -> Result<String, String> {
    let duration = parse_duration_sum(value);
    duration
        .map(|_| value.to_owned())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        tail: TailArguments,
    }

    #[test]
    fn flags_become_a_query() {
        let target = |flags: &[&str]| {
            let command = Command::try_parse_from([&["tail"], flags].concat());
            target(&command.ok().unwrap().tail)
        };
        assert_eq!(target(&[]), "/tail?format=json");
        let flags = [
            "--status=5xx,404",
            "--route=/a b",
            "--client=10.0.0.0/8",
            "--slower=100ms",
            "--format=logfmt",
        ];
        assert_eq!(
            target(&flags),
            "/tail?format=logfmt&status=5xx&status=404&route=%2Fa%20b&client=10.0.0.0%2F8&slower=100ms"
        );
    }

    #[test]
    fn the_examples_fit_into_a_terminal() {
        assert!(EXAMPLES.lines().all(|line| line.len() <= 90));
    }
}
