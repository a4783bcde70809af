//! UDP sockets: their options, and the control messages of each batch of datagrams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::RawAddress;
use super::socket::{check, get_option, local, set_nonblocking, set_option};
use super::steering::{Steering, attach, instruction};
use crate::buffer::{DATAGRAM_BUFFER_BYTES, DATAGRAM_HEAD_BYTES};
use crate::driver::Handle;

/// The layout that io_uring writes in front of a received message: its `io_uring_recvmsg_out`, the address of the
/// sender and the control messages, each with a fixed size. The other drivers write the same.
const NAME_AT: usize = 16;
/// A `sockaddr_in6` fits; a multiple of the alignment of control messages.
const NAME_BYTES: usize = 32;
const CONTROL_AT: usize = NAME_AT + NAME_BYTES;
/// All control messages that the socket's options ask for fit.
const CONTROL_BYTES: usize = DATAGRAM_HEAD_BYTES - CONTROL_AT;

/// Bytes of the control messages of a sent batch: the local address, ECN, the segment size.
const SENT_CONTROL_BYTES: usize = 40 + 24 + 24;

/// Wanted sizes of the kernel's buffers, which it limits to `rmem_max` and `wmem_max`.
const SOCKET_BUFFER_BYTES: libc::c_int = 2 * 1024 * 1024;

/// The head of a `cmsghdr`: length, level and type.
const CONTROL_HEAD_BYTES: usize = size_of::<libc::cmsghdr>();
const LENGTH_BYTES: usize = size_of::<usize>();

/// The low bits of the traffic class (RFC 3168, section 5).
const ECN_MASK: u8 = 0b11;

/// The kernel's report of a received batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrainHead {
    pub(crate) from: SocketAddr,
    pub(crate) to: Option<IpAddr>,
    pub(crate) ecn: u8,
    /// `None` for a single datagram.
    pub(crate) segment_bytes: Option<usize>,
    /// Datagrams that the kernel has dropped since the socket was opened, because its buffer was full;
    /// modulo 2^32.
    pub(crate) dropped: u32,
    /// Where the datagrams are in the buffer.
    pub(crate) content: Range<usize>,
}

/// A UDP socket that is bound.
pub(crate) struct Bound {
    pub(crate) handle: Handle,
    /// With the actual port.
    pub(crate) address: SocketAddr,
}

/// Sizes of the kernel's buffers of a UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramBuffers {
    /// At most `net.core.rmem_max`.
    pub receive_bytes: usize,
    /// At most `net.core.wmem_max`.
    pub send_bytes: usize,
    /// The size that Blitz sets for both.
    pub wanted_bytes: usize,
}

/// Binds a UDP socket. Others of this user may share the address if they ask for it as well. A free port is not
/// shared: the kernel counts one as free that only sockets have which would share it.
pub(crate) fn bind_datagrams(address: SocketAddr, nonblocking: bool) -> io::Result<Bound> {
    let (fd, address) = bind(address, address.port() != 0)?;
    set_nonblocking(&fd, nonblocking)?;
    Ok(Bound {
        address,
        handle: Handle::of(fd.into_raw_fd()),
    })
}

/// The UDP sockets of one address. The kernel numbers them in the order in which they were bound; were one
/// closed, the last would take its number, so they are open as long as the group.
#[derive(Debug)]
pub(crate) struct BoundGroup {
    sockets: Vec<OwnedFd>,
    address: SocketAddr,
    is_steered: bool,
}

impl BoundGroup {
    /// Binds `count` sockets to an address that no other socket has; if `is_beside`, others of this user may have it.
    pub(crate) fn bind(
        address: SocketAddr,
        count: usize,
        steering: &Steering,
        is_beside: bool,
    ) -> io::Result<BoundGroup> {
        let address = match is_beside {
            true => address,
            // Without SO_REUSEPORT this fails if another socket has the address. It also finds a free port.
            false => bind(address, false)?.1,
        };
        let mut group = BoundGroup {
            sockets: Vec::with_capacity(count),
            address,
            is_steered: false,
        };
        for _ in 0..count {
            let (fd, _) = bind(address, true)?;
            if group.sockets.is_empty() {
                group.is_steered = steering.attach(&fd);
            }
            group.sockets.push(fd);
        }
        Ok(group)
    }

