//! The effects of an emulated link on packets, whatever the load of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use blitz_bench::link::{DirectionCounters, LinkCounters, LinkSpec, LinkSpecError};

use crate::link_support::{IO_TIMEOUT, TestLink, start};

/// Waits until the link has counted this.
fn wait_for(link: &TestLink, condition: impl Fn(&LinkCounters) -> bool) -> LinkCounters {
    let end = Instant::now() + IO_TIMEOUT;
    loop {
        let counters = link.link.counters();
        if condition(&counters) {
            return counters;
        }
        assert!(Instant::now() < end, "{counters:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a share of packets is within 3.29 standard errors of the probability: 99.9 %.
fn is_within_bounds(share: f64, probability: f64, packets: f64) -> bool {
    let bound = 3.29 * (probability * (1.0 - probability) / packets).sqrt();
    (share - probability).abs() < bound
}

#[test]
fn packets_arrive_in_both_directions() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    assert_eq!(link.udp().round_trips(10, Duration::ZERO).len(), 10);
    let counters = wait_for(&link, |counters| counters.down.delivered == 10);
    // A datagram of 8 bytes with the headers of UDP and IPv4.
    let expected = DirectionCounters {
        packets: 10,
        bytes: 360,
        packet_bytes_max: 36,
        delivered: 10,
        delivered_bytes: 360,
        ..DirectionCounters::default()
    };
    assert_eq!([counters.down, counters.up], [expected; 2]);
}

#[test]
fn an_idle_link_has_no_packets() {
    let Some(link) = start("lan", 1) else {
        return;
    };
    // The kernel would ask for routers once a second.
    thread::sleep(Duration::from_millis(1500));
    let report = link.link.stop();
    assert_eq!(report.counters, LinkCounters::default());
    assert!(report.cpu_time < Duration::from_millis(100), "{report}");
    assert_eq!(report.invalid(), None);
}

#[test]
fn ipv6_works_as_well() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    let Some(server) = link.link.server_address_v6() else {
        return;
    };
    let client = "::".parse::<IpAddr>().unwrap();
    assert_eq!(
        link.udp_between(client, server.into())
            .round_trips(3, Duration::ZERO)
            .len(),
        3
    );
}

#[test]
fn a_packet_of_1500_bytes_passes_and_a_longer_one_is_cut() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    let udp = link.udp();
    // With the headers of UDP and IPv4: 1,500 and 1,501 bytes.
    for (length, packets) in [(1472, 1), (1473, 3)] {
        udp.server.send(&vec![1; length]).unwrap();
        assert_eq!(udp.client.recv(&mut [0; 2048]).unwrap(), length);
        let counters = wait_for(&link, |counters| counters.down.delivered == packets);
        assert_eq!(counters.down.packet_bytes_max, 1500);
    }
}

#[test]
fn segments_of_tcp_are_packets_of_at_most_1500_bytes() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    let bytes = 4_000_000;
    link.tcp().download(bytes);
    let counters = link.link.counters();
    assert_eq!(counters.down.packet_bytes_max, 1500);
    // The kernel hands over neither super-packets nor merged ones.
    assert!(counters.down.packets >= bytes as u64 / 1460, "{counters:?}");
}

#[test]
fn udp_loses_packets_with_the_configured_probability() {
    let Some(link) = start("down:loss=2%", 11) else {
        return;
    };
    let count = 10_000;
    let arrived = link.arrivals(count, 100);
    let counters = link.link.counters();
    assert_eq!(counters.down.packets, count as u64);
    assert_eq!(arrived.len() as u64 + counters.down.lost, count as u64);
    let share = counters.down.lost as f64 / count as f64;
    assert!(is_within_bounds(share, 0.02, count as f64), "{share}");
    assert!(arrived.is_sorted());
}

#[test]
fn tcp_loses_packets_with_the_same_probability() {
    let Some(link) = start("down:loss=2%,delay=0.1ms", 11) else {
        return;
    };
    link.tcp().download(14_000_000);
    let down = link.link.counters().down;
    let packets = down.packets as f64;
    assert!(packets > 9_500.0, "{down}");
    let share = down.lost as f64 / packets;
    assert!(is_within_bounds(share, 0.02, packets), "{down}");
}

