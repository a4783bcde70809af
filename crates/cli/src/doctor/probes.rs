//! Checks that use the reactor's probes.

use std::path::Path;

use blitz_http::probe::{self, MemoryLayout, MemoryNode};

use super::{Check, files};

/// Whether `--io auto` chooses io_uring.
pub(super) fn io_uring(root: &Path) -> Check {
    const NAME: &str = "io_uring";
    match probe::io_uring() {
        Ok(features) => Check::ok(NAME, features),
        Err(reason) => Check::slow(
            NAME,
            format!("{reason}; Blitz uses epoll"),
            io_uring_advice(root),
        ),
    }
}

/// The sysctl shows whether the kernel forbids io_uring; otherwise a container's seccomp profile is the
/// usual cause.
fn io_uring_advice(root: &Path) -> &'static str {
    match files::read_number(root, "proc/sys/kernel/io_uring_disabled") {
        Some(1 | 2) => "sysctl -w kernel.io_uring_disabled=0",
        _ => "in a container: a seccomp profile that allows io_uring",
    }
}

/// The nodes of memory, and the cores that `pin = "numa"` gives them.
pub(super) fn memory_nodes(root: &Path) -> Check {
    const NAME: &str = "memory nodes";
    let processors = probe::processors();
    let layout = probe::memory_nodes(root, &processors, processors.len());
    match &layout.nodes[..] {
        [] => Check::unknown(NAME, "the kernel tells none", ""),
        [_] => Check::ok(NAME, "1, so pin = \"numa\" changes nothing"),
        nodes => Check::ok(NAME, node_list(nodes, &layout)),
    }
}

/// Nodes with their processors, and the cores of each, if there is one for each processor.
fn node_list(nodes: &[MemoryNode], layout: &MemoryLayout) -> String {
    let of_node = |node: &MemoryNode| {
        let cores = layout.cores.iter().enumerate();
        let cores = cores.filter(|(_, core)| core.node == Some(node.number));
        let cores: Vec<usize> = cores.map(|(index, _)| index).collect();
        let (processors, cores) = (ranges(&node.processors), ranges(&cores));
        format!("{}: processors {processors}, cores {cores}", node.number)
    };
    let all: Vec<String> = nodes.iter().map(of_node).collect();
    format!("{}, with pin = \"numa\": {}", nodes.len(), all.join("; "))
}

/// Sorted numbers as ranges: `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(usize::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Whether epoll works, which Blitz needs as a fallback.
pub(super) fn epoll() -> Check {
    const NAME: &str = "epoll";
    match probe::epoll() {
        Ok(()) => Check::ok(NAME, "works"),
        Err(reason) => Check::stop(NAME, reason, "raise nofile; Blitz cannot run without epoll"),
    }
}

/// Whether each core can have its own listener on the same port.
pub(super) fn reuseport() -> Check {
    const NAME: &str = "reuseport";
    match probe::reuseport() {
        Ok(()) => Check::ok(NAME, "each core has its own listener"),
        Err(reason) => Check::stop(NAME, reason, "run with --cores 1"),
    }
}

/// Whether the UDP sockets of HTTP/3 get the receive buffer that Blitz sets.
pub(super) fn udp_receive_buffer() -> Check {
    const NAME: &str = "UDP receive buffer";
    match probe::udp_buffers() {
        Ok(buffers) => buffer(
            NAME,
            "rmem_max",
            buffers.receive_bytes,
            buffers.wanted_bytes,
        ),
        Err(reason) => Check::unknown(NAME, reason, ""),
    }
}

/// Whether they get the send buffer.
pub(super) fn udp_send_buffer() -> Check {
    const NAME: &str = "UDP send buffer";
    match probe::udp_buffers() {
        Ok(buffers) => buffer(NAME, "wmem_max", buffers.send_bytes, buffers.wanted_bytes),
        Err(reason) => Check::unknown(NAME, reason, ""),
    }
}

fn buffer(name: &'static str, setting: &str, bytes: usize, wanted_bytes: usize) -> Check {
    let kib = bytes >> 10;
    match bytes >= wanted_bytes {
        true => Check::ok(name, format!("{kib} KiB")),
        false => Check::slow(
            name,
            format!(
                "{kib} KiB instead of {} KiB: bursts of HTTP/3 lose datagrams",
                wanted_bytes >> 10
            ),
            format!("sysctl -w net.core.{setting}={wanted_bytes}, for a container on its host"),
        ),
    }
}

/// Whether one call can send many datagrams of HTTP/3.
pub(super) fn udp_gso() -> Check {
    const NAME: &str = "UDP GSO";
    match probe::udp_gso() {
        Ok(()) => Check::ok(NAME, "one call sends many datagrams"),
        Err(reason) => Check::slow(
            NAME,
            format!("{reason}: each datagram of HTTP/3 is sent by a call of its own"),
            "Linux 4.18 or newer",
        ),
    }
}

/// Whether one call can receive many datagrams of HTTP/3.
pub(super) fn udp_gro() -> Check {
    const NAME: &str = "UDP GRO";
    match probe::udp_gro() {
        Ok(()) => Check::ok(NAME, "one call receives many datagrams"),
        Err(reason) => Check::slow(
            NAME,
            format!("{reason}: each datagram of HTTP/3 is received on its own"),
            "Linux 5.0 or newer",
        ),
    }
}

/// Whether datagrams of HTTP/3 reach the core of their connection directly.
pub(super) fn steering() -> Check {
    const NAME: &str = "QUIC steering";
    match probe::steering() {
        Ok(()) => Check::ok(NAME, "connections stay on their core when clients move"),
        Err(reason) => Check::slow(
            NAME,
            format!("{reason}: datagrams of clients that move go through another core"),
            "Linux 4.5 or newer, without a filter of setsockopt; not needed with --cores 1",
        ),
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::probe::CorePlacement;

    use super::super::CheckResult;
    use super::*;

    #[test]
    fn nodes_are_listed_with_their_cores() {
        let node = |number, processors: &[usize]| MemoryNode {
            number,
            processors: processors.to_vec(),
        };
        let core = |node| CorePlacement {
            processors: Vec::new(),
            node: Some(node),
        };
        let layout = MemoryLayout {
            nodes: vec![node(0, &[0, 1, 4, 5]), node(1, &[2])],
            cores: vec![core(0), core(0), core(0), core(0), core(1)],
        };
        assert_eq!(
            node_list(&layout.nodes, &layout),
            "2, with pin = \"numa\": 0: processors 0-1,4-5, cores 0-3; 1: processors 2, cores 4"
        );
    }

    #[test]
    fn a_udp_buffer_that_the_kernel_limits_is_slow() {
        let judged = |bytes| buffer("UDP receive buffer", "rmem_max", bytes, 2 << 20);
        assert_eq!(judged(4 << 20).verdict, CheckResult::Ok);
        assert_eq!(judged(2 << 20).verdict, CheckResult::Ok);
        let check = judged(212_992);
        assert_eq!(check.verdict, CheckResult::Slow);
        assert!(check.found.starts_with("208 KiB instead of 2048 KiB"));
        assert!(check.advice.contains("net.core.rmem_max=2097152"));
    }

    #[test]
    fn probes_of_udp_have_a_remedy_if_they_fail() {
        for check in [udp_gso(), udp_gro(), steering()] {
            let is_ok = check.verdict == CheckResult::Ok;
            assert_eq!(is_ok, check.advice.is_empty(), "{check:?}");
        }
    }
}
