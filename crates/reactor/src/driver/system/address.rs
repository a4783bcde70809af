//! Socket addresses in the kernel's representation.

use std::ffi::CStr;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;

use crate::socket::Address;

/// The number of the network interface with this name.
pub(crate) fn interface_index(name: &CStr) -> Option<u32> {
    // SAFETY: the name ends with NUL and lives for the call, which keeps no pointer to it.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index > 0).then_some(index)
}

/// A `sockaddr_storage` and the length of the address in it.
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddress {
    /// # Errors
    /// `InvalidInput` for a unix path that does not fit the kernel's 108 bytes.
    pub(crate) fn new(address: &Address) -> io::Result<RawAddress> {
        match address {
            Address::Tcp(address) => Ok(RawAddress::from_ip(*address)),
            Address::Unix(path) => {
                let bytes = path.as_os_str().as_bytes();
                let mut sun_path = [0; 108];
                if bytes.is_empty() || bytes.len() >= sun_path.len() || bytes.contains(&0) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        "the path of a unix socket has 1 to 107 bytes without NUL",
                    ));
                }
                for (to, &from) in sun_path.iter_mut().zip(bytes) {
                    *to = from as libc::c_char;
                }
                let sun_family = libc::AF_UNIX as libc::sa_family_t;
                Ok(RawAddress::from(libc::sockaddr_un {
                    sun_family,
                    sun_path,
                }))
            }
        }
    }

    pub(crate) fn from_ip(address: SocketAddr) -> RawAddress {
        match address {
            SocketAddr::V4(v4) => RawAddress::from(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => RawAddress::from(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    /// Moves an address structure of the kernel into storage that is large enough for all of them.
    fn from<T>(address: T) -> RawAddress {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        // SAFETY: all zeros is a valid storage, and it is at least as large and as aligned as T.
        let storage = unsafe {
            let mut storage: libc::sockaddr_storage = mem::zeroed();
            (&raw mut storage).cast::<T>().write(address);
            storage
        };
        RawAddress {
            storage,
            len: size_of::<T>() as libc::socklen_t,
        }
    }

    /// Reads an address of `fd` with `getsockname` or `getpeername`.
    pub(crate) fn of_socket(
        fd: libc::c_int,
        read: unsafe extern "C" fn(
            libc::c_int,
            *mut libc::sockaddr,
            *mut libc::socklen_t,
        ) -> libc::c_int,
    ) -> io::Result<RawAddress> {
        // SAFETY: all zeros is a valid storage.
        let storage = unsafe { mem::zeroed() };
        let len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        let mut raw = RawAddress { storage, len };
        // SAFETY: storage and length are live and belong together.
        let result = unsafe { read(fd, (&raw mut raw.storage).cast(), &raw mut raw.len) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(raw)
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    pub(crate) fn family(&self) -> libc::c_int {
        libc::c_int::from(self.storage.ss_family)
    }

    /// The IP address and port; `None` for other address families.
    pub(crate) fn to_ip(&self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: the family identifies the structure in the storage.
                let v4 = unsafe { *self.as_ptr().cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { *self.as_ptr().cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_survive_the_conversion_to_the_kernels_representation() {
        for text in ["127.0.0.1:8080", "[::1]:443", "[fe80::1%3]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = RawAddress::new(&address.into()).unwrap();
            assert_eq!(raw.to_ip(), Some(address));
        }
    }

    #[test]
    fn an_empty_or_too_long_unix_path_is_refused() {
        assert!(RawAddress::new(&Address::unix("/run/blitz.sock")).is_ok());
        assert!(RawAddress::new(&Address::unix("x".repeat(108))).is_err());
        assert!(RawAddress::new(&Address::unix("")).is_err());
    }
}
