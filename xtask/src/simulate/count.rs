//! What whole requests cost: instructions, counted by callgrind inside the turns of a simulated core
//! without those of the network, and the receives and sends that the core counts itself.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The reference counts.
const FILE: &str = "crates/simulate/counts.txt";

/// Largest increase over the reference, as a part of it.
const INCREASE_MAX: f64 = 0.02;

/// With a part of the reference below this it is not the same that is counted, or the reference is old.
const PART_MIN: f64 = 0.8;

/// Requests of two runs, whose difference is the cost of requests in a warm process.
const FEWER: u64 = 1_600;
const MORE: u64 = 4_800;

/// The same for requests with large bodies.
const FEWER_LARGE: u64 = 32;
const MORE_LARGE: u64 = 96;

/// The functions that switch the collection of callgrind: on within a turn of a core, and off again within
/// what simulates the network for it. Its copies are those of the kernel, and make the most instructions of
/// a large body, whose number depends on the processor and its C library.
const COLLECTED: [&str; 3] = [
    "*step_once*",
    "*driver::sim::Sim::turn",
    "*driver::sim::Sim::receive_now",
];

const HELP: &str = "\
Instructions, receives and sends of whole requests, counted on a simulated machine with callgrind

  cargo xtask simulate --count            compares with crates/simulate/counts.txt
  cargo xtask simulate --count --write    writes that file
";

/// Runs `cargo xtask simulate --count`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let writes = match args {
        [] => false,
        [flag] if flag == "--write" => true,
        _ => {
            print!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match count_all(writes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask simulate --count: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts all kinds of requests; whether none is too high.
fn count_all(writes: bool) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no parent folder")?;
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "blitz-simulate",
        ])
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the checker does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let checker = target.join("release/blitz-simulate");
    let file = root.join(FILE);
    let known = fs::read_to_string(&file).unwrap_or_default();
    let listed = Command::new(&checker)
        .arg("--kinds")
        .output()
        .map_err(|error| format!("{}: {error}", checker.display()))?;
    let kinds = String::from_utf8_lossy(&listed.stdout);
    if let Some(missing) = missing_kind(&known, &kinds).filter(|_| !writes) {
        return Err(format!(
            "{FILE} has {missing}, which the checker cannot count"
        ));
    }
    let (mut text, mut is_good) = (String::new(), true);
    println!(
        "{:<18} {:>12} {:>9} {:>9}",
        "per request", "instructions", "receives", "sends"
    );
    for kind in kinds.lines() {
        let each = cost_each(&checker, kind)?;
        text += &format!("{kind} {:.0} {:.3} {:.3}\n", each[0], each[1], each[2]);
        let before = known.lines().find_map(|line| reference(line, kind));
        let verdict = match before {
            None if writes => String::new(),
            None => format!("  {FILE} has no reference"),
            Some(before) => compared(each, before),
        };
        println!(
            "{kind:<18} {:>12.0} {:>9.3} {:>9.3}{verdict}",
            each[0], each[1], each[2]
        );
        is_good &= writes || before.is_some_and(|before| is_near(each, before));
    }
    if writes {
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(is_good)
}

/// Instructions, receives and sends.
type Cost = [f64; 3];

/// The cost of one request in a warm process.
fn cost_each(checker: &Path, kind: &str) -> Result<Cost, String> {
    let (fewer, more) = match kind.contains("MiB") {
        true => (FEWER_LARGE, MORE_LARGE),
        false => (FEWER, MORE),
    };
    let (less, all) = (cost(checker, kind, fewer)?, cost(checker, kind, more)?);
    Ok(std::array::from_fn(|at| {
        (all[at] - less[at]) / (more - fewer) as f64
    }))
}

/// The counts that a line of the reference has for this kind.
fn reference(line: &str, kind: &str) -> Option<Cost> {
    let mut words = line.split(' ');
    if words.next() != Some(kind) {
        return None;
    }
    let counts: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
    counts.try_into().ok()
}

fn is_above(each: Cost, before: Cost) -> bool {
    (each.iter().zip(before)).any(|(each, before)| *each > before * (1.0 + INCREASE_MAX))
}

fn is_far_below(each: Cost, before: Cost) -> bool {
    each[0] < before[0] * PART_MIN
}

fn is_near(each: Cost, before: Cost) -> bool {
    !is_above(each, before) && !is_far_below(each, before)
}

/// The changes since the reference, for people.
fn compared(each: Cost, before: Cost) -> String {
    let change = |at: usize| each[at] / before[at] * 100.0 - 100.0;
    let verdict = match (is_above(each, before), is_far_below(each, before)) {
        (true, _) => "  TOO HIGH",
        (false, true) => "  FAR BELOW: see what is counted, then write the reference",
        (false, false) => "",
    };
    let (instructions, receives, sends) = (change(0), change(1), change(2));
    format!("  {instructions:+.1} %, {receives:+.1} %, {sends:+.1} %{verdict}")
}

/// A kind of the reference that is not counted any more. Without this check its gate would vanish
/// unnoticed.
fn missing_kind<'k>(known: &'k str, kinds: &str) -> Option<&'k str> {
    let mut names = known.lines().filter_map(|line| line.split(' ').next());
    names.find(|name| kinds.lines().all(|kind| kind != *name))
}

/// The cost of `requests` requests.
fn cost(checker: &Path, kind: &str, requests: u64) -> Result<Cost, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(COLLECTED.map(|function| format!("--toggle-collect={function}")))
        .arg(checker)
        .args(["--count", kind, "--requests", &requests.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install it"))?;
    let (printed, report) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let cost = [
        number_after(&report, "Collected : "),
        number_after(&printed, "receives "),
        number_after(&printed, "sends "),
    ];
    match cost {
        [Some(instructions), Some(receives), Some(sends)]
            if output.status.success() && instructions > 0.0 =>
        {
            Ok([instructions, receives, sends])
        }
        _ => Err(format!("{kind} could not be counted:\n{printed}{report}")),
    }
}

/// The number that follows `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_own_gate() {
        let before = reference("h1 6000 1.000 2.500", "h1").unwrap();
        assert_eq!(before, [6_000.0, 1.0, 2.5]);
        assert!(!is_above([6_119.0, 1.019, 2.549], before));
        assert!(is_above([6_121.0, 1.0, 2.5], before));
        assert!(is_above([5_000.0, 1.021, 2.5], before));
        assert!(is_above([5_000.0, 0.5, 2.551], before));
        assert!(is_near([4_801.0, 0.1, 0.1], before));
        assert!(!is_near([4_799.0, 1.0, 2.5], before));
        assert_eq!(reference("h1-1MiB 6000 1 1", "h1"), None);
        // A reference without receives and sends gates nothing, so it is none.
        assert_eq!(reference("h1 6000", "h1"), None);
    }

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let printed = "receives 96 sends 1440\n";
        assert_eq!(number_after(printed, "receives "), Some(96.0));
        assert_eq!(number_after(printed, "sends "), Some(1_440.0));
        assert_eq!(number_after(printed, "Collected : "), None);
    }

    #[test]
    fn a_kind_that_is_not_counted_any_more_is_reported() {
        let known = "h1 100\nh1-1MiB 9000\n";
        assert_eq!(missing_kind(known, "h1\nh1-1MiB\nh2\n"), None);
        assert_eq!(missing_kind(known, "h1-1MiB\n"), Some("h1"));
        assert_eq!(missing_kind(known, ""), Some("h1"));
    }
}
