//! The server of the HttpArena entry: one gateway with a folder of files and an app.
//!
//! ```sh
//! board_server                                              as the board starts it
//! board_server --listen 127.0.0.1:8080 --files www --data items.json
//! board_server --listen-tls 127.0.0.1:8443 --cert a.pem --key a.key --cores 1
//! ```

mod app;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use blitz_gateway::Gateway;
use blitz_host::certificates::{CertificateReloader, Certificates};
use blitz_http::{Address, Config, IoChoice, Signals};

const USAGE: &str = "\
usage: board_server [--listen ADDRESS]... [--listen-tls ADDRESS]... [--files DIR]
                    [--data FILE] [--cert FILE] [--key FILE] [--cores N] [--io DRIVER]

Without --listen and --listen-tls it serves 0.0.0.0:8080 and, if there is a
certificate, 0.0.0.0:8081 and 0.0.0.0:8443 with TLS. The files are those of
/data/static, the data set is /data/dataset.json, the certificate is
/certs/server.crt with the key /certs/server.key. DRIVER is auto, uring or epoll.";

struct Arguments {
    listen: Vec<Address>,
    listen_tls: Vec<Address>,
    files: String,
    data: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    cores: usize,
    io: IoChoice,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match Arguments::parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("board_server: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("board_server: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn parse(words: &[String]) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            files: "/data/static".to_owned(),
            data: "/data/dataset.json".into(),
            certificate: "/certs/server.crt".into(),
            key: "/certs/server.key".into(),
            cores: 0,
            io: IoChoice::Auto,
        };
        let mut words = words.iter();
        while let Some(flag) = words.next() {
            let value = words.next().ok_or_else(|| format!("{flag} has no value"))?;
            match flag.as_str() {
                "--listen" => arguments.listen.push(address(value)?),
                "--listen-tls" => arguments.listen_tls.push(address(value)?),
                "--files" => arguments.files.clone_from(value),
                "--data" => arguments.data = value.into(),
                "--cert" => arguments.certificate = value.into(),
                "--key" => arguments.key = value.into(),
                "--cores" => {
                    arguments.cores = value
                        .parse()
                        .map_err(|_| format!("{value} is no number of cores"))?;
                }
                "--io" => {
                    arguments.io = match value.as_str() {
                        "auto" => IoChoice::Auto,
                        "uring" => IoChoice::Uring,
                        "epoll" => IoChoice::Epoll,
                        _ => return Err(format!("{value} is no driver")),
                    }
                }
                _ => return Err(format!("{flag} is unknown")),
            }
        }
        arguments.use_ports_of_the_board()?;
        Ok(arguments)
    }

    /// The listeners that the board connects to, if the command names none.
    fn use_ports_of_the_board(&mut self) -> Result<(), String> {
        if !self.listen.is_empty() || !self.listen_tls.is_empty() {
            return Ok(());
        }
        self.listen.push(address("0.0.0.0:8080")?);
        if Path::new(&self.certificate).exists() {
            self.listen_tls.push(address("0.0.0.0:8081")?);
            self.listen_tls.push(address("0.0.0.0:8443")?);
        }
        Ok(())
    }
}

fn address(text: &str) -> Result<Address, String> {
    let address = text.parse().map(Address::Tcp);
    address.map_err(|_| format!("{text} is no address; write IP:PORT"))
}

fn serve(arguments: Arguments) -> Result<(), String> {
    // First, because until then a signal ends the process by the default action.
    let signals = Signals::install().map_err(|error| error.to_string())?;
    let items = app::Items::read(&arguments.data)?;
    let mut gateway = Gateway::new()
        .config(Config {
            io: arguments.io,
            cores: arguments.cores,
            ..Config::default()
        })
        .site(app::site(&arguments.files, items)?);
    for address in arguments.listen {
        gateway = gateway.listen(address);
    }
    if !arguments.listen_tls.is_empty() {
        let files = Certificates::from_files(arguments.certificate, arguments.key);
        let tls = CertificateReloader::load(files, SystemTime::now());
        let tls = tls.map_err(|error| error.to_string())?.slot();
        for address in arguments.listen_tls {
            gateway = gateway.listen_tls(address, tls.clone());
        }
    }
    let built_in = blitz::builtin::app().build();
    let built_in = built_in.map_err(|error| error.to_string())?;
    let running = gateway.start(move || built_in.on_core());
    let running = running.map_err(|error| error.to_string())?;
    running
        .run_until_signal(&signals)
        .map_err(|error| error.to_string())
}
