//! Which cores the servers and the generator have.

use std::fs;

use crate::process::{LOAD_CORE, SERVER_CORE};

/// Cores in the form of taskset, and how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cores {
    pub(super) list: &'static str,
    pub(super) count: u32,
}

/// The cores of a run. Servers share theirs, one of them has load at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) server: Cores,
    pub(super) load: Cores,
}

impl Placement {
    /// One core for the servers, and one for the generator.
    pub(super) fn one_each() -> Placement {
        let one = |list| Cores { list, count: 1 };
        Placement {
            server: one(SERVER_CORE),
            load: one(LOAD_CORE),
        }
    }

    /// All cores that this process may use. The generator needs as much time for a request as the fastest of the servers,
    /// so that by default it has half of the cores.
    pub(super) fn of_machine(server_cores: Option<u32>) -> Result<Placement, String> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Placement::of(&parse(allowed.unwrap_or_default()), server_cores)
    }

    fn of(cores: &[u32], server_cores: Option<u32>) -> Result<Placement, String> {
        if cores.len() < 2 {
            return Err(
                "it takes two cores, one for the server and one for the generator".to_owned(),
            );
        }
        let wanted = server_cores.map_or(cores.len() / 2, |count| count as usize);
        if wanted >= cores.len() {
            return Err(format!(
                "--server-cores {wanted} leaves no core for the generator: there are {}",
                cores.len()
            ));
        }
        let (server, load) = cores.split_at(wanted);
        Ok(Placement {
            server: Cores::of(server),
            load: Cores::of(load),
        })
    }
}

impl Cores {
    fn of(cores: &[u32]) -> Cores {
        let words: Vec<String> = cores.iter().map(u32::to_string).collect();
        Cores {
            // Loads name their cores until the process ends; there are two lists of them.
            list: Box::leak(words.join(",").into_boxed_str()),
            count: cores.len() as u32,
        }
    }
}

/// `0-3,8` as numbers.
fn parse(list: &str) -> Vec<u32> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(parse("\t0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse("5"), [5]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn the_generator_has_half_of_the_cores_or_what_is_left() {
        let of = |count: u32, server| {
            let cores: Vec<u32> = (0..count).collect();
            let placement = Placement::of(&cores, server).unwrap();
            (placement.server.list, placement.load.list)
        };
        assert_eq!(of(2, None), ("0", "1"));
        assert_eq!(of(3, None), ("0", "1,2"));
        assert_eq!(of(4, None), ("0,1", "2,3"));
        assert_eq!(of(4, Some(3)), ("0,1,2", "3"));
        assert!(Placement::of(&[0], None).unwrap_err().contains("two cores"));
        assert!(
            Placement::of(&[0, 1], Some(2))
                .unwrap_err()
                .contains("no core")
        );
    }
}
