//! Nodes of memory (NUMA): processors, and the memory that is near them.

use std::fs;
use std::io;
use std::path::Path;

use super::process::run_on;
use super::socket::check;

/// The highest node that a policy can name, plus one: `MAX_NUMNODES` of Linux.
const NODES_MAX: usize = 1024;

/// The bits of a word of a node mask.
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// A node of memory, with the processors beside it that the process may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryNode {
    /// Its number.
    pub number: usize,
    /// Sorted, at least one.
    pub processors: Vec<usize>,
}

/// The processors of a core's thread, and the node of its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorePlacement {
    /// The thread runs on these only.
    pub processors: Vec<usize>,
    /// `None` leaves it to the kernel.
    pub node: Option<usize>,
}

impl MemoryNode {
    /// The nodes below this root, which is `/`, that have one of these processors; sorted by number. Empty if the kernel
    /// tells none.
    #[must_use]
    pub fn all(root: &Path, allowed: &[usize]) -> Vec<MemoryNode> {
        let folder = root.join("sys/devices/system/node");
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let numbers = names.filter_map(|name| name.strip_prefix("node")?.parse().ok());
        let numbers = numbers.filter(|number| *number < NODES_MAX);
        let node = |number| {
            let file = folder.join(format!("node{number}/cpulist"));
            let mut processors = processors_of(&fs::read_to_string(file).ok()?)?;
            processors.retain(|processor| allowed.contains(processor));
            (!processors.is_empty()).then_some(MemoryNode { number, processors })
        };
        let mut nodes: Vec<MemoryNode> = numbers.filter_map(node).collect();
        nodes.sort_by_key(|node| node.number);
        nodes
    }

    /// The placement of each of so many cores: nodes get cores in the ratio of their processors. With as many cores as
    /// processors each core has one of its own, otherwise all of its node. Empty without nodes.
    #[must_use]
    pub fn place(nodes: &[MemoryNode], cores: usize) -> Vec<CorePlacement> {
        let with_node = nodes.iter().flat_map(|node| {
            let processors = node.processors.iter();
            processors.map(move |processor| (*processor, node))
        });
        let all: Vec<(usize, &MemoryNode)> = with_node.collect();
        // The kernel knows best where the memory of the only node is.
        let has_several = nodes.len() > 1;
        let placement = |core: usize| {
            let (processor, node) = *all.get(core * all.len() / cores)?;
            Some(CorePlacement {
                processors: match all.len() == cores {
                    true => vec![processor],
                    false => node.processors.clone(),
                },
                node: has_several.then_some(node.number),
            })
        };
        (0..cores).filter_map(placement).collect()
    }
}

impl CorePlacement {
    /// Moves the calling thread there. Memory that it uses first comes from its node, as long as that has some.
    ///
    /// # Errors
    /// Those of sched_setaffinity(2) and set_mempolicy(2), which containers may forbid.
    pub(crate) fn apply(&self) -> io::Result<()> {
        run_on(&self.processors)?;
        match self.node {
            Some(node) => prefer_memory_of(Some(node)),
            None => Ok(()),
        }
    }
}

/// Has the kernel take memory for the calling thread from this node, or from that of the processor it runs on. Threads
/// that it starts inherit it.
pub(super) fn prefer_memory_of(node: Option<usize>) -> io::Result<()> {
    let mut mask = [0 as libc::c_ulong; NODES_MAX / WORD_BITS];
    let mode = match node {
        Some(node) => {
            mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
            libc::MPOL_PREFERRED
        }
        None => libc::MPOL_DEFAULT,
    };
    // SAFETY: the mask is live and has as many bits as the call is told; the call only reads it.
    let set = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::c_long::from(mode),
            mask.as_ptr(),
            NODES_MAX,
        )
    };
    check(libc::c_int::try_from(set).unwrap_or(-1)).map(drop)
}

