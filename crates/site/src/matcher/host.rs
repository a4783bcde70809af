//! The host of a request decides which site it gets: its name, then the names one label below another one, then all.

use std::collections::HashMap;
use std::net::Ipv6Addr;

/// Values of hosts.
#[derive(Debug)]
pub struct HostTable<T> {
    exact: NameTable<T>,
    /// By the part behind the first label.
    wildcard: NameTable<T>,
    addresses: HashMap<Ipv6Addr, T>,
    any: Option<T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        HostTable {
            exact: NameTable::default(),
            wildcard: NameTable::default(),
            addresses: HashMap::new(),
            any: None,
        }
    }
}

impl<T> HostTable<T> {
    /// Sets the value of one host: a name, or an address without brackets. Returns the one before it.
    pub fn insert_exact(&mut self, host: &str, value: T) -> Option<T> {
        match host.parse() {
            Ok(address) => self.addresses.insert(address, value),
            Err(_) => self.exact.insert(host, value),
        }
    }

    /// Sets the value of the names with one label more than `parent`. Returns the one before it.
    pub fn insert_wildcard(&mut self, parent: &str, value: T) -> Option<T> {
        self.wildcard.insert(parent, value)
    }

    /// Sets the value of all other hosts, and of requests without one. Returns the one before it.
    pub fn insert_any(&mut self, value: T) -> Option<T> {
        self.any.replace(value)
    }

    /// The value for the host of an authority, in any spelling. Never allocates.
    #[inline]
    #[must_use]
    pub fn find(&self, authority: Option<&str>) -> Option<&T> {
        let named = authority.and_then(|authority| self.find_name(authority));
        named.or(self.any.as_ref())
    }

    fn find_name(&self, authority: &str) -> Option<&T> {
        let mut host = without_brackets(host_of(authority));
        // One dot is that of a full name; more of them must not lead past the site to that for all hosts.
        while let Some(shorter) = host.strip_suffix('.') {
            host = shorter;
        }
        // Names are in no table of addresses, and have no colon.
        self.exact.get(host).or_else(|| self.find_other(host))
    }

    fn find_other(&self, host: &str) -> Option<&T> {
        match host.contains(':') {
            true => self.addresses.get(&host.parse().ok()?),
            false => self.wildcard.get(host.split_once('.')?.1),
        }
    }
}

/// Values by names, which are compared without case. `HashMap` would need a copy of a name in upper case.
#[derive(Debug)]
struct NameTable<T> {
    entries: Vec<(Box<str>, T)>,
    /// Positions in `entries`, twice as many as these or more; a power of two. Each is at its hash or behind it.
    slots: Vec<Option<u32>>,
}

impl<T> Default for NameTable<T> {
    fn default() -> Self {
        NameTable {
            entries: Vec::new(),
            slots: vec![None; 2],
        }
    }
}

impl<T> NameTable<T> {
    fn get(&self, name: &str) -> Option<&T> {
        let slot = self.slots[self.slot(name)]?;
        Some(&self.entries[slot as usize].1)
    }

    fn insert(&mut self, name: &str, value: T) -> Option<T> {
        let slot = self.slot(name);
        if let Some(entry) = self.slots[slot] {
            return Some(std::mem::replace(
                &mut self.entries[entry as usize].1,
                value,
            ));
        }
        self.slots[slot] = Some(self.entries.len() as u32);
        self.entries.push((name.into(), value));
        if self.entries.len() * 2 > self.slots.len() {
            self.slots = vec![None; self.slots.len() * 2];
            for at in 0..self.entries.len() {
                let slot = self.slot(&self.entries[at].0);
                self.slots[slot] = Some(at as u32);
            }
        }
        None
    }

    /// The slot of a name, or the free one where the search for it ends.
    fn slot(&self, name: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash(name) as usize & mask;
        while let Some(entry) = self.slots[slot]
            && !is_same(&self.entries[entry as usize].0, name)
        {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// Whether two names differ by case only. Most clients send the case of the table.
fn is_same(known: &str, name: &str) -> bool {
    known == name || known.eq_ignore_ascii_case(name)
}

/// The hash of a name, which does not depend on its case. Names are those of an operator, so nobody can choose some that
/// collide.
fn hash(name: &str) -> u64 {
    // Letters of both cases differ in this bit, which digits, dots and hyphens have.
    const LOWER: u64 = 0x2020_2020_2020_2020;
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ (word | LOWER)) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u64 ^ product as u64
    };
    let bytes = name.as_bytes();
    let mut hash = name.len() as u64;
    for word in bytes.as_chunks::<8>().0 {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    // The last bytes again with those before them, in place of a loop over what is left.
    if let Some(word) = bytes.last_chunk::<8>() {
        return fold(hash, u64::from_le_bytes(*word));
    }
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let word = u64::from(u32::from_le_bytes(*first)) << 32;
            fold(hash, word | u64::from(u32::from_le_bytes(*last)))
        }
        _ => bytes
            .iter()
            .fold(hash, |hash, byte| fold(hash, u64::from(*byte))),
    }
}

/// The authority without its port; an IPv6 address keeps its brackets.
#[must_use]
pub fn host_of(authority: &str) -> &str {
    let bytes = authority.as_bytes();
    let mut end = bytes.len();
    while end > 0 && bytes[end - 1].is_ascii_digit() {
        end -= 1;
    }
    match end > 0 && bytes[end - 1] == b':' {
        true => &authority[..end - 1],
        false => authority,
    }
}

/// An IPv6 address without its brackets.
#[must_use]
pub fn without_brackets(host: &str) -> &str {
    let inner = host.strip_prefix('[');
    inner
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_ports_and_brackets() {
        for (authority, host) in [
            ("a.example", "a.example"),
            ("a.example:443", "a.example"),
            ("[::1]:443", "::1"),
            ("[::1]", "::1"),
            ("a.example:", "a.example"),
            ("a.example1", "a.example1"),
            ("192.0.2.1", "192.0.2.1"),
            ("80", "80"),
            ("", ""),
        ] {
            assert_eq!(without_brackets(host_of(authority)), host);
        }
    }

    #[test]
    fn dots_at_the_end_lead_to_the_same_site() {
        let mut table = HostTable::default();
        table.insert_exact("a.example", 1);
        table.insert_any(2);
        for host in ["a.example", "a.example.", "a.example..", "A.EXAMPLE..:80"] {
            assert_eq!(table.find(Some(host)), Some(&1), "{host}");
        }
        for host in ["a..example", ".a.example", "..", ""] {
            assert_eq!(table.find(Some(host)), Some(&2), "{host}");
        }
    }

    /// So many names that the case would change the slots of most.
    #[test]
    fn case_changes_nothing_in_a_large_table() {
        let mut table = HostTable::default();
        for number in 0..1_000 {
            table.insert_exact(&format!("www.tenant-{number}.example"), number);
        }
        for number in 0..1_000 {
            let upper = format!("WWW.TENANT-{number}.EXAMPLE");
            assert_eq!(table.find(Some(&upper)), Some(&number));
        }
    }
}
