//! Definitions and rules from text.

use humboldt_conf::{AccessRule, AclDef, AclFlags, AclKind, AclTerm, Location};

/// Definitions, one a line; the configuration's own reader is tested in its own crate.
pub(crate) fn definitions(text: &str) -> Vec<AclDef> {
    let mut defined: Vec<AclDef> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, kind) = (words[1], AclKind::from_name(words[2]).expect("a kind"));
        let flags = AclFlags { no_lookup: words.get(3) == Some(&"-n"), ..AclFlags::default() };
        let rest = words[3..].iter().filter(|word| **word != "-n").map(ToString::to_string);
        let values: Vec<String> = if kind == AclKind::AllOf {
            vec![rest.collect::<Vec<_>>().join(" ")]
        } else {
            rest.collect()
        };
        match defined.iter_mut().find(|definition| definition.name.eq_ignore_ascii_case(name)) {
            Some(definition) => definition.values.extend(values),
            None => {
                let line = u32::try_from(index).expect("few lines");
                let location = Location { file: "squid.conf".into(), line, column: 5 };
                let annotations = Vec::new();
                let name = name.into();
                defined.push(AclDef { name, kind, flags, values, annotations, location });
            }
        }
    }
    defined
}

/// Rules, one a line.
pub(crate) fn access_rules(text: &str) -> Vec<AccessRule> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let allow = words.next() == Some("allow");
            let term = |word: &str| AclTerm {
                name: word.trim_start_matches('!').into(),
                negated: word.starts_with('!'),
            };
            AccessRule { allow, terms: words.map(term).collect(), source: None }
        })
        .collect()
}