    /// With the actual port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the kernel chooses the socket by connection ID.
    pub(crate) fn is_steered(&self) -> bool {
        self.is_steered
    }

    /// A descriptor of the socket with this number, for one core.
    pub(crate) fn socket(&self, number: usize, nonblocking: bool) -> io::Result<Bound> {
        let fd = self.sockets[number].try_clone()?;
        set_nonblocking(&fd, nonblocking)?;
        Ok(Bound {
            address: self.address,
            handle: Handle::of(fd.into_raw_fd()),
        })
    }
}

/// The sizes of the kernel's buffers of a new socket, and the wanted size.
pub(crate) fn probe_buffers() -> io::Result<DatagramBuffers> {
    let (fd, _) = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false)?;
    // The kernel doubles a size, for its own structures, and returns what it uses (`socket(7)`).
    let size = |name| {
        get_option(fd.as_raw_fd(), libc::SOL_SOCKET, name)
            .map(|bytes| bytes.unsigned_abs() as usize / 2)
    };
    Ok(DatagramBuffers {
        receive_bytes: size(libc::SO_RCVBUF)?,
        send_bytes: size(libc::SO_SNDBUF)?,
        wanted_bytes: SOCKET_BUFFER_BYTES as usize,
    })
}

/// Binds a UDP socket; returns its address with the actual port.
fn bind(address: SocketAddr, is_shared: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    let raw = RawAddress::new(&address.into())?;
    // SAFETY: a plain system call; the descriptor it returns is ours alone.
    let fd = unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        let fd = check(libc::socket(raw.family(), kind, 0))?;
        OwnedFd::from_raw_fd(fd)
    };
    if is_shared {
        set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if address.is_ipv6() {
        set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    set_datagram_options(&fd, address.is_ipv6());
    drop_empty_datagrams(&fd);
    // SAFETY: the address is live, and its length is right.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) })?;
    let bound = local(fd.as_raw_fd())?;
    Ok((fd, bound.unwrap_or(address)))
}

/// Sets the useful options: local addresses, ECN, batches, the number of dropped datagrams; no fragments, and a path
/// MTU that the caller probes, so that forged ICMP messages do not change it. A kernel without one of these options is
/// slower or reports less.
fn set_datagram_options(fd: &OwnedFd, is_ipv6: bool) {
    let integers = [
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER_BYTES),
        (libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES),
        (libc::SOL_UDP, libc::UDP_GRO, 1),
        (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
        (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
    ];
    let of_family: &[_] = match is_ipv6 {
        false => &[(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)],
        true => &[
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            ),
        ],
    };
    for &(level, name, value) in integers.iter().chain(of_family) {
        let _ = set_option(fd, level, name, value);
    }
}

/// Has the kernel drop datagrams without content. Each would end a multishot receive, which starts again in the
/// next turn: a few thousand per second would keep others from being received.
fn drop_empty_datagrams(fd: &OwnedFd) {
    const UDP_HEAD_BYTES: u32 = 8;
    // The length, from the UDP header on: if it is that of the header, keep 0 bytes, otherwise all.
    let mut filter = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            UDP_HEAD_BYTES,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    // Without the filter, empty datagrams are received.
    let _ = attach(fd, libc::SO_ATTACH_FILTER, &mut filter);
}

/// The sizes that a multishot receive is given. It reads nothing else of the message.
pub(crate) fn receive_message() -> libc::msghdr {
    // SAFETY: all zeros is an empty message: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_namelen = NAME_BYTES as libc::socklen_t;
    message.msg_controllen = CONTROL_BYTES;
    message
}

/// Receives one batch into a buffer, without waiting, as io_uring does.
///
/// # Errors
/// The error number of `recvmsg(2)`.
pub(crate) fn receive_train(fd: RawFd, buffer: &mut [u8]) -> Result<(), i32> {
    assert_eq!(buffer.len(), DATAGRAM_BUFFER_BYTES);
    let mut message = receive_message();
    let start = buffer.as_mut_ptr();
    let mut vector = libc::iovec {
        iov_base: start.wrapping_add(DATAGRAM_HEAD_BYTES).cast(),
        iov_len: DATAGRAM_BUFFER_BYTES - DATAGRAM_HEAD_BYTES,
    };
    message.msg_name = start.wrapping_add(NAME_AT).cast();
    message.msg_control = start.wrapping_add(CONTROL_AT).cast();
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    // SAFETY: name, control messages and content are parts of the buffer, with their sizes; the buffer is
    // borrowed mutably.
    let n = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(n) else {
        return Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO));
    };
    let sizes = [
        message.msg_namelen,
        message.msg_controllen as u32,
        len as u32,
        message.msg_flags as u32,
    ];
    write_sizes(buffer, sizes);
    Ok(())
}

