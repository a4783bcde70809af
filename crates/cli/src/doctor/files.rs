//! Checks that read `/proc` and `/sys`. Each takes the root of the tree, so that tests can pass their own.

use std::fs;
use std::path::Path;
use std::thread;

use blitz_host::serving::MORE_OPEN_FILES;

use super::Check;

/// With a lower limit of open files a gateway reaches the limit before the machine is busy.
const NOFILE_GOOD: u64 = 16_384;
/// Files that each core has open, with one listener and one connection.
const FILES_PER_CORE: u64 = 4;
/// Further files of the process, with one connection to an upstream.
const FILES_OF_PROCESS: u64 = 6;
/// The memory that the rings and buffers of one core may lock.
const MEMLOCK_GOOD_BYTES: u64 = 8 << 20;
/// The kernel's default since Linux 5.4; older defaults (128) drop connections in a burst.
const BACKLOG_GOOD: u64 = 4096;

/// A running process may have another limit, which the line `descriptors` has.
const OF_SHELL: &str = "the limit of this shell";

/// The limit of open files, and so of connections, of a process that this shell would start. Blitz raises the soft limit to the
/// hard one.
pub(super) fn nofile(root: &Path) -> Check {
    let cores = thread::available_parallelism().map_or(1, Into::into);
    nofile_for(cores, root)
}

fn nofile_for(cores: usize, root: &Path) -> Check {
    const NAME: &str = "nofile";
    match process_limit(root, "Max open files") {
        None => unreadable(NAME, "/proc/self/limits"),
        Some((_, None)) => Check::ok(NAME, format!("unlimited open files, {OF_SHELL}")),
        Some((_, Some(limit))) if limit >= NOFILE_GOOD => {
            Check::ok(NAME, format!("{limit} open files, {OF_SHELL}"))
        }
        Some((_, Some(limit))) if limit < FILES_PER_CORE * cores as u64 + FILES_OF_PROCESS => {
            Check::stop(
                NAME,
                format!(
                    "{limit} open files, {OF_SHELL}, leave none for connections with {cores} cores"
                ),
                MORE_OPEN_FILES,
            )
        }
        Some((_, Some(limit))) => Check::slow(
            NAME,
            format!("{limit} open files, {OF_SHELL}, limit the number of connections"),
            MORE_OPEN_FILES,
        ),
    }
}

/// The limit of memory that the rings may lock.
pub(super) fn memlock(root: &Path) -> Check {
    const NAME: &str = "memlock";
    match process_limit(root, "Max locked memory") {
        None => unreadable(NAME, "/proc/self/limits"),
        Some((None, _)) => Check::ok(NAME, "unlimited"),
        Some((Some(bytes), _)) if bytes >= MEMLOCK_GOOD_BYTES => {
            Check::ok(NAME, format!("{} KiB", bytes >> 10))
        }
        Some((Some(bytes), _)) if !counts_rings(root) => Check::ok(
            NAME,
            format!("{} KiB, not needed by this kernel", bytes >> 10),
        ),
        Some((Some(bytes), _)) => Check::slow(
            NAME,
            format!("{} KiB may be too little for io_uring", bytes >> 10),
            "ulimit -l 8192, or LimitMEMLOCK=8M in the unit",
        ),
    }
}

