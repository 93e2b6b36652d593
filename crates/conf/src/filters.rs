//! Directives that hand requests, answers or certificates to a filter that is not implemented:
//! adaptation, validators of certificates.
//!
//! Without the filter, the messages that it is there to stop would pass. So the file is refused,
//! unless `run_without` names the filter. The meaning of a line may depend on later lines
//! (`icap_enable`, `adaptation_access`, `run_without`): each line is an error at first, and a
//! smaller severity is set at the end.

use crate::diagnostics::{Diagnostics, Severity};
use crate::line::{Line, Token};
use crate::table::Directive;
use crate::types::MissingFilter;

/// The lines about filters so far.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    /// `icap_enable on` or `ecap_enable on`; the last line of each counts.
    icap: bool,
    ecap: bool,
    /// Some rule hands messages to a service.
    is_used: bool,
    reported: Vec<Reported>,
}

/// A line that was reported as an error, until it is known better.
#[derive(Debug)]
struct Reported {
    /// Index of its diagnostic.
    diagnostic: usize,
    filter: MissingFilter,
    /// Without the filter, messages would pass that must not. Otherwise the line is only a setting
    /// of the filter.
    decides: bool,
}

impl Filters {
    /// Takes a line of a directive that is not supported; false for other lines.
    pub(crate) fn take(&mut self, directive: &Directive, why: &str, line: &mut Line<'_>) -> bool {
        let name = line.name.clone();
        match directive.name {
            "icap_enable" | "ecap_enable" => {
                let on = !matches!(line.next(), Ok(Some(value)) if value.text == "off");
                if directive.name == "icap_enable" {
                    self.icap = on
                } else {
                    self.ecap = on
                }
                self.report(line, &name, MissingFilter::Adaptation, false, why);
            }
            "adaptation_access" | "icap_access" => {
                let words: Vec<_> = std::iter::from_fn(|| line.next().ok().flatten()).collect();
                self.is_used |=
                    words.get(1).is_none_or(|action| !action.text.eq_ignore_ascii_case("deny"));
                self.report(line, &name, MissingFilter::Adaptation, false, why);
            }
            "icap_service" | "ecap_service" => {
                let decides = !may_be_bypassed(line);
                self.report(line, &name, MissingFilter::Adaptation, decides, why);
            }
            "sslcrtvalidator_program" => {
                self.report(line, &name, MissingFilter::CertValidator, true, why);
            }
            "sslcrtvalidator_children" => {
                self.report(line, &name, MissingFilter::CertValidator, false, why);
            }
            other if ["icap_", "adaptation_"].iter().any(|start| other.starts_with(start)) => {
                self.report(line, &name, MissingFilter::Adaptation, false, why);
            }
            _ => return false,
        }
        true
    }

    fn report(
        &mut self,
        line: &mut Line<'_>,
        at: &Token,
        filter: MissingFilter,
        decides: bool,
        why: &str,
    ) {
        let what = if at.text == line.name.text {
            at.text.clone()
        } else {
            format!("{} {}", line.name.text, at.text)
        };
        let message = format!("`{what}` is not supported yet: {why}");
        let help = format!(
            "what it is there to stop would pass; write `run_without {}` to serve without it all the same",
            filter.name()
        );
        let diagnostic = line.report_index(at.error(message).with_help(help));
        self.reported.push(Reported { diagnostic, filter, decides });
    }

    /// Sets the severity of each line, given the whole file.
    pub(crate) fn settle(&self, run_without: &[MissingFilter], diagnostics: &mut Diagnostics) {
        let adapts = self.icap || self.ecap;
        for line in &self.reported {
            let is_adaptation = line.filter == MissingFilter::Adaptation;
            let severity = if is_adaptation && !adapts {
                Severity::Note
            } else if run_without.contains(&line.filter)
                || !line.decides
                || (is_adaptation && !self.is_used)
            {
                Severity::Warning
            } else {
                continue;
            };
            diagnostics.set_severity(line.diagnostic, severity);
            match severity {
                Severity::Note => diagnostics.set_message(
                    line.diagnostic,
                    "this has no effect: neither `icap_enable` nor `ecap_enable` is on".to_owned(),
                ),
                _ => diagnostics.clear_help(line.diagnostic),
            }
        }
    }
}

