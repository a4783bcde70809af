//! The network interface at one end of the link: a TUN device, whose packets the emulator reads and writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use blitz_http::open_tun;
use rustix::event::{PollFd, PollFlags};

use super::error::LinkError;
use super::netlink;

/// The longest IP packet, as on Ethernet.
pub(super) const MTU_BYTES: u32 = 1500;

/// Packets that the kernel holds until the emulator reads them. It drops more than that, which makes a run
/// invalid.
const QUEUE_PACKETS: u32 = 10_000;

const NAME: &str = "link0";

/// The addresses of one end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) v4: Ipv4Addr,
    pub(super) v6: Ipv6Addr,
}

pub(super) const SERVER: Addresses = Addresses {
    v4: Ipv4Addr::new(10, 177, 0, 1),
    v6: Ipv6Addr::new(0xfd00, 0xb177, 0, 0, 0, 0, 0, 1),
};

pub(super) const CLIENT: Addresses = Addresses {
    v4: Ipv4Addr::new(10, 177, 0, 2),
    v6: Ipv6Addr::new(0xfd00, 0xb177, 0, 0, 0, 0, 0, 2),
};

/// Room for the addresses that a client has in turn.
const V4_PREFIX_BITS: u8 = 24;
/// The only two addresses of the network are those of the ends.
const V6_PREFIX_BITS: u8 = 126;

/// One end of the link.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    has_ipv6: bool,
}

impl Device {
    /// Makes the device in the namespace of the calling thread, which has no other interface than `lo`, and
    /// activates both.
    pub(super) fn open(addresses: Addresses) -> Result<Device, LinkError> {
        // The kernel's error does not say whether the file or the namespace refuses.
        OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .map_err(LinkError::NoTunDevice)?;
        let file = open_tun(NAME).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => LinkError::NoPrivilege(error),
            _ => LinkError::NoTunDevice(error),
        })?;
        let has_ipv6 = is_ipv6_enabled();
        configure(addresses, has_ipv6).map_err(LinkError::failed("configure its interfaces"))?;
        Ok(Device { file, has_ipv6 })
    }

    pub(super) fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Reads a packet into `buffer`, and returns its length, or none if no packet has arrived.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Delivers a packet.
    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }

    /// Waits for a packet to be read.
    pub(super) fn readable(&self) -> PollFd<'_> {
        PollFd::new(&self.file, PollFlags::IN)
    }
}

/// The congestion control of TCP on links: the default of Linux, and the algorithm of QUIC in Blitz, so that a
/// comparison shows the protocols and not the setting of this machine.
const CUBIC: &str = "cubic";

fn configure(addresses: Addresses, has_ipv6: bool) -> io::Result<()> {
    netlink::bring_up(netlink::LOOPBACK)?;
    let index = netlink::index_of(NAME)?;
    netlink::set_sizes(index, MTU_BYTES, QUEUE_PACKETS)?;
    netlink::add_address(index, IpAddr::V4(addresses.v4), V4_PREFIX_BITS)?;
    if has_ipv6 {
        netlink::disable_link_local(index)?;
        netlink::add_address(index, IpAddr::V6(addresses.v6), V6_PREFIX_BITS)?;
    }
    netlink::bring_up(index)?;
    // A kernel without it keeps its own, which the report names.
    let _ = netlink::set_congestion_control(index, IpAddr::V4(addresses.v4), V4_PREFIX_BITS, CUBIC);
    if has_ipv6 {
        let v6 = IpAddr::V6(addresses.v6);
        let _ = netlink::set_congestion_control(index, v6, V6_PREFIX_BITS, CUBIC);
    }
    Ok(())
}

/// Whether the kernel has IPv6, and new interfaces use it.
fn is_ipv6_enabled() -> bool {
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    disabled.is_ok_and(|value| value.trim() == "0")
}

/// How many packets the kernel has dropped in the namespace of the calling thread, because the emulator did
/// not read them in time.
pub(super) fn dropped_by_kernel() -> io::Result<u64> {
    let statistics = fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(dropped_in(&statistics).unwrap_or_default())
}

/// The 12th number of an interface: packets to be sent that were dropped.
fn dropped_in(statistics: &str) -> Option<u64> {
    let numbers = statistics
        .lines()
        .find_map(|line| line.trim().strip_prefix(NAME)?.strip_prefix(':'))?;
    numbers.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_are_read_from_the_statistics_of_the_kernel() {
        let statistics = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3245      30    0    0    0     0          0         0     3245      30    0    0    0     0       0          0
 link0:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16
";
        assert_eq!(dropped_in(statistics), Some(12));
        assert_eq!(dropped_in("lo: 1 2"), None);
    }
}
