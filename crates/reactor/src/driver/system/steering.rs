//! Which socket of a group receives a datagram of QUIC: the connection ID names the core.

use std::os::fd::{AsRawFd, OwnedFd};

use super::socket::set_option;

/// Random bytes at the start of a connection ID; the others name the core.
const RANDOM_BYTES: usize = 6;

/// Bits of the core; the generation has the others of 16.
const CORE_BITS: u32 = 10;
const CORE_MASK: u16 = (1 << CORE_BITS) - 1;

/// The first byte of a packet with a long header (RFC 9000, section 17.2).
const LONG_HEADER: u8 = 0x80;

/// The result of the program if it does not know the core: no socket has this index, so that the kernel chooses by the
/// hash of the addresses.
const BY_HASH: u32 = u32::MAX;

/// Makes connection IDs that name a core, and finds the core in them. A classic BPF program computes the same
/// in the kernel, so that packets with a short header (RFC 9000, section 17.3) reach their core however
/// the client's address changes.
///
/// An ID is 6 random bytes, and 16 bits of generation and core, XORed with a keyed function of the random
/// bytes. Without the key, IDs of one connection look unrelated (RFC 9000, section 5.1). The function has to
/// be one that the program can compute, and is no cipher: who finds the key learns cores and nothing else.
#[derive(Clone, Copy)]
pub struct Steering {
    key: [u32; 4],
    generation: u16,
}

impl Steering {
    /// Bytes of an ID.
    pub const ID_BYTES: usize = 8;

    /// The most cores that IDs can name.
    pub const CORES_MAX: usize = 1 << CORE_BITS;

    /// The key is random, secret, and the same for all cores. IDs of other generations (modulo 64) are not
    /// recognised.
    #[must_use]
    pub fn new(key: [u8; 16], generation: u8) -> Steering {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| key[at * 4 + byte]));
        Steering {
            // Products with odd numbers lose no bits.
            key: [word(0), word(1) | 1, word(2) | 1, word(3) | 1],
            generation: u16::from(generation) % (1 << (16 - CORE_BITS)),
        }
    }

    /// An ID that names the core.
    ///
    /// # Panics
    /// If an ID cannot name the core.
    #[must_use]
    pub fn connection_id(
        &self,
        core: usize,
        random: [u8; RANDOM_BYTES],
    ) -> [u8; Steering::ID_BYTES] {
        assert!(core < Steering::CORES_MAX, "an ID cannot name core {core}");
        let named = self.mask(random) ^ (self.generation << CORE_BITS) ^ core as u16;
        let [a, b, c, d, e, f] = random;
        let [g, h] = named.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// The core that an ID names; `None` if this group made no such ID. Of foreign IDs, 1 in 64 names a core
    /// by chance.
    #[must_use]
    pub fn core_of(&self, id: &[u8]) -> Option<usize> {
        let [a, b, c, d, e, f, g, h] = <[u8; Steering::ID_BYTES]>::try_from(id).ok()?;
        let named = self.mask([a, b, c, d, e, f]) ^ u16::from_be_bytes([g, h]);
        let is_ours = named >> CORE_BITS == self.generation;
        is_ours.then_some(usize::from(named & CORE_MASK))
    }

    /// The keyed function.
    fn mask(&self, random: [u8; RANDOM_BYTES]) -> u16 {
        let [k0, k1, k2, k3] = self.key;
        let [a, b, c, d, e, f] = random;
        let mut hash = (u32::from_be_bytes([a, b, c, d]) ^ k0).wrapping_mul(k1);
        hash ^= hash >> 16;
        hash = hash
            .wrapping_add(u32::from(u16::from_be_bytes([e, f])))
            .wrapping_mul(k2);
        hash ^= hash >> 15;
        hash = hash.wrapping_mul(k3);
        hash ^= hash >> 16;
        hash as u16
    }

    /// The program: it sees the datagram from its first byte on, and returns the index of a socket.
    fn program(&self) -> Vec<libc::sock_filter> {
        use libc::{
            BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JGE, BPF_JMP, BPF_JSET,
            BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM, BPF_MISC, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST,
            BPF_SUB, BPF_TAX, BPF_W, BPF_X, BPF_XOR,
        };
        let [k0, k1, k2, k3] = self.key;
        let id_end = 1 + Steering::ID_BYTES as u32;
        let step = |code: u32, k: u32| instruction(code, 0, 0, k);
        let fold = |shift: u32| {
            [
                step(BPF_MISC | BPF_TAX, 0),
                step(BPF_ALU | BPF_RSH | BPF_K, shift),
                step(BPF_ALU | BPF_XOR | BPF_X, 0),
            ]
        };
        // Loads two bytes, and moves what was computed to the other register.
        let load = |at: u32| {
            [
                step(BPF_ST, 0),
                step(BPF_LD | BPF_H | BPF_ABS, at),
                step(BPF_LDX | BPF_W | BPF_MEM, 0),
            ]
        };
        let multiply = |factor: u32| [step(BPF_ALU | BPF_MUL | BPF_K, factor)];
        [
            // A load beyond the end would return 0, which is a core.
            &[
                step(BPF_LD | BPF_W | BPF_LEN, 0),
                instruction(BPF_JMP | BPF_JGE | BPF_K, 1, 0, id_end),
                step(BPF_RET | BPF_K, BY_HASH),
                step(BPF_LD | BPF_B | BPF_ABS, 0),
                instruction(BPF_JMP | BPF_JSET | BPF_K, 0, 1, LONG_HEADER.into()),
                step(BPF_RET | BPF_K, BY_HASH),
                step(BPF_LD | BPF_W | BPF_ABS, 1),
                step(BPF_ALU | BPF_XOR | BPF_K, k0),
            ][..],
            &multiply(k1),
            &fold(16),
            &load(5),
            &[step(BPF_ALU | BPF_ADD | BPF_X, 0)],
            &multiply(k2),
            &fold(15),
            &multiply(k3),
            &fold(16),
            &load(7),
            &[
                step(BPF_ALU | BPF_XOR | BPF_X, 0),
                step(BPF_ALU | BPF_AND | BPF_K, u16::MAX.into()),
                // Another generation becomes an index that no socket has.
                step(
                    BPF_ALU | BPF_SUB | BPF_K,
                    u32::from(self.generation) << CORE_BITS,
                ),
                step(BPF_RET | BPF_A, 0),
            ],
        ]
        .concat()
    }

    /// Has the kernel choose among the sockets of the group that the socket belongs to, which are numbered in
    /// the order in which they were bound. False if it refuses.
    pub(super) fn attach(&self, socket: &OwnedFd) -> bool {
        let mut program = self.program();
        attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &mut program)
    }
}

