//! The cost of whole requests: instructions and allocations, counted by callgrind inside the turns of a simulated core
//! without those of the network, and the receives, sends and datagrams that the core counts itself.

mod arguments;
mod checker;
mod parts;
mod profile;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use self::arguments::{Arguments, Mode};
use self::checker::{Checker, Cost};

/// The reference counts.
const FILE: &str = "crates/simulate/counts.txt";

/// Largest increase of instructions over the reference, as a part of it. Allocators and libraries detect the processor,
/// and compilers differ: the reference is of one machine.
const INSTRUCTIONS_INCREASE_MAX: f64 = 0.04;

/// The same for all other counts, which no machine changes.
const INCREASE_MAX: f64 = 0.02;

/// The same for all counts of two revisions on one machine.
const AGAINST_INCREASE_MAX: f64 = 0.01;

/// Kinds that differ from another one in one thing.
struct Extra {
    /// The end of their names, without which they have the name of the other one.
    suffix: &'static str,
    /// Largest increase of their instructions over those of the other one.
    increase_max: f64,
    /// The other one, for people.
    other: &'static str,
}

const EXTRAS: [Extra; 4] = [
    // They go through a file with many sites.
    Extra {
        suffix: "-sites",
        increase_max: 0.02,
        other: "a flag",
    },
    // It hands records over: docs/decisions/records-and-responses.md.
    Extra {
        suffix: "-log",
        increase_max: 0.08,
        other: "the same without an access log",
    },
    // A known token, a limit and CORS, and a token with another signature each time: docs/access.md.
    Extra {
        suffix: "-policies",
        increase_max: 0.27,
        other: "the same without policies",
    },
    Extra {
        suffix: "-fresh",
        increase_max: 2.45,
        other: "the same without policies",
    },
];

/// With a part of the reference below this it is not the same that is counted, or the reference is old.
const PART_MIN: f64 = 0.8;

/// Runs `cargo xtask simulate --count`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some(arguments) = Arguments::parse(args) else {
        print!("{}", arguments::HELP);
        return ExitCode::from(2);
    };
    match carry_out(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask simulate --count: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no count is too high.
fn carry_out(arguments: &Arguments) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no parent folder")?;
    let checker = Checker::build(root)?;
    let kinds = wanted(&checker.kinds()?, &arguments.kinds)?;
    match &arguments.mode {
        Mode::Parts => {
            for kind in &kinds {
                parts::print(kind, &checker.parts_each(kind)?);
            }
            Ok(true)
        }
        Mode::Against(revision) => {
            let before = Checker::build_revision(root, revision)?;
            compare_all(&checker, &kinds, &against_gate, |kind| {
                before.cost_each(kind).map(Some)
            })
        }
        Mode::Write => write_all(&checker, &kinds, &root.join(FILE)),
        Mode::Compare => {
            let known = fs::read_to_string(root.join(FILE)).unwrap_or_default();
            if let Some(missing) = missing_kind(&known, &checker.kinds()?) {
                return Err(format!(
                    "{FILE} has {missing}, which the checker cannot count"
                ));
            }
            compare_all(&checker, &kinds, &file_gate, |kind| {
                Ok(known.lines().find_map(|line| reference(line, kind)))
            })
        }
    }
}

/// The kinds that were named, or all.
fn wanted(known: &[String], named: &[String]) -> Result<Vec<String>, String> {
    if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
        let known = known.join(", ");
        return Err(format!("there is no kind '{unknown}', only {known}"));
    }
    let wanted = |kind: &&String| named.is_empty() || named.contains(kind);
    Ok(known.iter().filter(wanted).cloned().collect())
}

fn write_all(checker: &Checker, kinds: &[String], file: &Path) -> Result<bool, String> {
    print_header();
    let mut text = String::new();
    checker.costs(kinds, |kind, each| {
        println!("{kind:<24}{}", columns(each));
        let counts = each[1..].iter().map(|count| format!(" {count:.3}"));
        text += &format!("{kind} {:.0}{}\n", each[0], counts.collect::<String>());
        Ok(())
    })?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(true)
}

fn compare_all(
    checker: &Checker,
    kinds: &[String],
    gate: &dyn Fn(Cost, Cost) -> CostChange,
    before: impl Fn(&str) -> Result<Option<Cost>, String>,
) -> Result<bool, String> {
    print_header();
    let mut is_good = true;
    let mut counted = Vec::new();
    checker.costs(kinds, |kind, each| {
        counted.push((kind.to_owned(), each[0]));
        let Some(before) = before(kind)? else {
            println!("{kind:<24}{}  {FILE} has no reference", columns(each));
            is_good = false;
            return Ok(());
        };
        let verdict = gate(each, before);
        let changes = changes(each, before);
        println!("{kind:<24}{}  {changes}{}", columns(each), verdict.text());
        is_good &= verdict == CostChange::Near;
        Ok(())
    })?;
    for extra in &EXTRAS {
        for (kind, increase) in extra.increases(&counted) {
            let is_high = increase > extra.increase_max;
            let verdict = if is_high { "  TOO HIGH" } else { "" };
            let percent = increase * 100.0;
            println!("{kind} above {}: {percent:.1} %{verdict}", extra.other);
            is_good &= !is_high;
        }
    }
    Ok(is_good)
}

impl Extra {
    /// By which part these kinds have more instructions than the others.
    fn increases<'k>(&self, counted: &'k [(String, f64)]) -> Vec<(&'k str, f64)> {
        let increase = |(kind, each): &'k (String, f64)| {
            let other = kind.strip_suffix(self.suffix)?;
            let (_, other) = counted.iter().find(|(kind, _)| kind == other)?;
            Some((kind.as_str(), each / other - 1.0))
        };
        counted.iter().filter_map(increase).collect()
    }
}

