//! Proxies that are configured as operators do it: a file with many sites, and an access log.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{StartOptions, haproxy, nginx, write};
use crate::process::Workers;

/// Sites of each server. Requests go to them in turn.
pub(crate) const SITES: usize = 100;

/// The longest time after which the lines of all requests have to be in the log.
const LOG_WITHIN: Duration = Duration::from_secs(5);

/// The program of such a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SitesProgram {
    Blitz { io: &'static str },
    Nginx,
    Haproxy,
}

/// The access log of such a proxy, a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SitesLog {
    Off,
    /// In the form and with the buffers that the server has by default.
    Usual,
    /// With a buffer, for servers that have none by default.
    Buffered,
}

/// The host of a site.
pub(crate) fn host(site: usize) -> String {
    format!("s{site}.example")
}

/// The access log of the server with this address.
pub(crate) fn log_file(folder: &Path, address: SocketAddr) -> PathBuf {
    folder.join(format!("access-{}.log", address.port()))
}

/// The command; writes the configuration.
pub(crate) fn command(
    program: SitesProgram,
    log: SitesLog,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let file = log_file(options.folder, options.listen);
    match program {
        SitesProgram::Blitz { io } => {
            let log = (log != SitesLog::Off).then_some(file.as_path());
            blitz(io, log, workers, options)
        }
        SitesProgram::Nginx => {
            let file = file.display();
            let directive = match log {
                SitesLog::Off => String::new(),
                SitesLog::Usual => format!("access_log {file};"),
                SitesLog::Buffered => {
                    format!("access_log {file} combined buffer=32k flush=200ms;")
                }
            };
            nginx::with_sites(&directive, workers, options)
        }
        SitesProgram::Haproxy => {
            let log = (log != SitesLog::Off).then_some(file.as_path());
            haproxy::with_sites(log, workers, options)
        }
    }
}

fn blitz(
    io: &str,
    log: Option<&Path>,
    workers: Workers,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let StartOptions {
        listen, backend, ..
    } = options;
    let log = log.map(|file| format!("log.access = \"{}\"\n", file.display()));
    let sites = (0..SITES).map(|site| format!("\"{}\" = \"http://{backend}\"\n", host(site)));
    let text = format!(
        "listen = [\"{listen}\"]\ncontrol = false\n{}[site]\n{}",
        log.unwrap_or_default(),
        sites.collect::<String>()
    );
    let file = options.folder.join(format!("blitz-{}.toml", listen.port()));
    write(&file, &text)?;
    let mut command = Command::new(options.programs.blitz());
    let cores = workers.count().to_string();
    command.args(["run", "--cores", &cores, "--io", io, "--config"]);
    command.arg(file);
    Ok(command)
}

/// Removes all lines, which the servers append to.
pub(crate) fn empty_log(file: &Path) -> Result<(), String> {
    let emptied = File::options().write(true).open(file);
    let emptied = emptied.and_then(|log| log.set_len(0));
    emptied.map_err(|error| format!("{}: {error}", file.display()))
}

/// Waits until the log has a line for each request.
pub(crate) fn wait_for_lines(file: &Path, requests: u64) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let lines = lines(file).map_err(|error| format!("{}: {error}", file.display()))?;
        if lines >= requests {
            return Ok(());
        }
        if begun.elapsed() > LOG_WITHIN {
            return Err(format!("{requests} requests, but {lines} lines in the log"));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn lines(file: &Path) -> std::io::Result<u64> {
    let mut log = File::open(file)?;
    let (mut chunk, mut lines) = (vec![0; 1 << 18], 0);
    loop {
        match log.read(&mut chunk)? {
            0 => return Ok(lines),
            bytes => lines += chunk[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::programs::Programs;
    use crate::run_folder::TestFolder;

    #[test]
    fn missing_lines_of_a_log_are_an_error() {
        let folder = TestFolder::create();
        let log = log_file(folder.path(), "127.0.0.1:80".parse().unwrap());
        assert!(empty_log(&log).is_err(), "there is no log");
        fs::write(&log, "a\nb\nhalf").unwrap();
        assert_eq!(wait_for_lines(&log, 2), Ok(()));
        empty_log(&log).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"");
        assert_eq!(wait_for_lines(&log, 0), Ok(()));
    }

    #[test]
    fn each_program_has_all_sites_and_its_log() {
        let folder = TestFolder::create();
        let programs = Programs::new(None).unwrap();
        let options = StartOptions {
            listen: "127.0.0.1:8001".parse().unwrap(),
            backend: "127.0.0.1:8002".parse().unwrap(),
            small_backend: None,
            connections: 1,
            requests: 1,
            response: None,
            tls: None,
            programs: &programs,
            folder: folder.path(),
        };
        let log = log_file(folder.path(), options.listen);
        for (program, file) in [
            (SitesProgram::Blitz { io: "epoll" }, "blitz-8001.toml"),
            (SitesProgram::Nginx, "nginx-8001/nginx.conf"),
            (SitesProgram::Haproxy, "hosts-8001.map"),
        ] {
            for kind in [SitesLog::Off, SitesLog::Usual, SitesLog::Buffered] {
                let made = command(program, kind, Workers::One, &options);
                let Ok(made) = made else {
                    // A peer that is not installed.
                    continue;
                };
                let text = fs::read_to_string(folder.path().join(file)).unwrap();
                assert!(text.contains("s0.example") && text.contains("s99.example"));
                let words = format!("{text}{made:?}");
                let has_log = words.contains(&log.display().to_string());
                assert_eq!(has_log, kind != SitesLog::Off, "{program:?}: {words}");
            }
        }
    }
}
