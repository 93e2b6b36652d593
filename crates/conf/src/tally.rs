//! The sum of a configuration: how many of its directives work, and which do not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::table::{Directive, Status};

/// What has been found about the directives of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    works: usize,
    refused: usize,
    unknown: usize,
    /// Lines and reasons, by the name of the directive.
    ignored: BTreeMap<&'static str, (usize, &'static str)>,
    unsupported: BTreeMap<&'static str, (usize, &'static str)>,
    obsolete: BTreeMap<&'static str, (usize, &'static str)>,
}

impl Tally {
    /// A line with a directive that exists. `is_refused`: it has an error.
    pub(crate) fn add(&mut self, directive: &Directive, is_refused: bool) {
        let (group, why) = match directive.status {
            Status::Works if is_refused => return self.refused += 1,
            Status::Works => return self.works += 1,
            Status::Ignored(why) => (&mut self.ignored, why),
            Status::Unsupported(why) => (&mut self.unsupported, why),
            Status::Obsolete(advice) => (&mut self.obsolete, advice),
        };
        group.entry(directive.name).or_insert((0, why)).0 += 1;
    }

    /// A line whose first word is no directive.
    pub(crate) fn add_unknown(&mut self) {
        self.unknown += 1;
    }

    /// The sum for people.
    pub(crate) fn render(&self) -> String {
        let Self { works, refused, unknown, ignored, unsupported, obsolete } = self;
        let mut out = format!("{works} lines work\n");
        for (group, title) in [
            (ignored, "have no effect here"),
            (unsupported, "are not supported yet"),
            (obsolete, "no longer exist in Squid"),
        ] {
            let lines: usize = group.values().map(|(count, _)| count).sum();
            let _ = writeln!(out, "{lines} lines {title}{}", if lines > 0 { ":" } else { "" });
            for (name, (count, why)) in group {
                let times = if *count > 1 { format!(" ({count} lines)") } else { String::new() };
                let _ = writeln!(out, "  {name}{times}: {why}");
            }
        }
        let _ = writeln!(out, "{refused} lines are refused, {unknown} are no directives");
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::parse_str;

    #[test]
    fn the_sum_of_a_file() {
        let text = "http_port 1\nhttp_access allow all\nacl a src 1.2.3.4\nhttp_access maybe all\n\
                    ftp_port 443\nftp_port 444\nno_such_word 1\n";
        let (_, found) = parse_str("t", text);
        let sum = found.summary();
        assert!(sum.starts_with("3 lines work\n"), "{sum}");
        assert!(sum.contains("2 lines are not supported yet:\n  ftp_port (2 lines): "), "{sum}");
        assert!(sum.ends_with("1 lines are refused, 1 are no directives\n"), "{sum}");
    }

    #[test]
    fn an_error_that_turns_out_to_be_none_is_none() {
        let text = "http_port 1\nhttp_access allow all\nicap_service s reqmod_precache icap://h/s\n\
                    adaptation_access s allow all\n";
        assert!(!parse_str("t", text).1.has_errors(), "ICAP is off");
        assert!(parse_str("t", &format!("icap_enable on\n{text}")).1.has_errors());
    }
}