#[test]
fn a_seed_repeats_the_losses() {
    let mut runs = Vec::new();
    for seed in [5, 5, 6] {
        let Some(link) = start("down:gilbert=2%/25%", seed) else {
            return;
        };
        runs.push(link.arrivals(2_000, 100));
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[test]
fn reordered_packets_arrive_after_three_others() {
    let Some(link) = start("down:reorder=5%/3", 3) else {
        return;
    };
    let arrived = link.arrivals(2_000, 100);
    assert_eq!(arrived.len(), 2_000);
    let late = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let reordered = link.link.counters().down.reordered;
    assert!(
        late as u64 <= reordered && reordered > 50,
        "{late} {reordered}"
    );
}

#[test]
fn a_full_queue_drops_packets() {
    let Some(link) = start("down:rate=1mbit,down:queue=10p", 1) else {
        return;
    };
    // Takes 12 ms for each packet, and gets 20 at once.
    let arrived = link.arrivals(20, 1472);
    let counters = link.link.counters();
    assert_eq!(arrived.len() as u64, counters.down.delivered);
    assert_eq!(arrived.len() as u64 + counters.down.dropped, 20);
    assert!((10..20).contains(&arrived.len()), "{arrived:?}");
}

#[test]
fn processes_of_both_sides_have_their_own_network() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    let mut command = Command::new("cat");
    command.arg("/proc/self/net/dev").stdout(Stdio::piped());
    let server = link.link.spawn_server(&mut command).unwrap();
    let client = link.link.spawn_client(&mut command).unwrap();
    for process in [server, client] {
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, _)| name.trim())
            .collect();
        names.sort_unstable();
        assert!(names.starts_with(&["link0", "lo"]), "{names:?}");
    }
}

#[test]
fn a_link_leaves_nothing_behind() {
    let Some(TestLink { link, turn }) = start("lan", 1) else {
        return;
    };
    let namespace = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let own = namespace();
    let server = link.in_server(namespace).unwrap();
    let client = link.in_client(namespace).unwrap();
    assert!(own != server && own != client && server != client);
    // Other tests open files meanwhile, but no link while this one has its turn.
    let files = || {
        let files = fs::read_dir("/proc/self/fd").unwrap();
        files.filter_map(|file| fs::read_link(file.unwrap().path()).ok())
    };
    let is_ours =
        |file: &PathBuf| file == Path::new("/dev/net/tun") || file == &server || file == &client;
    assert_eq!(files().filter(is_ours).count(), 4);
    drop(link);
    assert_eq!(files().filter(is_ours).count(), 0);
    drop(turn);
}

#[test]
fn a_stopped_link_says_what_it_did() {
    let Some(link) = start("4g,loss=0%", 9) else {
        return;
    };
    link.udp().round_trips(3, Duration::ZERO);
    wait_for(&link, |counters| counters.down.delivered == 3);
    let text = link.link.stop().to_string();
    assert!(
        text.starts_with("link     4g: down delay 30 ms, jitter 5 ms, 30 Mbit/s"),
        "{text}"
    );
    for part in [
        "\nseed     9\n",
        "\ndown     3 packets with 108 bytes, 0 lost, 0 dropped, 0 reordered, 0 duplicated\n",
        "s of processor time in",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_text_that_is_no_link_is_refused() {
    let error: LinkSpecError = "5g".parse::<LinkSpec>().unwrap_err();
    assert!(
        error.to_string().starts_with("invalid link '5g'"),
        "{error}"
    );
}

#[test]
fn a_client_that_moves_keeps_its_datagrams_and_loses_its_connections() {
    let Some(link) = start("delay=1ms,move-every=300ms", 1) else {
        return;
    };
    let udp = link.udp();
    let server = link.link.in_server(|| {
        let address = link.link.server_address();
        UdpSocket::bind((address, 0)).unwrap()
    });
    let server = server.unwrap();
    server.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    udp.client.connect(server.local_addr().unwrap()).unwrap();
    let mut tcp = link.tcp();
    let mut seen = BTreeSet::new();
    let end = Instant::now() + IO_TIMEOUT;
    while seen.len() < 3 {
        assert!(Instant::now() < end, "{seen:?}");
        udp.client.send(b"ping").unwrap();
        let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
        // A reply that is under way during a move is lost.
        server.send_to(b"pong", from).unwrap();
        udp.client
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        if udp.client.recv(&mut [0; 16]).is_ok() {
            seen.insert(from.ip());
        }
    }
    tcp.client.write_all(b"still there?").unwrap();
    let error = tcp.client.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn single_packets_are_lost_at_intervals() {
    let Some(link) = start("delay=1ms,down:lose-every=100ms", 1) else {
        return;
    };
    let begun = Instant::now();
    link.arrivals(30_000, 1_200);
    let intervals = begun.elapsed().as_millis() as u64 / 100;
    let lost = link.link.counters().down.lost;
    assert!(
        lost >= 1 && lost.abs_diff(intervals) <= 2,
        "{lost} in {intervals} intervals"
    );
}

#[test]
fn tcp_has_the_congestion_control_of_quic() {
    let Some(link) = start("delay=1ms", 1) else {
        return;
    };
    // The default of the machine does not matter, nor whether namespaces may choose.
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if available.unwrap_or_default().contains("cubic") {
        assert_eq!(link.link.congestion_control().unwrap(), "cubic");
    }
}