/// Writes what a receive would have, without control messages that a single datagram does not have.
#[cfg(feature = "simulation")]
pub(crate) fn write_train(
    buffer: &mut [u8],
    from: SocketAddr,
    to: IpAddr,
    ecn: u8,
    content: &[u8],
) {
    let mut control = ControlMessages::new(&mut buffer[CONTROL_AT..DATAGRAM_HEAD_BYTES]);
    control.add_local(to);
    control.add_ecn(to.is_ipv6(), ecn);
    let control_bytes = control.len;
    let name_bytes = write_name(&mut buffer[NAME_AT..CONTROL_AT], from);
    buffer[DATAGRAM_HEAD_BYTES..][..content.len()].copy_from_slice(content);
    let sizes = [name_bytes, control_bytes, content.len(), 0];
    write_sizes(buffer, sizes.map(|bytes| bytes as u32));
}

fn write_sizes(buffer: &mut [u8], sizes: [u32; 4]) {
    for (at, size) in sizes.into_iter().enumerate() {
        buffer[at * 4..][..4].copy_from_slice(&size.to_ne_bytes());
    }
}

/// Reads what is in front of a batch; `None` if the batch was cut or its sender is unknown.
pub(crate) fn parse_train(buffer: &[u8]) -> Option<TrainHead> {
    let size = |at: usize| read_u32(&buffer[at * 4..]).map_or(0, |size| size as usize);
    let (name_bytes, control_bytes, content_bytes) = (size(0), size(1), size(2));
    let is_cut = size(3) & libc::MSG_TRUNC as usize != 0;
    let name = &buffer[NAME_AT..][..name_bytes.min(NAME_BYTES)];
    let control = &buffer[CONTROL_AT..][..control_bytes.min(CONTROL_BYTES)];
    let content = DATAGRAM_HEAD_BYTES..DATAGRAM_HEAD_BYTES + content_bytes;
    if is_cut || content.end > buffer.len() {
        return None;
    }
    let mut head = TrainHead {
        from: read_name(name)?,
        to: None,
        ecn: 0,
        segment_bytes: None,
        dropped: 0,
        content,
    };
    for (level, kind, data) in control_messages(control) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // The address to reply from follows the interface.
                let ip = data.get(4..8).and_then(|ip| <[u8; 4]>::try_from(ip).ok());
                head.to = ip.map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let ip = data.get(..16).and_then(|ip| <[u8; 16]>::try_from(ip).ok());
                head.to = ip.map(|ip| Ipv6Addr::from(ip).to_canonical());
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                head.ecn = data.first().map_or(0, |tos| tos & ECN_MASK);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                head.ecn = read_u32(data).map_or(0, |class| class as u8 & ECN_MASK);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                head.segment_bytes = read_u32(data).map(|bytes| bytes as usize);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                head.dropped = read_u32(data).unwrap_or(0);
            }
            _ => {}
        }
    }
    Some(head)
}

