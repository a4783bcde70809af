//! The effective settings of routes, and `blitz config show`, which prints them with their places.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use blitz_config::{
    Action, Files, Placed, Route, RouteKey, Settings, Site, Span, TargetGroup, Tls, quoted,
};
use clap::{Args, Subcommand};

use crate::config::{self, ConfigFile};
use crate::config_diff::{self, DiffArguments};
use crate::output;
use crate::redaction::shown;

const SHOW_EXAMPLES: &str = "\
Examples:
  blitz config show            $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml
  blitz config show --running  what the running process uses; a reload may have been refused

Values with variables are shown as they are written, literal secrets as ***.";

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print listeners, sites and the settings of each route, inherited ones included, with the place of each value
    Show(ShowArguments),
    /// Print what a reload would change in a running Blitz; nothing is changed
    Diff(DiffArguments),
}

#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct ShowArguments {
    /// The file, or a folder with blitz.toml [default: $BLITZ_CONFIG, ./blitz.toml or /etc/blitz/blitz.toml]
    #[arg(conflicts_with = "running")]
    file: Option<PathBuf>,

    /// Print what a running Blitz uses
    #[arg(long)]
    running: bool,

    /// Socket of the process [default: /run/blitz/control.sock, $XDG_RUNTIME_DIR/blitz/control.sock]
    #[arg(long, value_name = "PATH", requires = "running")]
    control: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ConfigArguments) -> ExitCode {
    match &arguments.command {
        ConfigCommand::Show(arguments) => show(arguments),
        ConfigCommand::Diff(arguments) => config_diff::run(arguments),
    }
}

