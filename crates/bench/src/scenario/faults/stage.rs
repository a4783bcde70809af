//! The processes of a run: three members, and a proxy before them. Each run has new ones, so that no fault of an earlier
//! run is remembered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::FaultContender;
use super::fault::Fault;
use crate::fixed_response::PATH;
use crate::peer::members::Front;
use crate::process::{LOAD_CORE, SERVER_CORE, ServerProcess, free_address};
use crate::programs::Programs;
use crate::run_folder::RunFolder;

const MEMBERS: usize = 3;
/// The time in which a proxy responds: it may check its members first.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Responses in a row that show that a proxy uses all of its members.
const READY_RESPONSES: u32 = 6;
/// A response that takes longer does not come.
const RESPONSE_WITHIN: Duration = Duration::from_secs(1);

/// The members, of which the first one fails.
pub(super) struct Members<'a> {
    programs: &'a Programs,
    all: [Option<ServerProcess>; MEMBERS],
    pub(super) addresses: [SocketAddr; MEMBERS],
}

impl<'a> Members<'a> {
    pub(super) fn start(programs: &'a Programs) -> Result<Members<'a>, String> {
        let addresses = [free_address()?, free_address()?, free_address()?];
        let mut members = Members {
            programs,
            all: [const { None }; MEMBERS],
            addresses,
        };
        for index in 0..MEMBERS {
            members.start_one(index)?;
        }
        Ok(members)
    }

    fn start_one(&mut self, index: usize) -> Result<(), String> {
        let address = self.addresses[index];
        let mut command = Command::new(self.programs.blitz());
        command.args(["bench", "member", "--listen", &address.to_string()]);
        let server = ServerProcess::start_pinned("a member", LOAD_CORE, &command, address)?;
        self.all[index] = Some(server);
        Ok(())
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.all
            .iter()
            .flatten()
            .map(ServerProcess::process)
            .collect()
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Stopped => self.signal(Signal::STOP),
            Fault::Slowed => self.signal(Signal::USR1),
            Fault::Killed | Fault::Replaced => {
                self.signal(Signal::KILL);
                // Reaps it.
                self.all[0] = None;
            }
        }
    }

    pub(super) fn repair(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Stopped => self.signal(Signal::CONT),
            Fault::Slowed => self.signal(Signal::USR2),
            Fault::Killed => {}
            Fault::Replaced => self.start_one(0)?,
        }
        Ok(())
    }

    /// To the first one, which has not been reaped.
    fn signal(&self, signal: Signal) {
        let process = self.all[0].as_ref().map(ServerProcess::process);
        let pid = process.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // It has ended by itself if that fails, which the run shows.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        // A stopped process does not end.
        self.signal(Signal::CONT);
    }
}

/// Starts a proxy before the members, and waits until it responds.
pub(super) fn start_proxy(
    contender: &FaultContender,
    members: &Members<'_>,
    folder: &RunFolder,
) -> Result<(Command, ServerProcess), String> {
    let listen = free_address()?;
    let front = Front {
        listen,
        members: &members.addresses,
        folder: folder.path(),
        programs: members.programs,
    };
    let command = contender.proxy.command(contender.settings, &front)?;
    let server = ServerProcess::start_pinned(contender.name, SERVER_CORE, &command, listen)?;
    let deadline = Instant::now() + READY_WITHIN;
    let mut responses = 0;
    while responses < READY_RESPONSES {
        responses = if responds(listen) { responses + 1 } else { 0 };
        if Instant::now() > deadline {
            return Err(format!("{} does not respond", contender.name));
        }
        if responses == 0 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok((command, server))
}

fn responds(address: SocketAddr) -> bool {
    let exchange = || -> std::io::Result<Vec<u8>> {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(RESPONSE_WITHIN))?;
        let request =
            format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes())?;
        let mut status = vec![0; 12];
        connection.read_exact(&mut status)?;
        Ok(status)
    };
    exchange().is_ok_and(|status| status == b"HTTP/1.1 200")
}
