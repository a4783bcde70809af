//! Proxies with many [sites](crate::sites).

use std::path::Path;
use std::process::Command;

use super::{StartOptions, haproxy, nginx, write};
use crate::process::Workers;
use crate::sites::{SITES, SitesLog, SitesProgram, host, log_file};

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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::programs::Programs;
    use crate::run_folder::TestFolder;

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