fn show(arguments: &ShowArguments) -> ExitCode {
    if arguments.running {
        return match config_diff::running(arguments.control.as_deref()) {
            Ok(text) => {
                output::print(&text);
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("{}", problem.trim_end());
                ExitCode::FAILURE
            }
        };
    }
    let file = match ConfigFile::load(&config::chosen(arguments.file.as_deref()), false) {
        Ok(file) => file,
        Err(problem) => {
            eprintln!("blitz: {problem}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(problem) = file.problem() {
        file.report();
        eprintln!("blitz: {problem}");
        return ExitCode::FAILURE;
    }
    output::print(&text(&file));
    ExitCode::SUCCESS
}

/// The settings of the process, and a table for each site and each route, with the values as they are written.
pub(crate) fn text(file: &ConfigFile) -> String {
    let mut text = top(file);
    for site in &file.configuration.sites {
        text += &head(file, site);
        for route in &site.routes {
            let (host, key) = (&site.host.value, key_in_quotes(&route.key.value));
            // Writing to a text does not fail.
            let _ = writeln!(
                text,
                "[site.\"{host}\".{key}]  # {}",
                file.line_of(&route.key.span)
            );
            if let Some(priority) = &route.priority {
                text += &lines(file, "", &[("priority".to_owned(), &priority.span)]);
            }
            text += &lines(file, "", &values(&route.settings));
            text += &variants(file, route);
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A regex may have backslashes, which double quotes would take for escapes.
fn key_in_quotes(key: &RouteKey) -> String {
    let text = key.to_string();
    match key.path.regex() {
        Some(_) if !text.contains('\'') => format!("'{text}'"),
        _ => quoted(&text),
    }
}

fn lines(file: &ConfigFile, margin: &str, values: &[(String, &Span)]) -> String {
    let line = |(key, span): &(String, &Span)| {
        let (value, place) = (shown(key, file.slice(span)), file.line_of(span));
        format!("{margin}{key} = {value}  # {place}\n")
    };
    values.iter().map(line).collect()
}

/// The values that each block `when` changes, as comments.
fn variants(file: &ConfigFile, route: &Route) -> String {
    let Some(variants) = &route.variants else {
        return String::new();
    };
    let own = values(&route.settings);
    let mut text = String::new();
    for number in 1..=variants.settings.len() {
        // Others are made of these.
        let (&[block], Some(settings)) = (&*variants.blocks(number), variants.settings(number))
        else {
            continue;
        };
        let condition = shown("when", file.slice(&block.span));
        let place = file.line_of(&block.span);
        // Writing to a text does not fail.
        let _ = writeln!(text, "# when {condition}  # {place}");
        let mut changed = values(settings);
        changed.retain(|value| !own.contains(value));
        text += &lines(file, "#   ", &changed);
    }
    text
}

/// The part above all sites.
fn top(file: &ConfigFile) -> String {
    let configuration = &file.configuration;
    let mut text = match &configuration.listen {
        Some(addresses) if addresses.is_empty() => "listen = []\n".to_owned(),
        Some(addresses) => list(file, "listen", addresses),
        None if configuration.has_default_listener() => "listen = [\":80\"]\n".to_owned(),
        None => String::new(),
    };
    text += &match &configuration.listen_tls {
        Some(addresses) => list(file, "listen_tls", addresses),
        None if configuration.has_default_tls_listener() => "listen_tls = [\":443\"]\n".to_owned(),
        None => String::new(),
    };
    text += &list(file, "trusted_proxies", &configuration.trusted_proxies);
    text += &list(file, "certificates", &configuration.certificates);
    for (key, _, span) in configuration.process.written() {
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{key} = {}  # {}",
            shown(&key, file.slice(&span)),
            file.line_of(&span)
        );
    }
    text.push('\n');
    text
}

/// The settings of a site, without its routes.
fn head(file: &ConfigFile, site: &Site) -> String {
    let mut text = format!(
        "[site.\"{}\"]  # {}\n",
        site.host.value,
        file.line_of(&site.host.span)
    );
    if site.tls.is_on {
        let redirects = site.tls.redirects;
        let _ = writeln!(
            text,
            "tls = {}\nhttps_redirect = {redirects}",
            tls(file, &site.tls)
        );
    }
    for (key, value, span) in site.limits.written() {
        let _ = writeln!(text, "limits.{key} = {value}  # {}", file.line_of(&span));
    }
    text += &list(file, "aliases", &site.aliases);
    text += &list(file, "canonical_for", &site.canonical_for);
    text += &list(file, "listen", site.listen.as_deref().unwrap_or_default());
    text.push('\n');
    text
}

/// The demands of handshakes. Certificates of the site are among those of the file.
fn tls(file: &ConfigFile, tls: &Tls) -> String {
    let mut keys = Vec::new();
    let mut places = Vec::new();
    if let Some(clients) = &tls.clients {
        let auth = match clients.is_required {
            true => "required",
            false => "optional",
        };
        keys.push(format!("client_ca = {}", file.slice(&clients.ca.span)));
        keys.push(format!("client_auth = \"{auth}\""));
        keys.push(format!("client_cert_header = {}", clients.is_forwarded));
        places.push(file.line_of(&clients.ca.span));
    }
    if let Some(min) = &tls.min {
        keys.push(format!("min = {}", file.slice(&min.span)));
        places.push(file.line_of(&min.span));
    }
    match keys.is_empty() {
        true => "true".to_owned(),
        false => {
            places.dedup();
            format!("{{ {} }}  # {}", keys.join(", "), places.join(", "))
        }
    }
}

/// A list, with the place of its first value.
fn list<T>(file: &ConfigFile, key: &str, values: &[Placed<T>]) -> String {
    let Some(first) = values.first() else {
        return String::new();
    };
    let place = file.line_of(&first.span);
    let values: Vec<_> = values.iter().map(|value| file.slice(&value.span)).collect();
    format!("{key} = [{}]  # {place}\n", values.join(", "))
}

/// How the keys of a named upstream among several begin.
const OF_TARGET: &str = "upstream.";

/// Whether a key belongs to the action of a route.
pub(crate) fn is_of_action(key: &str) -> bool {
    let is_of_targets = key.starts_with(OF_TARGET);
    is_of_targets
        || matches!(
            key,
            "to" | "path"
                | "host"
                | "raw_path"
                | "buffer_request"
                | "retries"
                | "retry"
                | "connections_max"
                | "hedge"
                | "queue"
                | "proxy_protocol"
                | "limits"
                | "balance"
                | "sticky"
                | "health"
                | "shed"
                | "redirect"
                | "respond"
                | "files"
                | "index"
                | "extensions"
                | "fallback"
                | "hidden"
                | "list"
                | "symlinks"
        )
}

/// The settings of a route with the places of their values, the action first.
pub(crate) fn values(settings: &Settings) -> Vec<(String, &Span)> {
    let mut list = List(Vec::new());
    let action = &settings.action;
    match &action.value {
        Action::Proxy(proxy) => {
            list.0.push(("to".to_owned(), &action.span));
            list.add("path", proxy.path.as_deref());
            list.add("host", proxy.host.as_ref());
            list.add("raw_path", proxy.raw_path.as_ref());
            list.add("buffer_request", proxy.buffer_request.as_ref());
            list.add("retries", proxy.retries.as_ref());
            list.add("proxy_protocol", proxy.proxy_protocol.as_ref());
            list.add("limits", proxy.limits.as_ref());
            if let Some(group) = &proxy.group {
                list.add_group(group);
            }
            if let Some(files) = &proxy.files {
                list.add_files(files, &files.folder.span);
            }
        }
        Action::Redirect(_) => list.0.push(("redirect".to_owned(), &action.span)),
        Action::Respond(_) => list.0.push(("respond".to_owned(), &action.span)),
        Action::Files(files) => list.add_files(files, &action.span),
    }
    list.add("allow", settings.allow.as_deref());
    list.add("deny", settings.deny.as_deref());
    list.add("methods", settings.methods.as_ref());
    list.add("body_max", settings.body_max.as_ref());
    list.add("decompress", settings.decompress.as_ref());
    list.add("access_log", settings.access_log.as_ref());
    list.add("replace_errors", settings.replace_errors.as_ref());
    list.add("request_trailers", settings.request_trailers.as_ref());
    list.add("compress", settings.compress.as_deref());
    list.add("upgrade", settings.upgrade.as_deref());
    list.add("importance", settings.importance.as_ref());
    list.add("mirror", settings.mirror.as_deref());
    for (key, span) in settings.policies.written() {
        list.0.push((key.to_owned(), span));
    }
    // Keys beside a `satisfy`, of which one suffices.
    for (key, span) in settings.policies.alternatives() {
        list.0.push((key.to_owned(), span));
    }
    list.add("timeout.connect", settings.timeouts.connect.as_ref());
    list.add("timeout.request", settings.timeouts.request.as_ref());
    list.add("timeout.response", settings.timeouts.response.as_ref());
    list.add("timeout.idle", settings.timeouts.idle.as_ref());
    for rule in &*settings.headers {
        list.add(&format!("headers.{}", rule.name), Some(&rule.change));
    }
    for rule in &*settings.request_headers {
        list.add(
            &format!("request_headers.{}", rule.name),
            Some(&rule.change),
        );
    }
    for page in &*settings.errors {
        list.add(&format!("errors.{}", page.status), page.file.as_ref());
    }
    list.0
}

struct List<'a>(Vec<(String, &'a Span)>);

impl<'a> List<'a> {
    fn add_files(&mut self, files: &'a Files, folder: &'a Span) {
        self.0.push(("files".to_owned(), folder));
        self.add("index", files.index.as_deref());
        self.add("extensions", files.extensions.as_deref());
        self.add("fallback", files.fallback.as_ref());
        self.add("hidden", files.hidden.as_ref());
        self.add("list", files.list.as_ref());
        self.add("symlinks", files.symlinks.as_ref());
    }

    /// How several servers share the requests of a route. Those of an only target are its `to`.
    fn add_group(&mut self, group: &'a TargetGroup) {
        if let [target] = &group.targets[..] {
            self.add("balance", target.balance.as_ref());
            self.add("sticky", target.sticky.as_ref());
            let settings = target.settings.written();
            return self
                .0
                .extend(settings.map(|(name, span)| (name.to_owned(), span)));
        }
        self.add("sticky", group.sticky.as_ref());
        for target in &group.targets {
            if target.servers[0].url.value != target.name {
                let key = |key| format!("{OF_TARGET}{}.{key}", target.name);
                self.0.push((key("servers"), &target.span));
                self.add(&key("balance"), target.balance.as_ref());
                self.add(&key("sticky"), target.sticky.as_ref());
                let settings = target.settings.written();
                self.0
                    .extend(settings.map(|(name, span)| (key(name), span)));
            }
        }
    }

    fn add<T>(&mut self, key: &str, value: Option<&'a Placed<T>>) {
        self.0
            .extend(value.map(|value| (key.to_owned(), &value.span)));
    }
}