fn read_u32(bytes: &[u8]) -> Option<u32> {
    let bytes = bytes.get(..4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

/// Level, type and data of each control message (`cmsg(3)`).
fn control_messages(mut rest: &[u8]) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
    std::iter::from_fn(move || {
        let length = rest.get(..LENGTH_BYTES)?.try_into().ok()?;
        let length = usize::from_ne_bytes(length);
        let level = read_u32(rest.get(LENGTH_BYTES..)?)?;
        let kind = read_u32(rest.get(LENGTH_BYTES + 4..)?)?;
        let data = rest.get(CONTROL_HEAD_BYTES..length)?;
        rest = rest
            .get(length.next_multiple_of(LENGTH_BYTES)..)
            .unwrap_or(&[]);
        Some((level.cast_signed(), kind.cast_signed(), data))
    })
}

/// The address in a `sockaddr_in` or `sockaddr_in6`; one of IPv4 also if the socket is for both families.
fn read_name(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(name.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    match libc::c_int::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = name.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = name.get(8..24)?.try_into().ok()?;
            let scope = read_u32(name.get(24..28)?)?;
            Some(match Ipv6Addr::from(ip).to_canonical() {
                IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            })
        }
        _ => None,
    }
}

#[cfg(feature = "simulation")]
fn write_name(name: &mut [u8], address: SocketAddr) -> usize {
    let (family, ip, at) = match address.ip() {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec(), 4),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec(), 8),
    };
    name.fill(0);
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    name[at..][..ip.len()].copy_from_slice(&ip);
    NAME_BYTES
}

/// Control messages that are being written.
struct ControlMessages<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl ControlMessages<'_> {
    fn new(bytes: &mut [u8]) -> ControlMessages<'_> {
        bytes.fill(0);
        ControlMessages { bytes, len: 0 }
    }

    fn add(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let length = CONTROL_HEAD_BYTES + data.len();
        let place = &mut self.bytes[self.len..][..length];
        place[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
        place[LENGTH_BYTES..][..4].copy_from_slice(&level.to_ne_bytes());
        place[LENGTH_BYTES + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        place[CONTROL_HEAD_BYTES..].copy_from_slice(data);
        self.len += length.next_multiple_of(LENGTH_BYTES);
    }

    /// The local address: that of a received batch, or that to send from.
    fn add_local(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                // `in_pktinfo`: the interface, the address to send from, the address that was received at.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ip.octets());
                info[8..].copy_from_slice(&ip.octets());
                self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(ip) => {
                // `in6_pktinfo`: the address, the interface.
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    fn add_ecn(&mut self, is_ipv6: bool, ecn: u8) {
        let class = libc::c_int::from(ecn).to_ne_bytes();
        match is_ipv6 {
            false => self.add(libc::IPPROTO_IP, libc::IP_TOS, &class),
            true => self.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class),
        }
    }
}

/// A batch to be sent, as the kernel takes it. It must not move between [`SentTrain::describe`] and the report
/// of the send.
pub(crate) struct SentTrain {
    message: libc::msghdr,
    vector: libc::iovec,
    name: RawAddress,
    control: ControlBuffer,
    pub(crate) destination: Destination,
    pub(crate) content: Vec<u8>,
}

#[repr(C, align(8))]
struct ControlBuffer([u8; SENT_CONTROL_BYTES]);

/// The destination of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Destination {
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
    pub(crate) ecn: u8,
    /// `None` for a single datagram.
    pub(crate) segment_bytes: Option<u16>,
    /// Whether the socket is for both families.
    pub(crate) is_ipv6: bool,
}

impl SentTrain {
    pub(crate) fn new(destination: Destination, content: Vec<u8>) -> SentTrain {
        SentTrain {
            // SAFETY: all zeros is an empty message: null pointers with zero lengths.
            message: unsafe { std::mem::zeroed() },
            vector: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            // Replaced when it is described.
            name: RawAddress::from_ip(destination.to),
            control: ControlBuffer([0; SENT_CONTROL_BYTES]),
            destination,
            content,
        }
    }

    /// The datagrams of the batch; one if it has no content.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let segment = self
            .destination
            .segment_bytes
            .map_or(usize::MAX, usize::from);
        let empty = self.content.is_empty().then_some(&[][..]);
        self.content.chunks(segment).chain(empty)
    }

    /// Describes the batch to the kernel. The pointer is valid until the next call, for as long as this value
    /// stays in place.
    pub(crate) fn describe(&mut self) -> *const libc::msghdr {
        let Destination {
            to,
            from,
            ecn,
            segment_bytes,
            is_ipv6,
        } = self.destination;
        self.name = RawAddress::from_ip(match to {
            SocketAddr::V4(v4) if is_ipv6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        });
        let mut control = ControlMessages::new(&mut self.control.0);
        // For an address of IPv4 the kernel reads the options of IPv4, also on a socket for both families.
        if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
            control.add_local(from);
        }
        if ecn != 0 {
            control.add_ecn(to.is_ipv6(), ecn);
        }
        if let Some(bytes) = segment_bytes {
            control.add(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
        }
        let control_bytes = control.len;
        self.vector = libc::iovec {
            iov_base: self.content.as_ptr().cast_mut().cast(),
            iov_len: self.content.len(),
        };
        self.message.msg_name = self.name.as_ptr().cast_mut().cast();
        self.message.msg_namelen = self.name.len();
        self.message.msg_iov = &raw mut self.vector;
        self.message.msg_iovlen = 1;
        self.message.msg_control = match control_bytes {
            0 => std::ptr::null_mut(),
            _ => self.control.0.as_mut_ptr().cast(),
        };
        self.message.msg_controllen = control_bytes;
        &raw const self.message
    }
}

