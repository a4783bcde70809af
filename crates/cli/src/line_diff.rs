//! The lines that differ between two texts.

/// Lines of the parts that differ, multiplied; for larger ones all old lines come before all new ones.
const CELLS_MAX: usize = 4_000_000;

/// The lines that are gone (`-`) and those that are new (`+`), without the lines that stay.
pub(crate) fn of(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[start..], &new[start..]);
    let ends = old.iter().rev().zip(new.iter().rev());
    let end = ends.take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let mut text = String::new();
    let mut add = |sign: char, line: &str| text += &format!("{sign} {line}\n");
    if old.len().saturating_mul(new.len()) > CELLS_MAX {
        old.iter().for_each(|line| add('-', line));
        new.iter().for_each(|line| add('+', line));
        return text;
    }
    let common = common(old, new);
    let (mut a, mut b) = (0, 0);
    while a < old.len() || b < new.len() {
        match (old.get(a), new.get(b)) {
            (Some(one), Some(other)) if one == other => (a, b) = (a + 1, b + 1),
            (Some(line), _) if b == new.len() || common[a + 1][b] >= common[a][b + 1] => {
                add('-', line);
                a += 1;
            }
            (_, line) => {
                add('+', line.unwrap_or(&""));
                b += 1;
            }
        }
    }
    text
}

/// How many lines the ends of both texts have in common, from each pair of lines on.
fn common(old: &[&str], new: &[&str]) -> Vec<Vec<u32>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            common[a][b] = match old[a] == new[b] {
                true => common[a + 1][b + 1] + 1,
                false => common[a + 1][b].max(common[a][b + 1]),
            };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_stay_are_not_shown() {
        assert_eq!(of("a\nb\nc\n", "a\nc\n"), "- b\n");
        assert_eq!(of("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"), "- b\n+ x\n+ y\n");
        assert_eq!(of("a\n", "a\n"), "");
        assert_eq!(of("", "a\n"), "+ a\n");
        assert_eq!(of("a\nb\n", "b\na\n"), "- a\n+ a\n");
    }
}
