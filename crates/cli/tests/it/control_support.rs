//! Requests to the control interface, over both of its places.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

use blitz_testing::IO_TIMEOUT;
use serde_json::Value;

use crate::https::{Folder, Running};

/// A response: its status, its fields in lower case, and its content.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: String,
    pub(crate) content: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.content).unwrap_or_else(|_| panic!("{}", self.content))
    }
}

/// Where the control interface is asked.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Socket(String),
    Address(SocketAddr),
}

impl Place {
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    pub(crate) fn post(&self, target: &str) -> Answer {
        self.ask("POST", target, "Content-Length: 0\r\n")
    }

    /// With further lines in the head, each with its end.
    pub(crate) fn ask(&self, method: &str, target: &str, lines: &str) -> Answer {
        let host = match self {
            Place::Socket(_) => "localhost".to_owned(),
            Place::Address(address) => address.to_string(),
        };
        self.ask_host(&host, method, target, lines)
    }

    pub(crate) fn ask_host(&self, host: &str, method: &str, target: &str, lines: &str) -> Answer {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n"
        );
        match self {
            Place::Socket(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
                exchange(stream, &head)
            }
            Place::Address(address) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
                exchange(stream, &head)
            }
        }
    }
}

fn exchange(mut stream: impl Read + Write, head: &str) -> Answer {
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, content) = response.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    Answer {
        status: status.parse().unwrap(),
        fields: head.to_ascii_lowercase(),
        content: content.to_owned(),
    }
}

/// A process with a control interface at both places.
pub(crate) struct Controlled {
    pub(crate) folder: Folder,
    pub(crate) running: Running,
    pub(crate) socket: Place,
    pub(crate) address: Place,
}

impl Controlled {
    /// With this file, whose listener for clear text has a free port.
    pub(crate) fn with_file(text: &str) -> Controlled {
        Controlled::with_file_in(Folder::new(), text)
    }

    pub(crate) fn with_file_in(folder: Folder, text: &str) -> Controlled {
        let text = format!("listen = [\"127.0.0.1:0\"]\n{text}");
        fs::write(folder.file("blitz.toml"), text).unwrap();
        let file = folder.file("");
        Controlled::start(folder, &["--config", &file])
    }

    pub(crate) fn start(folder: Folder, flags: &[&str]) -> Controlled {
        let path = folder.file("control.sock");
        let places = ["--control", &path, "--control-listen", "127.0.0.1:0"];
        let running = Running::announcing(&folder, &[&places[..], flags].concat(), "http://");
        let address = running.control_address();
        Controlled {
            folder,
            socket: Place::Socket(path),
            address: Place::Address(address.expect("it has an address")),
            running,
        }
    }

    pub(crate) fn places(&self) -> [&Place; 2] {
        [&self.socket, &self.address]
    }

    /// Replaces its file.
    pub(crate) fn write(&self, text: &str) {
        let text = format!("listen = [\"127.0.0.1:0\"]\n{text}");
        fs::write(self.folder.file("blitz.toml"), text).unwrap();
    }
}
