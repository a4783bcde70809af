//! The changes of a reload, as `blitz reload` and `blitz config diff` print them.

use std::fmt::Write;

use blitz_config::Process;
use blitz_gateway::{Change, SiteChange, Sites, TrustedProxy, site_changes};

use crate::announce::{shown, shown_as};
use crate::config::ConfigFile;
use crate::{process, rate_store};

/// Settings that apply from the start of a process.
pub(crate) struct Applied {
    pub(crate) process: Process,
    pub(crate) trusted_proxies: Vec<TrustedProxy>,
}

/// The changes from the first file to the second; empty if there are none.
pub(crate) fn text(
    before: &ConfigFile,
    after: ConfigFile,
    applied: &Applied,
    flags: &Process,
) -> String {
    let (old, new) = (listeners(before), listeners(&after));
    let restart = restart(&after, applied, flags);
    let process = |file: &ConfigFile| flags.clone().or(file.configuration.process.clone());
    let (old_process, new_process) = (process(before), process(&after));
    let is_log_kept = process::access_log(&old_process) == process::access_log(&new_process);
    let is_export_kept = process::tracing(&old_process) == process::tracing(&new_process);
    let networks = before.networks.changes(&after.networks);
    let before = Sites::of_file(before.sites.clone());
    let after = Sites::of_file(after.into_sites());
    let mut text = String::new();
    for site in site_changes(&before, &after) {
        text += &line(site.change, &site.host.to_string());
        for (change, route) in &site.routes {
            text += &format!("    {}", line(*change, route));
        }
        if site.change == Change::Changed && site.routes.is_empty() {
            text += "      its hosts, its `limits`, or its settings for paths without a route\n";
        }
    }
    let closed = old.iter().any(|listener| !new.contains(listener));
    text += &listener_changes(&old, &new);
    if closed {
        text += "    connections of closed listeners have `server.drain_timeout` to end; all others stay\n";
    }
    text += &networks;
    text += log_line(is_log_kept);
    text += tracing_line(is_export_kept);
    text += rate_store::change(&old_process, &new_process);
    text + &restart
}

/// The line of an access log that changes.
pub(crate) fn log_line(is_kept: bool) -> &'static str {
    match is_kept {
        true => "",
        false => "  ~ the access log\n",
    }
}

/// The line of an export of traces that changes.
pub(crate) fn tracing_line(is_kept: bool) -> &'static str {
    match is_kept {
        true => "",
        false => "  ~ traces\n",
    }
}

/// A line for each site that was added, changed or removed.
pub(crate) fn site_lines(changes: &[SiteChange]) -> String {
    let lines = changes.iter();
    let text: String = lines
        .map(|site| line(site.change, &site.host.to_string()))
        .collect();
    match text.is_empty() {
        true => "  no site has changed\n".to_owned(),
        false => text,
    }
}

fn line(change: Change, name: &str) -> String {
    let sign = match change {
        Change::Added => '+',
        Change::Changed => '~',
        Change::Removed => '-',
    };
    format!("  {sign} {name}\n")
}

/// A line for each listener that is opened or closed.
pub(crate) fn listener_changes(before: &[String], after: &[String]) -> String {
    let line = |sign, listener: &String| format!("  {sign} listener {listener}\n");
    let opened = after.iter().filter(|listener| !before.contains(listener));
    let closed = before.iter().filter(|listener| !after.contains(listener));
    let opened: String = opened.map(|listener| line('+', listener)).collect();
    let closed: String = closed.map(|listener| line('-', listener)).collect();
    opened + &closed
}

/// Settings of a file that differ from those in use, and need a restart.
pub(crate) fn restart(file: &ConfigFile, applied: &Applied, flags: &Process) -> String {
    let wanted = flags.clone().or(file.configuration.process.clone());
    let mut text = String::new();
    let changed = process::changed(&applied.process, &wanted);
    for key in changed.iter().filter(|key| !process::is_reloaded(key)) {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {key} has changed: a restart applies it");
    }
    if file.trusted_proxies != applied.trusted_proxies {
        text += "  trusted proxies have changed: a restart applies them\n";
    }
    text
}

/// The listeners of a file, as they are shown.
fn listeners(file: &ConfigFile) -> Vec<String> {
    let secure = file.tls_listeners.iter();
    let secure = secure.map(|listener| shown_as(listener, true));
    file.listeners.iter().map(shown).chain(secure).collect()
}
