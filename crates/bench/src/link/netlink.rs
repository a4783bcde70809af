//! Configures network interfaces of the namespace of the calling thread, with messages of rtnetlink(7).
//!
//! Numbers in the messages have the byte order of the machine.

use std::io;
use std::net::IpAddr;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netdevice, socket};

/// The interface `lo` has this index in every namespace.
pub(super) const LOOPBACK: u32 = 1;

/// The index of the interface with this name.
pub(super) fn index_of(name: &str) -> io::Result<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(socket, name)?)
}

/// Activates an interface.
pub(super) fn bring_up(index: u32) -> io::Result<()> {
    request(Message::link(index, IFF_UP, IFF_UP))
}

/// Sets the MTU in bytes, and the number of packets that an interface holds for its reader.
pub(super) fn set_sizes(index: u32, mtu_bytes: u32, queue_packets: u32) -> io::Result<()> {
    let mut message = Message::link(index, 0, 0);
    message.attribute(IFLA_MTU, &mtu_bytes.to_ne_bytes());
    message.attribute(IFLA_TXQLEN, &queue_packets.to_ne_bytes());
    request(message)
}

/// An interface without a link-local address asks for no routers, so that only packets of programs use it.
pub(super) fn disable_link_local(index: u32) -> io::Result<()> {
    let mut inet6 = Message::default();
    inet6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    let mut families = Message::default();
    families.attribute(u16::from(AF_INET6), &inet6.bytes);
    let mut message = Message::link(index, 0, 0);
    message.attribute(IFLA_AF_SPEC, &families.bytes);
    request(message)
}

/// Gives an interface an address, which can be bound at once: the kernel does not look for duplicates first.
pub(super) fn add_address(index: u32, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
    let (family, ifa_flags, bytes) = match address {
        IpAddr::V4(address) => (AF_INET, 0, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, IFA_F_NODAD, address.octets().to_vec()),
    };
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut message = Message::new(RTM_NEWADDR, flags);
    // struct ifaddrmsg
    message.bytes.extend([family, prefix_bits, ifa_flags, 0]);
    message.bytes.extend(index.to_ne_bytes());
    message.attribute(IFA_LOCAL, &bytes);
    message.attribute(IFA_ADDRESS, &bytes);
    request(message)
}

/// Makes TCP connections over the route to a network of this interface use a congestion control. Unlike the setting of the
/// namespace this may be one that the kernel reserves for its administrator, who may be the caller of another namespace.
/// The route is the one that came with the address.
pub(super) fn set_congestion_control(
    index: u32,
    address: IpAddr,
    prefix_bits: u8,
    name: &str,
) -> io::Result<()> {
    let mut metrics = Message::default();
    metrics.attribute(RTAX_CC_ALGO, &[name.as_bytes(), &[0]].concat());
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
    let mut message = Message::new(RTM_NEWROUTE, flags);
    let (family, scope, network) = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX << (32 - u32::from(prefix_bits));
            let network = u32::from(address) & mask;
            (AF_INET, RT_SCOPE_LINK, network.to_be_bytes().to_vec())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX << (128 - u32::from(prefix_bits));
            let network = u128::from(address) & mask;
            (AF_INET6, RT_SCOPE_UNIVERSE, network.to_be_bytes().to_vec())
        }
    };
    // struct rtmsg
    message.bytes.extend([family, prefix_bits, 0, 0]);
    message
        .bytes
        .extend([RT_TABLE_MAIN, RTPROT_KERNEL, scope, RTN_UNICAST]);
    message.bytes.extend([0; 4]);
    message.attribute(RTA_DST, &network);
    message.attribute(RTA_OIF, &index.to_ne_bytes());
    match address {
        IpAddr::V4(address) => message.attribute(RTA_PREFSRC, &address.octets()),
        IpAddr::V6(_) => message.attribute(RTA_PRIORITY, &IP6_RT_PRIO_ADDRCONF.to_ne_bytes()),
    }
    message.attribute(RTA_METRICS, &metrics.bytes);
    request(message)
}

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_KERNEL: u8 = 2;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTAX_CC_ALGO: u16 = 16;
/// The priority of the routes that come with addresses of IPv6.
const IP6_RT_PRIO_ADDRCONF: u32 = 256;
const IFF_UP: u32 = 1;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_F_NODAD: u8 = 0x2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The header of a message: its length, type, flags, sequence number and port.
const HEADER_BYTES: usize = 16;

#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Message { bytes }
    }

    /// A change of the interface, and of those flags of it that `mask` has.
    fn link(index: u32, flags: u32, mask: u32) -> Message {
        let mut message = Message::new(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK);
        // struct ifinfomsg
        message.bytes.extend([0; 4]);
        message.bytes.extend(index.to_ne_bytes());
        message.bytes.extend(flags.to_ne_bytes());
        message.bytes.extend(mask.to_ne_bytes());
        message
    }

    /// An attribute is aligned to four bytes. Its length excludes the padding.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = 4 + value.len();
        self.bytes.extend((length as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        let padding = length.next_multiple_of(4) - length;
        self.bytes.extend(&[0; 3][..padding]);
    }
}

/// Sends a message and waits for its acknowledgment.
fn request(mut message: Message) -> io::Result<()> {
    let length = message.bytes.len() as u32;
    message.bytes[..4].copy_from_slice(&length.to_ne_bytes());
    // NETLINK_ROUTE is the protocol 0.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    rustix::net::send(&socket, &message.bytes, SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match error_number(&answer[..length]) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The number in an acknowledgment: 0, or a negative error number.
fn error_number(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..6)?.try_into().ok()?;
    let number = answer
        .get(HEADER_BYTES..HEADER_BYTES + 4)?
        .try_into()
        .ok()?;
    (u16::from_ne_bytes(kind) == NLMSG_ERROR).then_some(i32::from_ne_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_to_four_bytes() {
        let mut message = Message::default();
        message.attribute(7, &[1, 2, 3, 4, 5]);
        let mut expected = Vec::new();
        expected.extend(9u16.to_ne_bytes());
        expected.extend(7u16.to_ne_bytes());
        expected.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(message.bytes, expected);
    }

    #[test]
    fn an_answer_that_is_no_acknowledgment_has_no_error_number() {
        let mut answer = Message::new(NLMSG_ERROR, 0);
        answer.bytes.extend((-1i32).to_ne_bytes());
        assert_eq!(error_number(&answer.bytes), Some(-1));
        assert_eq!(error_number(&answer.bytes[..19]), None);
        assert_eq!(error_number(&Message::new(RTM_NEWLINK, 0).bytes), None);
        assert_eq!(error_number(&[]), None);
    }

    #[test]
    fn the_loopback_interface_has_index_1() {
        assert_eq!(index_of("lo").unwrap(), LOOPBACK);
    }
}