fn print_header() {
    let names = checker::NAMES.map(|name| format!("{name:>13}")).concat();
    println!("{:<24}{names}", "per request");
}

fn columns(each: Cost) -> String {
    let counts = each[1..].iter().map(|count| format!("{count:>13.3}"));
    format!("{:>13.0}{}", each[0], counts.collect::<String>())
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CostChange {
    Near,
    TooHigh,
    FarBelow,
}

impl CostChange {
    fn text(self) -> &'static str {
        match self {
            CostChange::Near => "",
            CostChange::TooHigh => "  TOO HIGH",
            CostChange::FarBelow => "  FAR BELOW: see what is counted, then write the reference",
        }
    }
}

/// Compares with the file.
fn file_gate(each: Cost, before: Cost) -> CostChange {
    let is_above = (each.iter().zip(before).enumerate()).any(|(place, (each, before))| {
        let increase_max = match place {
            0 => INSTRUCTIONS_INCREASE_MAX,
            _ => INCREASE_MAX,
        };
        *each > before * (1.0 + increase_max)
    });
    match (is_above, each[0] < before[0] * PART_MIN) {
        (true, _) => CostChange::TooHigh,
        (false, true) => CostChange::FarBelow,
        (false, false) => CostChange::Near,
    }
}

/// Compares with another revision. Less is always fine.
fn against_gate(each: Cost, before: Cost) -> CostChange {
    let is_above = |(each, before): (&f64, f64)| *each > before * (1.0 + AGAINST_INCREASE_MAX);
    match each.iter().zip(before).any(is_above) {
        true => CostChange::TooHigh,
        false => CostChange::Near,
    }
}

/// The changes of those counts that have changed, for people.
fn changes(each: Cost, before: Cost) -> String {
    let all = each.iter().zip(before).zip(checker::NAMES);
    let changes = all.filter_map(|((each, before), name)| {
        let change = each / before * 100.0 - 100.0;
        (change.abs() >= 0.05).then(|| format!("{name} {change:+.1} %"))
    });
    changes.collect::<Vec<String>>().join(", ")
}

/// A kind of the reference that is not counted any more. Without this check its gate would vanish
/// unnoticed.
fn missing_kind<'k>(known: &'k str, kinds: &[String]) -> Option<&'k str> {
    let mut names = known.lines().filter_map(|line| line.split(' ').next());
    names.find(|name| kinds.iter().all(|kind| kind != *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_own_gate() {
        let before = reference("h1 6000 3.000 1.000 2.500 0.000 0.000", "h1").unwrap();
        assert_eq!(before, [6_000.0, 3.0, 1.0, 2.5, 0.0, 0.0]);
        let with = |place: usize, count: f64| {
            let mut each = before;
            each[place] = count;
            each
        };
        assert_eq!(file_gate(before, before), CostChange::Near);
        let (most, more) = (
            [6_239.0, 3.05, 1.019, 2.549, 0.0, 0.0],
            [6_241.0, 3.07, 1.021, 2.551, 0.001, 0.001],
        );
        for place in 0..before.len() {
            assert_eq!(
                file_gate(with(place, most[place]), before),
                CostChange::Near
            );
            assert_eq!(
                file_gate(with(place, more[place]), before),
                CostChange::TooHigh
            );
        }
        assert_eq!(
            file_gate([4_801.0, 0.1, 0.1, 0.1, 0.0, 0.0], before),
            CostChange::Near
        );
        assert_eq!(file_gate(with(0, 4_799.0), before), CostChange::FarBelow);
        assert_eq!(reference("h1-1MiB 6000 1 1 1 1 1", "h1"), None);
        // A reference without the other counts gates nothing, so it is none.
        assert_eq!(reference("h1 6000 1", "h1"), None);
    }

    #[test]
    fn an_increase_of_one_percent_counts_on_the_same_machine() {
        let before = [6_000.0, 3.0, 1.0, 2.5, 0.0, 0.0];
        let each = |instructions| [instructions, 3.0, 1.0, 2.5, 0.0, 0.0];
        assert_eq!(against_gate(each(6_059.0), before), CostChange::Near);
        assert_eq!(against_gate(each(6_061.0), before), CostChange::TooHigh);
        assert_eq!(against_gate(each(3_000.0), before), CostChange::Near);
    }

    #[test]
    fn a_kind_that_is_not_counted_any_more_is_reported() {
        let known = "h1 100\nh1-1MiB 9000\n";
        let missing = |kinds: &[&str]| {
            let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
            missing_kind(known, &kinds)
        };
        assert_eq!(missing(&["h1", "h1-1MiB", "h2"]), None);
        assert_eq!(missing(&["h1-1MiB"]), Some("h1"));
        assert_eq!(missing(&[]), Some("h1"));
    }

    #[test]
    fn kinds_are_compared_with_the_same_requests_without_their_extra() {
        let counted = [("h1", 1_000.0), ("h1-sites", 1_030.0), ("h2-sites", 1.0)];
        let counted = counted.map(|(kind, each)| (kind.to_owned(), each));
        let increases = EXTRAS[0].increases(&counted);
        assert_eq!(increases.len(), 1);
        assert_eq!(increases[0].0, "h1-sites");
        assert!((increases[0].1 - 0.03).abs() < 1e-9);
    }

    #[test]
    fn kinds_can_be_chosen() {
        let known = ["h1".to_owned(), "h2".to_owned()];
        assert_eq!(wanted(&known, &[]).unwrap(), known);
        assert_eq!(wanted(&known, &["h2".to_owned()]).unwrap(), ["h2"]);
        assert!(wanted(&known, &["h4".to_owned()]).is_err());
    }
}
