//! `blitz explain`: the way of a request through the sites of a file, without sending it.

mod order;
mod question;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use blitz_config::{Configuration, Settings, Span};
use blitz_gateway::{
    Explanation, Rejection, RequestOutcome, Sites, TrustedProxies, TrustedProxy, Verdict, explain,
};
use blitz_http::{Peer, RequestHead, Scheme, is_authority};
use clap::Args;
use serde_json::json;

use self::question::LOCALHOST;
use crate::check::Format;
use crate::config::{self, ConfigFile};
use crate::control_client::Chosen;
use crate::explanation::{self, About, ExplanationLine};
use crate::redaction::{is_secret, shown, without_userinfo};
use crate::{config_diff, control_client, effective, output};

pub(crate) use question::Question;

const EXAMPLES: &str = "\
Examples:
  blitz explain GET https://app.example/api/orders
  blitz explain POST http://app.example/admin --from 192.0.2.9
  blitz explain GET http://app.example/ -H 'X-Forwarded-For: 192.0.2.9'
  blitz explain --routes app.example    all routes of a host by rank
  blitz explain GET https://app.example/ --running        the configuration in use
  blitz explain GET https://app.example/ --format json    one object

The exit code is 1 if the file has mistakes, or if no process answers with --running.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArguments {
    /// Method of the request
    #[arg(required_unless_present = "routes")]
    method: Option<String>,

    /// URL of the request
    #[arg(required_unless_present = "routes")]
    url: Option<String>,

    /// Field of the request; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,

    /// Address of the client
    #[arg(long, value_name = "ADDRESS", default_value_t = LOCALHOST)]
    from: IpAddr,

    /// Print all routes of this host by rank
    #[arg(long, value_name = "HOST", conflicts_with_all = ["method", "url", "headers"])]
    routes: Option<String>,

    /// How to print it: text, or json with one object
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    format: Format,

    /// The file, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml]
    ///
    /// With --running the file that names the socket of the process.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Ask a running Blitz, which may use another version of the file
    #[arg(long)]
    running: bool,

    /// Socket of the process [default: that of the file, /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH", requires = "running")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ExplainArguments) -> ExitCode {
    match text(arguments) {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("blitz: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn text(arguments: &ExplainArguments) -> Result<String, String> {
    let question = Question {
        method: arguments.method.clone().unwrap_or_default(),
        url: arguments.url.clone().unwrap_or_default(),
        headers: arguments.headers.clone(),
        from: arguments.from,
        routes: arguments.routes.clone(),
        format: arguments.format,
    };
    if arguments.running {
        let target = control_client::target("/explain", &question.pairs());
        let process = Chosen {
            socket: arguments.control.as_deref(),
            config: arguments.config.as_deref(),
        };
        let answer = config_diff::get(process, &target);
        return answer.map_err(|problem| problem.trim_start_matches("blitz: ").to_owned());
    }
    let file = ConfigFile::load(&config::chosen(arguments.config.as_deref()), false)?;
    if let Some(problem) = file.problem() {
        file.report();
        return Err(problem);
    }
    answer(&file, &file.trusted_proxies, &question)
}

/// The explanation of a request to the sites of a file, behind these proxies.
///
/// # Errors
/// The request is invalid, or no site has the host.
pub(crate) fn answer(
    file: &ConfigFile,
    trusted: &[TrustedProxy],
    question: &Question,
) -> Result<String, String> {
    let sites = Sites::of_file(file.sites.clone());
    if let Some(host) = &question.routes {
        return routes(&sites, host, file, question.format);
    }
    let (scheme, mut head) = request(&question.method, &question.url)?;
    for line in &question.headers {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let added = head.fields.try_append(name, value.trim());
        added.map_err(|_| format!("`{line}` is no field\n  write -H 'NAME: VALUE'"))?;
    }
    let peer = Peer {
        remote: Some(SocketAddr::new(question.from, 0)),
        listener: None,
        scheme,
        tls: None,
    };
    let trusted: TrustedProxies = trusted.iter().copied().collect();
    let explanation = explain(&sites, &mut head, &peer, &trusted);
    let lines = ExplanationReport::new(file).of(&explanation);
    Ok(match question.format {
        Format::Text => explanation::text(&lines),
        Format::Json => explanation::json(&lines),
    })
}

/// Scheme and head of a request for this URL.
fn request(method: &str, url: &str) -> Result<(Scheme, RequestHead), String> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("https", rest)) => (Scheme::Https, rest),
        Some(("http", rest)) => (Scheme::Http, rest),
        Some((other, _)) => {
            return Err(format!(
                "`{other}` is no scheme of HTTP\n  write http:// or https://"
            ));
        }
        None => {
            return Err(format!("`{url}` has no scheme\n  write https://{url}"));
        }
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let target = match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    };
    if authority.is_empty() || !is_authority(authority.as_bytes()) {
        return Err(format!(
            "`{authority}` is no host\n  write for example https://app.example/"
        ));
    }
    let head = RequestHead::parse(method, &target);
    let mut head = head.map_err(|error| {
        format!(
            "the request would be refused, whatever its host: rule {}\n  correct the method or the path",
            error.rule()
        )
    })?;
    head.set_authority(authority);
    Ok((scheme, head))
}

