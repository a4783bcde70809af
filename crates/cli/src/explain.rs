//! `blitz explain`: the way of a request through the sites of a file, without sending it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use blitz_config::{Configuration, Settings, Span};
use blitz_gateway::{Explanation, Outcome, Rejection, Sites, TrustedProxies, Verdict, explain};
use blitz_http::{Peer, RequestHead, Scheme, is_authority};
use clap::Args;

use crate::config::{self, ConfigFile};
use crate::{effective, output};

const EXAMPLES: &str = "\
Examples:
  blitz explain GET https://app.example/api/orders
  blitz explain POST http://app.example/admin --from 192.0.2.9
  blitz explain GET http://app.example/ -H 'X-Forwarded-For: 192.0.2.9'
  blitz explain --routes app.example    all routes of a host by rank

The exit code is 1 if the file has mistakes.";

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
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,

    /// Print all routes of this host by rank
    #[arg(long, value_name = "HOST", conflicts_with_all = ["method", "url", "headers"])]
    routes: Option<String>,

    /// The file, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    let file = ConfigFile::load(&config::chosen(arguments.config.as_deref()), false)?;
    if let Some(problem) = file.problem() {
        file.report();
        return Err(problem);
    }
    let sites = Sites::of_file(file.sites.clone());
    if let Some(host) = &arguments.routes {
        return routes(&sites, host, &file);
    }
    let (method, url) = (
        arguments.method.as_deref().unwrap_or_default(),
        arguments.url.as_deref().unwrap_or_default(),
    );
    let (scheme, mut head) = request(method, url)?;
    for line in &arguments.headers {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let added = head.fields.try_append(name, value.trim());
        added.map_err(|_| format!("`{line}` is no field\n  write -H 'NAME: VALUE'"))?;
    }
    let peer = Peer {
        remote: Some(SocketAddr::new(arguments.from, 0)),
        listener: None,
        scheme,
        tls: None,
    };
    let trusted: TrustedProxies = file.trusted_proxies.iter().copied().collect();
    let explanation = explain(&sites, &mut head, &peer, &trusted);
    Ok(Report::new(&file).of(&explanation))
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

fn routes(sites: &Sites, host: &str, file: &ConfigFile) -> Result<String, String> {
    let Some(site) = sites.find_by_host(Some(host)) else {
        return Err(format!("no site has the host {host}"));
    };
    let mut report = Report::new(file);
    let configured = report.site(site.hosts.first());
    let width = site.routes.iter().map(|route| route.name.chars().count());
    let width = width.max().unwrap_or_default();
    for route in site.routes.ranked() {
        let span = configured.and_then(|site| route_of(site, &route.name));
        let span = span.map(|route| &route.key.span);
        let label = format!("{:width$}", route.name);
        report.line(&label, &route.destination(), span, "");
    }
    Ok(report.text)
}

/// Lines with a label, a value, and the place of the value in the file.
struct Report<'a> {
    file: &'a ConfigFile,
    text: String,
}

/// Columns of a label, and of a value.
const LABEL: usize = 9;
const VALUE: usize = 36;

/// More routes that do not apply are counted only.
const OTHERS_SHOWN: usize = 20;

