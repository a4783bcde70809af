//! The output of callgrind: the instructions of each function, by source file, and the calls of some functions.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::AddAssign;

/// The instructions of a run, and where they are in memory.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) instructions: HashMap<CodeLocation, u64>,
    /// By function: how often the instruction at its lowest address was executed, and that address.
    entries: HashMap<String, (u64, u64)>,
}

/// Where instructions are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct CodeLocation {
    /// The source file of the instructions, which were perhaps inlined.
    pub(super) file: String,
    /// The source file of their function.
    pub(super) function_file: String,
    pub(super) function: String,
}

impl Profile {
    /// Reads callgrind's format, with the addresses of instructions. Unknown lines are skipped.
    pub(super) fn parse(text: &str) -> Profile {
        let mut profile = Profile::default();
        let (mut files, mut functions) = (Names::default(), Names::default());
        let (mut place, mut address) = (CodeLocation::default(), 0);
        let mut is_call = false;
        for line in text.lines() {
            if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let mut words = line.split(' ');
                address = moved(address, words.next().unwrap_or_default());
                let cost = words.nth(1).and_then(|cost| cost.parse().ok());
                // The line behind `calls=` has the instructions of the called function.
                if let (Some(cost), false) = (cost, std::mem::take(&mut is_call)) {
                    add(&mut profile.instructions, &place, cost);
                    profile.note_entry(&place.function, address, cost);
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            match key {
                "fl" => {
                    place.file = files.resolve(value);
                    place.function_file.clone_from(&place.file);
                }
                "fi" | "fe" => place.file = files.resolve(value),
                // They number the same files.
                "cfi" | "cfl" => drop(files.resolve(value)),
                "fn" => place.function = functions.resolve(value),
                "cfn" => drop(functions.resolve(value)),
                "calls" => is_call = true,
                _ => {}
            }
        }
        profile
    }

    fn note_entry(&mut self, function: &str, address: u64, executed: u64) {
        match self.entries.get_mut(function) {
            Some((_, lowest)) if *lowest < address => {}
            Some((known, lowest)) if *lowest == address => *known += executed,
            Some(entry) => *entry = (executed, address),
            None => {
                let entry = (executed, address);
                self.entries.insert(function.to_owned(), entry);
            }
        }
    }

    /// Calls of a function that begins at its lowest address and never returns there. Callgrind's own number of calls
    /// has also those that it does not collect.
    pub(super) fn calls(&self, function: &str) -> u64 {
        self.entries.get(function).map_or(0, |(calls, _)| *calls)
    }

    /// The instructions of all places.
    pub(super) fn total(&self) -> u64 {
        self.instructions.values().sum()
    }
}

/// The address of a line, which may be relative to that of the line before.
fn moved(before: u64, position: &str) -> u64 {
    let (sign, rest) = position.split_at(position.len().min(1));
    let step = || rest.parse().unwrap_or(0);
    match sign {
        "*" => before,
        "+" => before.saturating_add(step()),
        "-" => before.saturating_sub(step()),
        _ => u64::from_str_radix(position.trim_start_matches("0x"), 16).unwrap_or(before),
    }
}

/// Adds to the number of a key.
pub(super) fn add<K: Hash + Eq + Clone, N: AddAssign + Default>(
    all: &mut HashMap<K, N>,
    key: &K,
    number: N,
) {
    match all.get_mut(key) {
        Some(known) => *known += number,
        None => drop(all.insert(key.clone(), number)),
    }
}

/// Names that are written out once, and numbers later: `(7) name`, then `(7)`.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn resolve(&mut self, value: &str) -> String {
        let Some((number, name)) = value.split_once(')') else {
            return value.to_owned();
        };
        match name.trim_start() {
            "" => self.0.get(number).cloned().unwrap_or_default(),
            name => {
                self.0.insert(number.to_owned(), name.to_owned());
                name.to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_calls_are_not_those_of_the_caller() {
        let text = "\
positions: instr line
events: Ir

ob=(1) /bin/program
fl=(1) main.rs
fn=(1) main
0x4000 16 400
fi=(2) inlined.rs
+4 +1 5
fe=(1)
cfi=(3) malloc.c
cob=(2) libc.so
cfn=(2) malloc
calls=9 0x9000 50
* * 300
-2 -1 7

ob=(2)
fl=(3)
fn=(2)
0x9008 51 290
-8 50 3
+4 * 3
* 52 4
totals: 712
";
        let profile = Profile::parse(text);
        let at = |file: &str, function_file: &str, function: &str| {
            let (file, function_file) = (file.to_owned(), function_file.to_owned());
            let function = function.to_owned();
            profile.instructions[&CodeLocation {
                file,
                function_file,
                function,
            }]
        };
        assert_eq!(at("main.rs", "main.rs", "main"), 407);
        assert_eq!(at("inlined.rs", "main.rs", "main"), 5);
        assert_eq!(at("malloc.c", "malloc.c", "malloc"), 300);
        assert_eq!(profile.total(), 712);
        // Those that were collected, and not the nine.
        assert_eq!(profile.calls("malloc"), 3);
        assert_eq!(profile.calls("free"), 0);
    }
}
