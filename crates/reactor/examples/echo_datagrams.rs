//! Sends every batch of datagrams back as it came, and generates the load for that.
//!
//! ```text
//! echo_datagrams [--listen ADDR] [--io uring|epoll]
//! echo_datagrams --to ADDR [--io uring|epoll] [--flows N] [--train DATAGRAMSxBYTES] [--seconds N]
//! ```
//!
//! The second form has N sockets, each with one batch on its way, checks what comes back, and prints the rate.
//! The example `limit_datagrams` is the same server without the reactor.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use blitz_reactor::{
    Config, DatagramSocket, Datagrams, IoChoice, Train, block_on, now, sleep, spawn, timeout,
};

/// A batch that does not come back within this time is lost, and the next is sent.
const LOST_AFTER: Duration = Duration::from_millis(100);

struct Options {
    listen: SocketAddr,
    io: IoChoice,
    to: Option<SocketAddr>,
    flows: usize,
    datagrams: usize,
    bytes: u16,
    time: Duration,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("echo_datagrams: {message}");
            return ExitCode::FAILURE;
        }
    };
    let config = Config {
        io: options.io,
        ..Config::default()
    };
    let ran = match options.to {
        Some(to) => block_on(&config, load(to, options)),
        None => block_on(&config, echo(options.listen)),
    };
    match ran {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) | Err(error) => {
            eprintln!("echo_datagrams: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
        io: IoChoice::Auto,
        to: None,
        flows: 32,
        datagrams: 1,
        bytes: 100,
        time: Duration::from_secs(3),
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(format!("{flag} needs a value"))?;
        let invalid = |()| format!("{flag} does not take {value}");
        match flag.as_str() {
            "--listen" => options.listen = value.parse().map_err(|_| invalid(()))?,
            "--to" => options.to = Some(value.parse().map_err(|_| invalid(()))?),
            "--flows" => options.flows = value.parse().map_err(|_| invalid(()))?,
            "--seconds" => {
                options.time = Duration::from_secs(value.parse().map_err(|_| invalid(()))?);
            }
            "--io" => {
                options.io = match value.as_str() {
                    "uring" => IoChoice::Uring,
                    "epoll" => IoChoice::Epoll,
                    _ => return Err(invalid(())),
                }
            }
            "--train" => {
                let parts = value.split_once('x').ok_or_else(|| invalid(()))?;
                options.datagrams = parts.0.parse().map_err(|_| invalid(()))?;
                if options.datagrams == 0 {
                    return Err(invalid(()));
                }
                options.bytes = parts.1.parse().map_err(|_| invalid(()))?;
            }
            _ => return Err(format!("there is no flag {flag}")),
        }
    }
    Ok(options)
}

async fn echo(address: SocketAddr) -> io::Result<()> {
    let socket = DatagramSocket::bind(address)?;
    loop {
        let train = socket.recv().await;
        socket.send(answer(&socket, &train));
    }
}

/// The same datagrams for their sender.
fn answer(socket: &DatagramSocket, train: &Train) -> Datagrams {
    let mut content = socket.buffer();
    content.extend_from_slice(train.bytes());
    Datagrams {
        to: train.from,
        from: train.to,
        ecn: train.ecn,
        content,
        segment_bytes: u16::try_from(train.segment_bytes).ok(),
    }
}

/// The counts of all flows.
#[derive(Default)]
struct Sums {
    trains: Cell<u64>,
    bytes: Cell<u64>,
    lost: Cell<u64>,
    /// Batches that came after they had been given up.
    late: Cell<u64>,
    wrong: Cell<u64>,
    longest: Cell<Duration>,
}

async fn load(to: SocketAddr, options: Options) -> io::Result<()> {
    let sums = Rc::<Sums>::default();
    let anywhere = SocketAddr::new(to.ip(), 0);
    let began = now();
    for flow in 0..options.flows {
        let socket = DatagramSocket::bind(anywhere)?;
        let sums = Rc::clone(&sums);
        let len = options.datagrams * usize::from(options.bytes);
        let segment_bytes = options.bytes;
        spawn(async move {
            for round in 0_u64.. {
                let byte = (flow as u64 * 31 + round) as u8;
                let mut content = socket.buffer();
                content.resize(len, byte);
                socket.send(Datagrams {
                    to,
                    from: None,
                    ecn: None,
                    content,
                    segment_bytes: Some(segment_bytes),
                });
                let sent = now();
                receive_back(&socket, len, byte, &sums).await;
                sums.longest.set(sums.longest.get().max(now() - sent));
            }
        });
    }
    sleep(options.time).await;
    let seconds = (now() - began).as_secs_f64();
    let trains = sums.trains.get() as f64 / seconds;
    let mbytes = sums.bytes.get() as f64 / seconds / 1e6;
    let (lost, late, wrong) = (sums.lost.get(), sums.late.get(), sums.wrong.get());
    let longest = sums.longest.get();
    println!(
        "{trains:.0} trains/s, {mbytes:.1} MB/s, {lost} lost, {late} late, {wrong} wrong, longest {longest:.1?}"
    );
    match wrong {
        0 => Ok(()),
        _ => Err(io::Error::other("wrong datagrams came back")),
    }
}

/// Receives a batch, which may come in parts. All bytes of a batch are alike, and differ from those of the
/// batch before.
async fn receive_back(socket: &DatagramSocket, len: usize, byte: u8, sums: &Sums) {
    let add = |cell: &Cell<u64>, more: usize| cell.set(cell.get() + more as u64);
    let mut left = len;
    while left > 0 {
        let Ok(train) = timeout(LOST_AFTER, socket.recv()).await else {
            return add(&sums.lost, 1);
        };
        let bytes = train.bytes();
        if bytes.windows(2).any(|two| two[0] != two[1]) {
            return add(&sums.wrong, 1);
        }
        if bytes.first() != Some(&byte) {
            add(&sums.late, 1);
            continue;
        }
        left = left.saturating_sub(train.bytes().len());
        add(&sums.bytes, train.bytes().len());
    }
    add(&sums.trains, 1);
}