/// Sends a batch without waiting.
///
/// # Errors
/// The error number of `sendmsg(2)`.
pub(crate) fn send_train(fd: RawFd, message: *const libc::msghdr) -> Result<usize, i32> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the caller keeps the message and what it points to until the report of the send.
    let n = unsafe { libc::sendmsg(fd, message, flags) };
    usize::try_from(n).map_err(|_| {
        io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO)
    })
}

/// Whether a send may have failed because the device or the path does not take batches (`udp(7)`,
/// UDP_SEGMENT). Addresses that cannot be sent from or to cause the same errors.
pub(crate) fn is_train_refused(error: i32) -> bool {
    matches!(error, libc::EIO | libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_survive_writing_and_reading() {
        let mut bytes = [0; CONTROL_BYTES];
        let mut control = ControlMessages::new(&mut bytes);
        let ip = IpAddr::from(Ipv6Addr::LOCALHOST);
        control.add_local(ip);
        control.add_ecn(true, 2);
        control.add(libc::SOL_UDP, libc::UDP_GRO, &1_200_i32.to_ne_bytes());
        let len = control.len;
        let messages: Vec<_> = control_messages(&bytes[..len]).collect();
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[1].1, libc::IPV6_TCLASS);
        assert_eq!(messages[2].2, 1_200_i32.to_ne_bytes());
    }

    #[test]
    fn broken_control_messages_end_the_reading() {
        for length in [0_usize, 7, 15, 129, usize::MAX] {
            let mut bytes = [0xff; CONTROL_BYTES];
            bytes[..LENGTH_BYTES].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(control_messages(&bytes).count(), 0, "{length}");
        }
        assert_eq!(control_messages(&[1, 2, 3]).count(), 0);
    }

    #[test]
    fn a_train_that_was_cut_or_has_no_sender_is_none() {
        let mut buffer = vec![0; DATAGRAM_BUFFER_BYTES];
        assert_eq!(parse_train(&buffer), None, "no family");
        buffer[NAME_AT..][..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        write_sizes(&mut buffer, [16, 0, 5, 0]);
        let head = parse_train(&buffer).expect("a sender");
        assert_eq!(head.content, DATAGRAM_HEAD_BYTES..DATAGRAM_HEAD_BYTES + 5);
        write_sizes(&mut buffer, [16, 0, 5, libc::MSG_TRUNC as u32]);
        assert_eq!(parse_train(&buffer), None, "cut");
        write_sizes(&mut buffer, [16, 0, u32::MAX, 0]);
        assert_eq!(parse_train(&buffer), None, "longer than the buffer");
        write_sizes(&mut buffer, [4, 0, 5, 0]);
        assert_eq!(parse_train(&buffer), None, "half an address");
    }
}