/// Whether messages may pass while a service is down: `bypass=on`, or `1` in the old form. By
/// default they may not.
fn may_be_bypassed(line: &mut Line<'_>) -> bool {
    let words: Vec<_> = std::iter::from_fn(|| line.next().ok().flatten()).collect();
    let bypass = |word: &Token| match word.text.as_str() {
        "bypass=on" | "bypass=1" => Some(true),
        "bypass=off" | "bypass=0" => Some(false),
        _ => None,
    };
    match words.iter().rev().find_map(bypass) {
        Some(bypass) => bypass,
        None => words.get(2).is_some_and(|word| word.text == "1"),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Severity, parse_str};

    /// Errors and warnings of a file.
    fn counts(text: &str) -> (usize, usize) {
        let (_, found) =
            parse_str("t", &format!("http_port 1\nhttp_access allow localhost\n{text}\n"));
        (found.count(Severity::Error), found.count(Severity::Warning))
    }

    #[test]
    fn a_filter_that_is_not_implemented_is_an_error_unless_the_file_wants_to_run_without_it() {
        let line = "sslcrtvalidator_program cache=8192 /usr/lib/squid/cert_valid.pl";
        assert_eq!(counts(line), (1, 0), "{line}");
        for text in [
            format!("{line}\nrun_without sslcrtvalidator_program"),
            format!("run_without sslcrtvalidator_program\n{line}"),
        ] {
            assert_eq!(counts(&text), (0, 1), "{text}");
        }
        let (_, found) = parse_str("t", &format!("http_port 1\n{line}\n"));
        assert!(found.render(false).contains("run_without sslcrtvalidator_program"));
        assert_eq!(counts("sslcrtvalidator_children 5"), (0, 1));
        assert_eq!(counts(&format!("{line}\nrun_without adaptation")), (1, 0));
        assert_eq!(counts("run_without url_rewrite"), (0, 1));
        assert_eq!(counts("run_without everything").0, 1);
    }

    #[test]
    fn a_service_that_may_not_be_bypassed_is_an_error_where_it_is_used() {
        let service = "icap_service s reqmod_precache icap://127.0.0.1:1344/x";
        let on = "icap_enable on\nadaptation_access s allow all";
        assert_eq!(counts(&format!("{on}\n{service}")), (1, 2));
        assert_eq!(counts(&format!("{service}\n{on}")), (1, 2));
        assert_eq!(counts(&format!("{service} bypass=off\n{on}")), (1, 2));
        assert_eq!(
            counts(&format!("icap_service s reqmod_precache 0 icap://127.0.0.1:1344/x\n{on}")),
            (1, 2)
        );
        assert_eq!(counts(&format!("{on}\n{service}\nrun_without adaptation")), (0, 3));
        assert_eq!(counts(&format!("{on}\n{service} bypass=on")), (0, 3));
        assert_eq!(
            counts(&format!("icap_service s reqmod_precache 1 icap://127.0.0.1:1344/x\n{on}")),
            (0, 3)
        );
        assert_eq!(
            counts(
                "ecap_enable on\necap_service s reqmod_precache ecap://x\nadaptation_access s allow all"
            ),
            (1, 2)
        );
    }

    #[test]
    fn adaptation_that_is_off_or_unused_is_no_error() {
        let service = "icap_service s reqmod_precache icap://127.0.0.1:1344/x";
        assert_eq!(
            counts(&format!("icap_enable off\n{service}\nadaptation_access s allow all")),
            (0, 0)
        );
        assert_eq!(
            counts(&format!("{service}\nadaptation_access s allow all\nicap_preview_enable on")),
            (0, 0)
        );
        assert_eq!(
            counts(&format!("icap_enable on\n{service}\nadaptation_access s deny all")),
            (0, 3)
        );
    }
}