impl<'a> Report<'a> {
    fn new(file: &'a ConfigFile) -> Report<'a> {
        Report {
            file,
            text: String::new(),
        }
    }

    fn of(mut self, explanation: &Explanation<'_>) -> String {
        let configured = explanation
            .site
            .and_then(|site| self.site(site.hosts.first()));
        if let (Some(site), Some(configured)) = (explanation.site, configured) {
            let hosts = site.hosts.first().map(ToString::to_string);
            self.line(
                "site",
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
        let settings = of_file.map(|route| {
            match &route.variants {
                Some(variants) => variants.settings(explanation.combination),
                None => None,
            }
            .unwrap_or(&route.settings)
        });
        if let (Some((route, _)), Some(variant)) = (found, explanation.variant) {
            self.line(
                "route",
                &route.name,
                of_file.map(|route| &route.key.span),
                "",
            );
            let variants = of_file.and_then(|route| route.variants.as_ref());
            for block in variants
                .iter()
                .flat_map(|variants| variants.blocks(explanation.combination))
            {
                self.line("when", self.file.slice(&block.span), Some(&block.span), "");
            }
            if let Some(settings) = settings {
                self.rules(settings);
            }
            let span = settings.map(|settings| &settings.action.span);
            self.line("action", &variant.destination(), span, "");
        }
        if explanation.site.is_none() {
            let text = "404, over TLS 421";
            let detail = Rejection::UnknownHost.detail();
            self.line("outcome", text, None, detail);
            return self.text;
        }
        let written = explanation
            .variant
            .and_then(|route| route.written.as_deref());
        match (written, &explanation.outcome) {
            // The result would show the value of the variable.
            (Some(written), Outcome::Answered { .. } | Outcome::Forwarded { .. }) => {
                self.line("outcome", written, None, "");
            }
            (_, outcome) => self.outcome(outcome, settings),
        }
        if let Some(reading) = &explanation.reading {
            self.line("", &format!("servers may read {reading}"), None, "");
        }
        self.others(explanation);
        self.text
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
        for (key, span) in effective::values(settings) {
            if !effective::is_of_action(&key) {
                let written = self.file.slice(span);
                self.line("rule", &format!("{key} = {written}"), Some(span), "");
            }
        }
    }

    fn outcome(&mut self, outcome: &Outcome, settings: Option<&Settings>) {
        match outcome {
            Outcome::Rejected(Rejection::HttpsOnly) => {
                self.line("outcome", "308 to the same URL with https://", None, "");
            }
            Outcome::Rejected(rejection) => {
                let status = rejection.status().code();
                let text = format!("{status} {}", rejection.rule());
                self.line("outcome", &text, None, rejection.detail());
            }
            Outcome::Answered { status, location } => {
                let location = location.as_deref().unwrap_or_default();
                self.line("outcome", &format!("{status} {location}"), None, "");
            }
            Outcome::App => self.line("outcome", "an app answers", None, ""),
            Outcome::Forwarded {
                url,
                target,
                host,
                fields,
            } => {
                self.line("outcome", &format!("{url}{target}"), None, "");
                self.line("", &format!("Host: {host}"), None, "");
                for (name, value) in fields {
                    self.field(name, value, settings);
                }
            }
        }
    }

    /// A field that the upstream receives. A value with a variable is shown as it is written.
    fn field(&mut self, name: &str, value: &str, settings: Option<&Settings>) {
        let rules = settings.map(|settings| &*settings.request_headers);
        let rule = rules.and_then(|rules| {
            rules
                .iter()
                .find(|rule| rule.name.eq_ignore_ascii_case(name))
        });
        let written = rule.map(|rule| self.file.slice(&rule.change.span));
        let text = match written.filter(|written| written.contains("${")) {
            Some(written) => format!("{name}: {written}"),
            None => format!("{name}: {value}"),
        };
        self.line("", &text, None, "");
    }

    fn others(&mut self, explanation: &Explanation<'_>) {
        let mut label = "not";
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
            self.line(label, &route.name, None, &reason);
            label = "";
        }
        if more > 0 {
            let text = format!("and {more} more routes");
            self.line("", &text, None, "--routes HOST prints all");
        }
    }

    fn line(&mut self, label: &str, value: &str, span: Option<&Span>, remark: &str) {
        let place = span.map(|span| self.file.line_of(span)).unwrap_or_default();
        let line = format!("{label:LABEL$} {value:VALUE$}  {place}{remark}");
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

fn route_of<'a>(site: &'a blitz_config::Site, name: &str) -> Option<&'a blitz_config::Route> {
    let mut routes = site.routes.iter();
    routes.find(|route| route.key.value.to_string() == name)
}
