//! The files that an executable needs: the loader and the shared libraries that it names.
//!
//! A minimal reader of the 64-bit little-endian ELF format, with all offsets checked.

/// The files that have to exist for an executable to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Path of the dynamic loader (`PT_INTERP`).
    pub(crate) interpreter: Option<String>,
    /// Number of shared libraries (`DT_NEEDED`).
    pub(crate) libraries: usize,
}

const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NEEDED: u64 = 1;

/// Reads the program headers of an executable.
pub(crate) fn needs(file: &[u8]) -> Result<Needs, String> {
    if file.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err("not a 64-bit little-endian ELF file".to_owned());
    }
    let table = number(file, 32, 8)?;
    let entry_size = number(file, 54, 2)?;
    let count = number(file, 56, 2)?;

    let mut needs = Needs::default();
    for index in 0..count {
        let header = table + index * entry_size;
        let offset = number(file, header + 8, 8)?;
        let size = number(file, header + 32, 8)?;
        match number(file, header, 4)? {
            PT_INTERP => {
                let path = part(file, offset, size)?;
                let text = String::from_utf8_lossy(path);
                needs.interpreter = Some(text.trim_end_matches('\0').to_owned());
            }
            PT_DYNAMIC => {
                let entries = part(file, offset, size)?.chunks_exact(16);
                let tags = entries.map(|entry| number(entry, 0, 8));
                needs.libraries += tags.filter(|tag| *tag == Ok(DT_NEEDED)).count();
            }
            _ => {}
        }
    }
    Ok(needs)
}

fn number(file: &[u8], offset: u64, size: u64) -> Result<u64, String> {
    let bytes = part(file, offset, size)?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn part(file: &[u8], offset: u64, size: u64) -> Result<&[u8], String> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
    file.get(start..end)
        .ok_or_else(|| "the ELF file ends early".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_executable_names_its_loader_and_libraries() {
        // The test binary is linked dynamically.
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&file).unwrap();
        assert!(needs.interpreter.unwrap().contains("ld-linux"));
        assert!(needs.libraries > 0);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(needs(b"#!/bin/sh\n").is_err());
        assert!(needs(b"\x7fELF\x02\x01").is_err());
    }
}
