//! The names of lines beside a plot: never cut, so that no two of them look alike.

/// The names as they stand beside a plot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The parts that all names have in common, in lines; none if there are none.
    pub(crate) common: Vec<String>,
    /// For each line its name without them, in lines.
    pub(crate) own: Vec<Vec<String>>,
}

impl Names {
    /// Of these full names, in lines of at most `chars_max` characters.
    pub(crate) fn of(names: &[&str], chars_max: usize) -> Self {
        let common = common_parts(names);
        let own = names.iter().map(|name| {
            let parts = parts(name).into_iter().filter(|part| !common.contains(part));
            lines(&parts.collect::<Vec<_>>().join(SEPARATOR), chars_max)
        });
        Self { own: own.collect(), common: lines(&common.join(SEPARATOR), chars_max) }
    }

    /// Characters of the longest line.
    pub(crate) fn width(&self) -> usize {
        let lines = self.own.iter().flatten().chain(&self.common);
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// Number of lines of text.
    pub(crate) fn height(&self) -> usize {
        self.common.len() + self.own.iter().map(Vec::len).sum::<usize>()
    }
}

/// Between the parts of a name.
const SEPARATOR: &str = ", ";

/// The parts of a name: subject, conditions, state.
fn parts(name: &str) -> Vec<&str> {
    name.split(" · ")
        .flat_map(|part| part.split(SEPARATOR))
        .filter(|part| !part.is_empty())
        .collect()
}

/// The parts that all names have, as long as each name keeps a part of its own.
fn common_parts<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let Some((first, others)) = names.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Vec::new();
    };
    let others: Vec<Vec<&str>> = others.iter().map(|name| parts(name)).collect();
    let first = parts(first);
    let is_common = |part: &&str| others.iter().all(|other| other.contains(part));
    let common: Vec<&str> = first.iter().copied().filter(is_common).collect();
    let has_own =
        |all: &Vec<&str>| all.iter().any(|part| !common.iter().any(|shared| shared == part));
    if has_own(&first) && others.iter().all(has_own) { common } else { Vec::new() }
}

/// A text in lines, broken between words, or within one that is longer than a line.
fn lines(text: &str, chars_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut rest: Vec<char> = word.chars().collect();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + rest.len() <= chars_max => {
                line.push(' ');
                line.push_str(word);
                continue;
            }
            _ => {}
        }
        while !rest.is_empty() {
            let part = rest.drain(..rest.len().min(chars_max.max(1)));
            lines.push(part.collect());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_common_part_stands_once_and_the_differences_are_kept() {
        let names = [
            "humboldt:ufs · in transit in memory · cache empty",
            "humboldt:ufs · in transit in memory · cache full",
            "humboldt:ufs · in transit on disk · cache empty",
            "humboldt:ufs · in transit on disk · cache full",
        ];
        let found = Names::of(&names, 20);
        assert_eq!(found.common, ["humboldt:ufs"]);
        assert_eq!(found.own[0], ["in transit in", "memory, cache empty"]);
        assert_eq!(found.own.iter().collect::<BTreeSet<_>>().len(), 4, "{found:?}");
        assert_eq!((found.width(), found.height()), (19, 9));
    }

    #[test]
    fn nothing_is_cut_and_nothing_becomes_empty() {
        let long = "squid:aufs-with-a-name-of-more-than-a-line";
        let found = Names::of(&[long, "squid:aufs"], 10);
        assert_eq!(found.own[0].concat(), long);
        assert!(found.own[0].iter().all(|line| line.chars().count() <= 10), "{found:?}");
        let alike = Names::of(&["squid:aufs, ext4", "squid:aufs"], 20);
        assert_eq!(alike.own, [["squid:aufs, ext4"], ["squid:aufs"]]);
        assert_eq!(Names::of(&["answers/s"], 20).own, [["answers/s"]]);
        assert_eq!(Names::of(&[], 20), Names::default());
    }
}