/// Whether the kernel counts rings against the locked memory: before Linux 5.12, or unknown.
fn counts_rings(root: &Path) -> bool {
    let release = read(root, "proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version < (5, 12)
}

/// The limit of connections that wait to be accepted.
pub(super) fn somaxconn(root: &Path) -> Check {
    backlog(root, "somaxconn", "net/core/somaxconn")
}

/// The limit of incomplete handshakes of one listener.
pub(super) fn tcp_max_syn_backlog(root: &Path) -> Check {
    backlog(root, "tcp_max_syn_backlog", "net/ipv4/tcp_max_syn_backlog")
}

fn backlog(root: &Path, name: &'static str, key: &str) -> Check {
    match read_number(root, &format!("proc/sys/{key}")) {
        None => unreadable(name, &format!("/proc/sys/{key}")),
        Some(value) if value >= BACKLOG_GOOD => Check::ok(name, value.to_string()),
        Some(value) => {
            let setting = key.replace('/', ".");
            let found = format!("{value}: a burst of new connections is dropped early");
            Check::slow(name, found, format!("sysctl -w {setting}={BACKLOG_GOOD}"))
        }
    }
}

/// The limit of received packets that wait for a core. A small number suffices until packets are dropped.
pub(super) fn netdev_max_backlog(root: &Path) -> Check {
    const NAME: &str = "netdev_max_backlog";
    let Some(value) = read_number(root, "proc/sys/net/core/netdev_max_backlog") else {
        return unreadable(NAME, "/proc/sys/net/core/netdev_max_backlog");
    };
    match packets_dropped(root) {
        _ if value >= BACKLOG_GOOD => Check::ok(NAME, value.to_string()),
        Some(0) => Check::ok(NAME, format!("{value}, no packet was dropped so far")),
        Some(dropped) => Check::slow(
            NAME,
            format!("{value}, and {dropped} packets were dropped since the machine started"),
            "sysctl -w net.core.netdev_max_backlog=16384",
        ),
        None => Check::unknown(
            NAME,
            format!("{value}; the count of dropped packets cannot be read"),
            "if packets are lost under load: sysctl -w net.core.netdev_max_backlog=16384",
        ),
    }
}

/// Sum of the second column of softnet_stat, one line per core, in hexadecimal.
fn packets_dropped(root: &Path) -> Option<u64> {
    let text = read(root, "proc/net/softnet_stat")?;
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().map(dropped).sum()
}

/// Whether the processors run at full speed under load.
pub(super) fn governor(root: &Path) -> Check {
    const NAME: &str = "governor";
    match read(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_deref() {
        None => Check::unknown(
            NAME,
            "cannot be read, as in most virtual machines",
            "on real hardware: cpupower frequency-set -g performance",
        ),
        Some("performance") => Check::ok(NAME, "performance"),
        Some(other) => Check::slow(
            NAME,
            format!("{other}: processors raise their frequency late, which increases tail latency"),
            "cpupower frequency-set -g performance",
        ),
    }
}

/// Whether reading the clock needs no system call.
pub(super) fn clock_source(root: &Path) -> Check {
    const NAME: &str = "clock source";
    const FILE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    match read(root, FILE).as_deref() {
        None => unreadable(NAME, FILE),
        Some(
            source @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page"),
        ) => Check::ok(NAME, format!("{source}, read without a system call")),
        Some(source @ ("hpet" | "acpi_pm" | "jiffies" | "xen")) => Check::slow(
            NAME,
            format!("{source}: reading the clock costs a system call or more"),
            "boot with clocksource=tsc; if tsc is unstable, the host has to be fixed",
        ),
        Some(other) => Check::unknown(NAME, other.to_owned(), "prefer tsc, which is fast"),
    }
}

/// Soft and hard value of one line of the process's limits; an inner `None` is "unlimited".
fn process_limit(root: &Path, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    limit_of(root, "self", name)
}

/// The open descriptors of another process, and how many it may have; `None` for what this user may not see.
pub(super) fn descriptors_of(root: &Path, process: i32) -> (Option<u64>, Option<u64>) {
    let list = fs::read_dir(root.join(format!("proc/{process}/fd")));
    let open = list.ok().map(|list| list.count() as u64);
    let limit = limit_of(root, &process.to_string(), "Max open files");
    (open, limit.and_then(|(soft, _)| soft))
}

fn limit_of(root: &Path, process: &str, name: &str) -> Option<(Option<u64>, Option<u64>)> {
    let text = read(root, &format!("proc/{process}/limits"))?;
    let values = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = values.split_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some((limit()?, limit()?))
}

/// A one-line file as a number.
pub(super) fn read_number(root: &Path, file: &str) -> Option<u64> {
    read(root, file)?.parse().ok()
}

fn read(root: &Path, file: &str) -> Option<String> {
    fs::read_to_string(root.join(file))
        .ok()
        .map(|text| text.trim().to_owned())
}

fn unreadable(name: &'static str, file: &str) -> Check {
    Check::unknown(name, format!("{file} cannot be read"), "")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::CheckResult::{self, Ok, Slow, Stop, Unknown};
    use super::*;

    /// A tree in the temporary folder with one file, removed when dropped.
    struct Tree(PathBuf);

    impl Tree {
        fn with(file: &str, content: &str) -> Tree {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("blitz-doctor-{}-{number}", std::process::id());
            let tree = Tree(std::env::temp_dir().join(name));
            tree.add(file, content);
            tree
        }

        fn add(&self, file: &str, content: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn verdict(check: fn(&Path) -> Check, file: &str, content: &str) -> CheckResult {
        let tree = Tree::with(file, content);
        let check = check(&tree.0);
        assert!(
            !matches!(check.verdict, Slow | Stop) || !check.advice.is_empty(),
            "{check:?} has no advice"
        );
        check.verdict
    }

    #[test]
    fn open_files_are_judged_by_the_hard_limit() {
        let limits = |hard: &str| {
            let header = "Limit Soft Hard Units\nMax cpu time unlimited unlimited seconds\n";
            let files = format!("{header}Max open files            32   {hard}   files\n");
            verdict(|root| nofile_for(2, root), "proc/self/limits", &files)
        };
        assert_eq!(limits("13"), Stop);
        assert_eq!(limits("14"), Slow);
        assert_eq!(limits("1024"), Slow);
        assert_eq!(limits("65536"), Ok);
        assert_eq!(limits("unlimited"), Ok);
        assert_eq!(limits("nonsense"), Unknown);
    }

    #[test]
    fn locked_memory_is_judged_in_bytes_where_the_kernel_counts_it() {
        let limits = |soft: &str, release: &str| {
            let text = format!("Max locked memory         {soft}    {soft}     bytes\n");
            let tree = Tree::with("proc/self/limits", &text);
            tree.add("proc/sys/kernel/osrelease", release);
            memlock(&tree.0).verdict
        };
        assert_eq!(limits("65536", "5.10.0-28-amd64\n"), Slow);
        assert_eq!(limits("65536", "5.12.3\n"), Ok);
        assert_eq!(limits("65536", "6.1-rc2\n"), Ok);
        assert_eq!(limits("65536", ""), Slow);
        assert_eq!(limits("8388608", "5.10.0"), Ok);
        assert_eq!(limits("unlimited", "5.10.0"), Ok);
    }

    #[test]
    fn a_short_backlog_is_slow() {
        assert_eq!(
            verdict(somaxconn, "proc/sys/net/core/somaxconn", "128\n"),
            Slow
        );
        assert_eq!(
            verdict(somaxconn, "proc/sys/net/core/somaxconn", "4096\n"),
            Ok
        );
        let file = "proc/sys/net/ipv4/tcp_max_syn_backlog";
        assert_eq!(verdict(tcp_max_syn_backlog, file, "512\n"), Slow);
    }

    #[test]
    fn a_small_packet_queue_is_slow_only_when_packets_dropped() {
        let judged = |dropped: &str| {
            let tree = Tree::with("proc/sys/net/core/netdev_max_backlog", "1000\n");
            let line = format!("0000a1b2 {dropped} 00000000\n");
            tree.add("proc/net/softnet_stat", &line);
            netdev_max_backlog(&tree.0).verdict
        };
        assert_eq!(judged("00000000"), Ok);
        assert_eq!(judged("0000000f"), Slow);
        let file = "proc/sys/net/core/netdev_max_backlog";
        assert_eq!(verdict(netdev_max_backlog, file, "1000\n"), Unknown);
    }

    #[test]
    fn governor_and_clock_source_are_judged_by_name() {
        let file = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        assert_eq!(verdict(governor, file, "performance\n"), Ok);
        assert_eq!(verdict(governor, file, "powersave\n"), Slow);
        assert_eq!(verdict(governor, "nothing/here", ""), Unknown);
        let file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        assert_eq!(verdict(clock_source, file, "tsc\n"), Ok);
        assert_eq!(verdict(clock_source, file, "hpet\n"), Slow);
        assert_eq!(verdict(clock_source, file, "sundial\n"), Unknown);
    }
}