fn routes(sites: &Sites, host: &str, file: &ConfigFile, format: Format) -> Result<String, String> {
    let Some(site) = sites.find_by_host(Some(host)) else {
        return Err(format!("no site has the host {host}"));
    };
    let configured = ExplanationReport::new(file).site(site.hosts.first());
    let place = |name: &str| {
        let route = configured.and_then(|site| route_of(site, name));
        let place = route.map(|route| file.line_of(&route.key.span));
        place.unwrap_or_default()
    };
    if format == Format::Json {
        let routes = site.routes.ranked().map(|route| {
            json!({ "route": route.name, "action": without_userinfo(&route.destination()), "place": place(&route.name) })
        });
        let routes: Vec<_> = routes.collect();
        return Ok(json!({ "host": host, "routes": routes }).to_string() + "\n");
    }
    let width = site.routes.iter().map(|route| route.name.chars().count());
    let width = width.max().unwrap_or_default();
    let lines = site.routes.ranked().map(|route| {
        let action = without_userinfo(&route.destination());
        let (name, place) = (&route.name, place(&route.name));
        let line = format!("{name:width$} {action:36}  {place}");
        line.trim_end().to_owned() + "\n"
    });
    Ok(lines.collect())
}

/// Collects values with their places in the file.
struct ExplanationReport<'a> {
    file: &'a ConfigFile,
    lines: Vec<ExplanationLine>,
}

/// More routes that do not apply are counted only.
const OTHERS_SHOWN: usize = 20;

impl<'a> ExplanationReport<'a> {
    fn new(file: &'a ConfigFile) -> ExplanationReport<'a> {
        ExplanationReport {
            file,
            lines: Vec::new(),
        }
    }

    fn of(mut self, explanation: &Explanation<'_>) -> Vec<ExplanationLine> {
        let configured = explanation
            .site
            .and_then(|site| self.site(site.hosts.first()));
        if let (Some(site), Some(configured)) = (explanation.site, configured) {
            let hosts = site.hosts.first().map(ToString::to_string);
            self.line(
                About::Site,
                &hosts.unwrap_or_default(),
                Some(&configured.host.span),
                "",
            );
        }
        let found = explanation.routes.first();
        let found = found.filter(|(_, verdict)| *verdict == Verdict::Applies);
        let of_file = configured
            .zip(found)
            .and_then(|(site, (route, _))| route_of(site, &route.name));
        let number = explanation.combination;
        let variants = of_file.and_then(|route| route.variants.as_deref());
        let variant = variants.and_then(|variants| variants.settings(number));
        let settings = variant.or(of_file.map(|route| &route.settings));
        if let (Some((route, _)), Some(variant)) = (found, explanation.variant) {
            let span = of_file.map(|route| &route.key.span);
            self.line(About::Route, &route.name, span, "");
            for (name, value) in &explanation.groups {
                self.line(About::Group, &format!("{name} = {value}"), None, "");
            }
            for block in variants
                .into_iter()
                .flat_map(|variants| variants.blocks(number))
            {
                let condition = shown("when", self.file.slice(&block.span));
                self.line(About::When, &condition, Some(&block.span), "");
            }
            if let Some(settings) = settings {
                self.rules(settings);
            }
            let span = settings.map(|settings| &settings.action.span);
            self.line(About::Action, &variant.destination(), span, "");
        }
        if explanation.site.is_none() {
            let text = "404, over TLS 421";
            let detail = Rejection::UnknownHost.detail();
            self.line(About::Outcome, text, None, detail);
            return self.lines;
        }
        let written = explanation
            .variant
            .and_then(|route| route.written.as_deref());
        match (written, &explanation.outcome) {
            // The result would show the value of the variable.
            (
                Some(written),
                RequestOutcome::Answered { .. }
                | RequestOutcome::Forwarded { .. }
                | RequestOutcome::File(_),
            ) => {
                self.line(About::Outcome, written, None, "");
            }
            (_, outcome) => self.outcome(outcome, settings),
        }
        let reading = explanation.reading.iter();
        reading.for_each(|reading| self.line(About::Reading, reading, None, ""));
        let reason = explanation.reason.iter();
        reason.for_each(|reason| self.line(About::Reason, reason, None, ""));
        self.others(explanation);
        self.lines
    }

    /// The site of the file with this host.
    fn site(&self, host: Option<&blitz_config::Host>) -> Option<&'a blitz_config::Site> {
        let host = host?;
        let configuration: &'a Configuration = &self.file.configuration;
        let mut sites = configuration.sites.iter();
        sites.find(|site| {
            let names = std::iter::once(&site.host).chain(&site.canonical_for);
            names.into_iter().any(|name| name.value == *host)
        })
    }