/// The processors of a list such as `0-3,8` (`Documentation/admin-guide/cputopology.rst` of Linux). `None` if it is
/// malformed.
fn processors_of(list: &str) -> Option<Vec<usize>> {
    let mut processors = Vec::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse::<usize>().ok()?);
        if last >= libc::CPU_SETSIZE as usize {
            return None;
        }
        processors.extend(first..=last);
    }
    processors.sort_unstable();
    Some(processors)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::{env, process};

    use super::*;

    /// A tree like that of a machine with these lists of processors by node.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, nodes: &[(usize, &str)]) -> Tree {
            let root = env::temp_dir().join(format!("blitz-nodes-{name}-{}", process::id()));
            for (number, list) in nodes {
                let folder = root.join(format!("sys/devices/system/node/node{number}"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("cpulist"), format!("{list}\n")).unwrap();
            }
            Tree(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn placed(nodes: &[MemoryNode], cores: usize) -> Vec<(Vec<usize>, Option<usize>)> {
        let all = MemoryNode::place(nodes, cores).into_iter();
        all.map(|core| (core.processors, core.node)).collect()
    }

    #[test]
    fn one_node_leaves_memory_to_the_kernel() {
        let tree = Tree::new("one", &[(0, "0-3")]);
        let nodes = MemoryNode::all(&tree.0, &[0, 1, 2, 3]);
        assert_eq!(nodes.len(), 1);
        let all: Vec<_> = (0..4).map(|core| (vec![core], None)).collect();
        assert_eq!(placed(&nodes, 4), all);
        assert_eq!(placed(&nodes, 1), [(vec![0, 1, 2, 3], None)]);
    }

    #[test]
    fn cores_are_dealt_out_to_two_nodes() {
        // Siblings of hyper-threading stand behind all others.
        let tree = Tree::new("two", &[(0, "0-1,4-5"), (1, "2-3,6-7")]);
        let allowed: Vec<usize> = (0..8).collect();
        let nodes = MemoryNode::all(&tree.0, &allowed);
        let one_each = [0, 1, 4, 5].map(|one| (vec![one], Some(0))).into_iter();
        let one_each = one_each.chain([2, 3, 6, 7].map(|one| (vec![one], Some(1))));
        assert_eq!(placed(&nodes, 8), one_each.collect::<Vec<_>>());
        let (first, second) = (vec![0, 1, 4, 5], vec![2, 3, 6, 7]);
        let halves = [(first.clone(), Some(0)), (second.clone(), Some(1))];
        assert_eq!(placed(&nodes, 2), halves);
        let first_only = MemoryNode::all(&tree.0, &[0, 4]);
        assert_eq!(placed(&first_only, 2), [(vec![0], None), (vec![4], None)]);
        // More cores than processors share those of their node.
        let of_first = placed(&nodes, 16)
            .into_iter()
            .filter(|one| one.1 == Some(0));
        assert_eq!(of_first.count(), 8);
    }

    #[test]
    fn four_nodes_of_different_sizes_get_cores_in_their_ratio() {
        let lists = [(0, "0-7"), (1, "8-11"), (2, ""), (3, "12-15")];
        let tree = Tree::new("four", &lists);
        let allowed: Vec<usize> = (0..16).collect();
        let nodes = MemoryNode::all(&tree.0, &allowed);
        // A node may have memory only.
        let numbers: Vec<_> = nodes.iter().map(|node| node.number).collect();
        assert_eq!(numbers, [0, 1, 3]);
        let numbers = placed(&nodes, 4).into_iter().map(|core| core.1);
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            [Some(0), Some(0), Some(1), Some(3)]
        );
    }

    #[test]
    fn trees_that_say_nothing_have_no_nodes() {
        let tree = Tree::new("odd", &[(0, "0-x"), (1, "9999999"), (5000, "0")]);
        assert_eq!(MemoryNode::all(&tree.0, &[0]), []);
        assert_eq!(MemoryNode::all(Path::new("/no/such/root"), &[0]), []);
        assert_eq!(MemoryNode::place(&[], 4), []);
    }

    #[test]
    fn a_thread_moves_to_the_nodes_of_this_machine() {
        let allowed = super::super::processors();
        let nodes = MemoryNode::all(Path::new("/"), &allowed);
        let moved = std::thread::spawn(move || {
            let places = MemoryNode::place(&nodes, allowed.len());
            let applied = places.first().map_or(Ok(()), CorePlacement::apply);
            let processors = super::super::processors();
            (applied.is_ok(), places.first().cloned(), processors)
        });
        let (is_applied, place, processors) = moved.join().unwrap();
        if let (true, Some(place)) = (is_applied, place) {
            assert_eq!(processors, place.processors);
        }
    }
}
