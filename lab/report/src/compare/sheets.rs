//! The division of many settings over several drawings: by family or scheme, not by rank, so that
//! those that a reader compares are in one drawing.

use super::groups::Group;
use crate::plot::LOOKS;

/// Families of no more settings than this share a drawing.
const SMALL: usize = 2;

/// Settings that are drawn together: never more than there are looks, and never none.
#[derive(Debug)]
pub(crate) struct Sheet<'a> {
    /// Families or subjects.
    pub(crate) name: String,
    /// In the order of the page.
    pub(crate) groups: Vec<&'a Group<'a>>,
}

/// All settings, in as few drawings as possible.
pub(crate) fn sheets<'a>(groups: &'a [Group<'a>]) -> Vec<Sheet<'a>> {
    if groups.len() <= LOOKS {
        return vec![Sheet { name: String::new(), groups: groups.iter().collect() }];
    }
    let mut sheets: Vec<Sheet<'a>> = Vec::new();
    let mut small: Vec<Sheet<'a>> = Vec::new();
    for family in by(groups.iter().collect(), |group| family(&group.first().plan.subject)) {
        if family.groups.len() <= SMALL {
            small.push(family);
        } else if family.groups.len() <= LOOKS {
            sheets.push(family);
        } else {
            let schemes = by(family.groups, |group| &group.first().plan.subject);
            sheets.extend(packed(schemes.into_iter().flat_map(pieces).collect()));
        }
    }
    sheets.extend(packed(small));
    sheets
}

fn family(subject: &str) -> &str {
    subject.split(':').next().unwrap_or(subject)
}

/// Groups with the same name together, in the order of the first of each.
fn by<'a>(groups: Vec<&'a Group<'a>>, name: impl Fn(&'a Group<'a>) -> &'a str) -> Vec<Sheet<'a>> {
    let mut sheets: Vec<Sheet<'a>> = Vec::new();
    for group in groups {
        let name = name(group);
        match sheets.iter_mut().find(|sheet| sheet.name == name) {
            Some(sheet) => sheet.groups.push(group),
            None => sheets.push(Sheet { name: name.to_owned(), groups: vec![group] }),
        }
    }
    sheets
}

/// A sheet that has more settings than there are looks, in pieces.
fn pieces(sheet: Sheet<'_>) -> Vec<Sheet<'_>> {
    let Sheet { name, groups } = sheet;
    if groups.len() <= LOOKS {
        return vec![Sheet { name, groups }];
    }
    let numbered = groups.chunks(LOOKS).enumerate();
    numbered
        .map(|(index, some)| Sheet {
            name: format!("{name} ({})", index + 1),
            groups: some.to_vec(),
        })
        .collect()
}

/// Neighbours together as long as they fit.
fn packed(sheets: Vec<Sheet<'_>>) -> Vec<Sheet<'_>> {
    let mut packed: Vec<Sheet<'_>> = Vec::new();
    for sheet in sheets {
        match packed.last_mut() {
            Some(last) if last.groups.len() + sheet.groups.len() <= LOOKS => {
                last.name = format!("{}, {}", last.name, sheet.name);
                last.groups.extend(sheet.groups);
            }
            _ => packed.push(sheet),
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::super::groups::groups;
    use super::*;
    use crate::synthetic;
    use crate::testing::CACHE_BYTES;
    use humboldt_lab_record::Run;

    fn runs(subjects: &[(&str, u32)]) -> Vec<Run> {
        let all = subjects.iter().flat_map(|(subject, count)| {
            (0..*count).map(move |index| (*subject, format!("variant {index}")))
        });
        all.map(|(subject, variant)| synthetic::run(subject, &variant, 50.0, CACHE_BYTES, 3, 1))
            .collect()
    }

    #[test]
    fn families_stay_together_and_no_drawing_has_too_many_lines() {
        let few = runs(&[("squid:ufs", 3), ("nginx", 5)]);
        assert_eq!(sheets(&groups(&few)).len(), 1);
        let many = runs(&[
            ("squid:ufs", 6),
            ("humboldt:ring", 5),
            ("squid:aufs", 11),
            ("nginx", 1),
            ("varnish", 1),
        ]);
        let groups = groups(&many);
        let sheets = sheets(&groups);
        let mut names: Vec<&str> = sheets.iter().map(|sheet| sheet.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.contains(&"humboldt"), "{names:?}");
        assert!(
            names.contains(&"nginx, varnish") || names.contains(&"varnish, nginx"),
            "{names:?}"
        );
        assert!(names.iter().any(|name| name.contains("squid:aufs (1)")), "{names:?}");
        assert!(sheets.iter().all(|sheet| (1..=LOOKS).contains(&sheet.groups.len())));
        assert_eq!(sheets.iter().map(|sheet| sheet.groups.len()).sum::<usize>(), groups.len());
    }
}