    /// Values as they are written, so that those of variables stay unknown.
    fn rules(&mut self, settings: &Settings) {
        for (key, span) in order::sorted(settings, effective::values(settings)) {
            if !effective::is_of_action(&key) {
                let written = shown(&key, self.file.slice(span));
                let remark = self.networks(&key, settings);
                self.line(
                    About::Rule,
                    &format!("{key} = {written}"),
                    Some(span),
                    &remark,
                );
            }
        }
    }

    /// The numbers of networks of the files of a list.
    fn networks(&self, key: &str, settings: &Settings) -> String {
        let list = match key {
            "allow" => settings.allow.as_ref(),
            "deny" => settings.deny.as_ref(),
            _ => None,
        };
        let files = list.into_iter().flat_map(|list| &list.value.files);
        let counted = files.filter_map(|file| self.file.networks.counted(&file.value));
        counted.collect::<Vec<_>>().join(", ")
    }

    fn outcome(&mut self, outcome: &RequestOutcome, settings: Option<&Settings>) {
        match outcome {
            RequestOutcome::Rejected(Rejection::HttpsOnly) => {
                self.line(
                    About::Outcome,
                    "308 to the same URL with https://",
                    None,
                    "",
                );
            }
            RequestOutcome::Rejected(rejection) => {
                let status = rejection.status().code();
                let text = format!("{status} {}", rejection.rule());
                self.line(About::Outcome, &text, None, rejection.detail());
            }
            RequestOutcome::Answered { status, location } => {
                let location = location.as_deref().unwrap_or_default();
                self.line(About::Outcome, &format!("{status} {location}"), None, "");
            }
            RequestOutcome::App => self.line(About::Outcome, "an app answers", None, ""),
            RequestOutcome::File(Some(path)) => {
                let detail =
                    "if it is there; endings, the index and the fallback are tried as well";
                self.line(About::Outcome, path, None, detail);
            }
            RequestOutcome::File(None) => {
                let detail = "such a path has no file: a segment is hidden, empty or ambiguous";
                self.line(About::Outcome, "404", None, detail);
            }
            RequestOutcome::Forwarded {
                file,
                url,
                servers,
                mirror,
                target,
                host,
                fields,
            } => {
                if let Some(file) = file {
                    let detail = "if it is there, as of a route with files alone; else";
                    self.line(About::Outcome, file, None, detail);
                }
                self.line(About::Outcome, &format!("{url}{target}"), None, "");
                for server in servers {
                    self.line(About::Server, server, None, "");
                }
                if let Some(mirror) = mirror {
                    self.line(About::Server, mirror, None, "");
                }
                self.line(About::Field, &format!("Host: {host}"), None, "");
                for (name, value) in fields {
                    self.field(name, value, settings);
                }
            }
        }
    }

    /// A field that the upstream receives. A value with a variable is shown as it is written, and a secret of the file is
    /// not shown.
    fn field(&mut self, name: &str, value: &str, settings: Option<&Settings>) {
        let rules = settings.map(|settings| &*settings.request_headers);
        let rule = rules.and_then(|rules| {
            rules
                .iter()
                .find(|rule| rule.name.eq_ignore_ascii_case(name))
        });
        let written = rule.map(|rule| self.file.slice(&rule.change.span));
        let text = match written {
            Some(written) if written.contains("${") => format!("{name}: {written}"),
            Some(_) if is_secret(name) => format!("{name}: ***"),
            _ => format!("{name}: {value}"),
        };
        self.line(About::Field, &text, None, "");
    }

    fn others(&mut self, explanation: &Explanation<'_>) {
        let more = explanation.routes.len().saturating_sub(OTHERS_SHOWN);
        for (route, verdict) in explanation.routes.iter().take(OTHERS_SHOWN) {
            let reason = match verdict {
                Verdict::Applies => continue,
                Verdict::Behind(other) => {
                    let other = explanation.site.map(|site| &site.routes.at(*other).name);
                    format!("{} comes first", other.map_or("another route", |name| name))
                }
                Verdict::OtherMethods => "other methods".to_owned(),
                Verdict::OtherPaths => "another path".to_owned(),
            };
            self.line(About::Other, &route.name, None, &reason);
        }
        if more > 0 {
            let more = more.to_string();
            self.line(About::More, &more, None, "--routes HOST prints all");
        }
    }

    fn line(&mut self, about: About, value: &str, span: Option<&Span>, remark: &str) {
        let place = span.map(|span| self.file.line_of(span));
        self.lines.push(ExplanationLine {
            about,
            value: without_userinfo(value),
            place: place.unwrap_or_default(),
            remark: remark.to_owned(),
        });
    }
}

fn route_of<'a>(site: &'a blitz_config::Site, name: &str) -> Option<&'a blitz_config::Route> {
    let mut routes = site.routes.iter();
    routes.find(|route| route.key.value.to_string() == name)
}