/// One instruction of classic BPF.
pub(super) fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Attaches a program by the socket option `name`. False if the kernel refuses.
pub(super) fn attach(
    socket: &impl AsRawFd,
    name: libc::c_int,
    program: &mut [libc::sock_filter],
) -> bool {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set_option(socket, libc::SOL_SOCKET, name, program).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = *b"0123456789abcdef";

    fn random(seed: u64) -> [u8; RANDOM_BYTES] {
        let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        [mixed[0], mixed[1], mixed[2], mixed[3], mixed[4], mixed[5]]
    }

    #[test]
    fn an_id_names_its_core_and_only_in_its_generation() {
        let steering = Steering::new(KEY, 3);
        for seed in 0..1_000 {
            let core = seed as usize % Steering::CORES_MAX;
            let id = steering.connection_id(core, random(seed));
            assert_eq!(steering.core_of(&id), Some(core));
            assert_eq!(Steering::new(KEY, 4).core_of(&id), None);
        }
        assert_eq!(steering.core_of(&[0; 7]), None);
        assert_eq!(steering.core_of(&[0; 20]), None);
    }

    #[test]
    fn ids_of_one_core_look_like_those_of_another() {
        let steering = Steering::new(KEY, 0);
        for core in [0, 1, 1_023] {
            // Each bit of the last bytes is set in about half of the IDs.
            let mut set = [0; 16];
            for seed in 0..4_000 {
                let id = steering.connection_id(core, random(seed));
                let named = u16::from_be_bytes([id[6], id[7]]);
                set.iter_mut()
                    .enumerate()
                    .for_each(|(bit, count)| *count += u32::from(named >> bit & 1));
            }
            assert!(
                set.iter().all(|count| (1_800..2_200).contains(count)),
                "{set:?}"
            );
        }
    }
}
