//! Open connections of clients, from the tables of the kernel: cores need not be asked, and connections without a request
//! are there too.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// States in the tables.
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";

/// The other side of each TCP connection to a listener of this process, but those to one port. Those over QUIC are not in
/// the tables.
pub(super) fn connections(except: Option<u16>) -> Vec<IpAddr> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let tables: Vec<_> = tables
        .map(|table| fs::read_to_string(table).unwrap_or_default())
        .into();
    let all: Vec<_> = tables
        .iter()
        .flat_map(|table| table.lines().filter_map(row))
        .collect();
    to_listeners(&all, &own_sockets(), except)
}

/// The sockets of this process, by their inodes.
fn own_sockets() -> HashSet<u64> {
    let files = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let inodes = files.filter_map(|file| {
        let target = fs::read_link(file.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    });
    inodes.collect()
}

/// A row of a table.
struct Row<'a> {
    local_port: u16,
    remote: IpAddr,
    state: &'a str,
    inode: u64,
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (_, local, remote, state) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (_, local_port) = local.split_once(':')?;
    let (remote, _) = remote.split_once(':')?;
    Some(Row {
        local_port: u16::from_str_radix(local_port, 16).ok()?,
        remote: address(remote)?,
        state,
        inode: words.nth(5)?.parse().ok()?,
    })
}

/// An address, whose words of four bytes are in the order of this machine.
fn address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

fn to_listeners(rows: &[Row<'_>], own: &HashSet<u64>, except: Option<u16>) -> Vec<IpAddr> {
    let listeners = rows
        .iter()
        .filter(|row| row.state == LISTEN && own.contains(&row.inode));
    let ports = listeners.map(|row| row.local_port);
    let ports: HashSet<_> = ports.filter(|port| Some(*port) != except).collect();
    let to_them = |row: &&Row<'_>| row.state == ESTABLISHED && ports.contains(&row.local_port);
    rows.iter().filter(to_them).map(|row| row.remote).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// As on a machine of x86.
    #[cfg(target_endian = "little")]
    #[test]
    fn rows_of_both_tables_are_read() {
        let lines = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:1F90 070200C0:D431 01 00000000:00000000 00:00000000 00000000     0        0 200 1 0 20 4 30 10 -1
   2: 0100007F:1F91 070200C0:D432 01 00000000:00000000 00:00000000 00000000     0        0 300 1 0 20 4 30 10 -1
   3: 0100007F:1F90 080200C0:D433 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0
   4: B80D0120000000000000000001000000:1F90 B80D0120000000000000000002000000:D434 01 00000000:00000000 00:00000000 00000000     0        0 400 1 0 20 4 30 10 -1
   5: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 500 1 0 100 0 0 10 0
   6: 0100007F:0050 090200C0:D435 01 00000000:00000000 00:00000000 00000000     0        0 600 1 0 20 4 30 10 -1
";
        let rows: Vec<_> = lines.lines().filter_map(row).collect();
        assert_eq!(rows.len(), 7);
        let found = to_listeners(&rows, &HashSet::from([100, 200, 500]), Some(80));
        let expected: [IpAddr; 2] = ["192.0.2.7", "2001:db8::2"].map(|text| text.parse().unwrap());
        assert_eq!(found, expected);
    }

    #[test]
    fn connections_of_this_process_are_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let before = connections(Some(address.port())).len();
        let clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let found = connections(None);
        assert!(found.len() >= before + clients.len(), "{found:?}");
        assert!(found.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
