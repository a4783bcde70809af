//! The servers of a study that compares programs, each on the server's core, with what a report says about them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::run::{Generator, Watched};
use crate::machine;
use crate::not_run::NotRun;
use crate::peer::StartOptions;
use crate::process::{LOAD_CORE, SERVER_CORE, ServerProcess, free_address};
use crate::programs::Programs;
use crate::report::{self, Configuration};
use crate::run_folder::RunFolder;
use crate::system::{System, SystemKind};
use crate::tls_files::TlsFiles;

/// Extensions of configuration files; certificates and keys have others.
const CONFIGURATIONS: [&str; 6] = ["cfg", "conf", "json", "toml", "vcl", "yaml"];

/// A system of the comparison.
#[derive(Debug)]
pub(crate) struct Contender {
    /// Unique in the comparison; that of `system` is unique in all.
    pub(crate) name: &'static str,
    pub(crate) system: System,
}

/// Running servers, and their backend.
pub(crate) struct Stage<'a> {
    programs: &'a Programs,
    folder: &'a RunFolder,
    tls: &'a TlsFiles,
    backend: Option<ServerProcess>,
    running: Vec<RunningServer>,
    not_run: Vec<NotRun>,
    /// Of all, also those that do not run.
    described: Vec<report::System>,
}

struct RunningServer {
    name: &'static str,
    server: ServerProcess,
}

impl<'a> Stage<'a> {
    /// Without servers.
    pub(crate) fn new(
        programs: &'a Programs,
        folder: &'a RunFolder,
        tls: &'a TlsFiles,
    ) -> Stage<'a> {
        Stage {
            programs,
            folder,
            tls,
            backend: None,
            running: Vec::new(),
            not_run: Vec::new(),
            described: Vec::new(),
        }
    }

    /// Starts the backend of the proxies that are started after it, on the core of the load.
    pub(crate) fn start_backend(&mut self, backend: &System, requests: u32) -> Result<(), String> {
        let listen = free_address()?;
        let mut command = backend.command(&self.options(listen, (requests, requests)))?;
        if matches!(backend.kind, SystemKind::LimitResponder { .. }) {
            // One request at a time: a backend that waits for several would add its wait to every proxy.
            command.args(["--wait", "1"]);
        }
        let server = ServerProcess::start_pinned("the backend", LOAD_CORE, &command, listen)?;
        self.backend = Some(server);
        Ok(())
    }

    /// Starts a system for so many connections, and requests in flight, or notes why it does not run. `protocol` is that of
    /// the clients, and `revision` that of Blitz.
    pub(crate) fn start(
        &mut self,
        contender: &Contender,
        load: (u32, u32),
        protocol: &str,
        revision: &str,
    ) -> Result<(), String> {
        let Contender { name, system } = contender;
        let listen = free_address()?;
        let command = match system.missing_program(self.programs) {
            Some(reason) => Err(reason),
            None => system.command(&self.options(listen, load)),
        };
        let started = command.and_then(|command| {
            let server = ServerProcess::start_pinned(name, SERVER_CORE, &command, listen)?;
            Ok((command, server))
        });
        let (command, server) = match started {
            Ok(started) => started,
            // Blitz itself has to start.
            Err(reason)
                if matches!(
                    system.kind,
                    SystemKind::Blitz { .. } | SystemKind::BlitzHealth(_)
                ) =>
            {
                return Err(reason);
            }
            Err(reason) => {
                let described = report::System::not_run(name, protocol, &reason);
                self.described.push(described);
                let name = (*name).to_owned();
                self.not_run.push(NotRun { name, reason });
                return Ok(());
            }
        };
        let version = match system.peer() {
            Some(program) => machine::version(program),
            None => format!("blitz {revision}"),
        };
        self.described.push(report::System {
            configuration: configuration(&command, self.folder.path()),
            ..report::System::run(name, protocol, &version)
        });
        self.running.push(RunningServer { name, server });
        Ok(())
    }

    fn options(
        &self,
        listen: std::net::SocketAddr,
        (connections, requests): (u32, u32),
    ) -> StartOptions<'_> {
        StartOptions {
            listen,
            backend: self
                .backend
                .as_ref()
                .map_or(listen, |server| server.address),
            connections,
            requests,
            small_backend: None,
            response: None,
            tls: Some(self.tls),
            programs: self.programs,
            folder: self.folder.path(),
        }
    }

    /// Every running system: its name, its URL without a path, and its processes.
    pub(crate) fn running(
        &self,
        scheme: &str,
    ) -> impl Iterator<Item = (&'static str, String, Watched)> {
        self.running.iter().map(move |running| {
            let base = format!("{scheme}://{}", running.server.address);
            let watched = Watched {
                servers: vec![running.server.process()],
                beside: self.backend.iter().map(ServerProcess::process).collect(),
            };
            (running.name, base, watched)
        })
    }

    pub(crate) fn not_run(&self) -> &[NotRun] {
        &self.not_run
    }

    /// The systems as a report shows them, in the order in which they were started.
    pub(crate) fn described(&self) -> &[report::System] {
        &self.described
    }

    pub(crate) fn generator(&self) -> Generator<'a> {
        Generator {
            programs: self.programs,
            folder: self.folder,
            link: None,
        }
    }
}

/// The command line and the configuration files that it names, without the folder of this run.
pub(crate) fn configuration(command: &Command, folder: &Path) -> Vec<Configuration> {
    let folder = format!("{}/", folder.display());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let program = words[0].rsplit('/').next().unwrap_or_default().to_owned();
    let rest = words[1..].iter().map(|word| word.replace(&folder, ""));
    let line: Vec<String> = std::iter::once(program).chain(rest).collect();
    let file = |name: &str, text: String| Configuration {
        name: name.to_owned(),
        text: Some(text),
        link: None,
    };
    let mut all = vec![file("command line", line.join(" "))];
    for word in &words[1..] {
        let path = Path::new(word);
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_configuration = extension.is_some_and(|known| CONFIGURATIONS.contains(&known));
        if let (true, Some(name)) = (is_configuration, word.strip_prefix(&folder))
            && let Ok(text) = fs::read_to_string(path)
        {
            all.push(file(name, text.replace(&folder, "")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_published_and_keys_are_not() {
        let folder = std::env::temp_dir().join(format!("blitz-stage-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (config, key) = (folder.join("nginx.conf"), folder.join("localhost.key"));
        fs::write(&config, format!("pid {}/pid;", folder.display())).unwrap();
        fs::write(&key, "secret").unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(&config).arg("--key").arg(&key);
        let all = configuration(&command, &folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(all.len(), 2, "{all:?}");
        let line = all[0].text.as_deref();
        assert_eq!(line, Some("nginx -c nginx.conf --key localhost.key"));
        assert_eq!(all[1].name, "nginx.conf");
        assert_eq!(all[1].text.as_deref(), Some("pid pid;"));
    }
}
