//! `access_log`, `logformat` and the paths of other logs.

use super::access::read_terms;
use super::{Kind, units};
use crate::diagnostics::{Problem, Severity};
use crate::line::{Line, Token};
use crate::log_codes::LogCode;
use crate::log_format::{LogPart, log_parts};
use crate::types::{AccessLog, LogFormat};

/// Formats that exist without a definition.
const BUILT_IN_FORMATS: [&str; 5] = ["squid", "common", "combined", "referrer", "useragent"];

/// `access_log` lines.
pub(crate) struct AccessLogs;
/// `logformat` definitions.
pub(crate) struct LogFormats;
/// Path of a log, perhaps with `stdio:` or `daemon:` in front; `none` is nothing.
pub(crate) struct LogPath;
/// `SECTION,LEVEL` words; the last line counts.
pub(crate) struct DebugOptions;

impl Kind for AccessLogs {
    type Out = Vec<AccessLog>;
    const NAME: &'static str = "access log";

    fn apply(out: &mut Vec<AccessLog>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a place to write to")?;
        let place = split_place(&token)?;
        let mut log = AccessLog { place: None, format: "squid".to_owned(), terms: Vec::new() };
        if place != Place::Nowhere {
            read_format_and_options(&mut log, line)?;
        }
        log.terms = read_terms(line)?;
        match place {
            Place::Nowhere => {}
            Place::File(path) => log.place = Some(path),
            Place::Elsewhere => {
                let why = format!(
                    "`{}`: logs are only written to files so far; this one is not written",
                    token.text
                );
                line.warn(&token, why, Some("write a path, or `stdio:/dev/stdout`"));
                return Ok(());
            }
        }
        out.push(log);
        Ok(())
    }
}

/// The destination of a log.
#[derive(PartialEq, Eq)]
enum Place {
    /// `none`
    Nowhere,
    /// A path; also `stdio:` and `daemon:`, as logs are written by a thread of the program.
    File(String),
    /// `syslog:`, `udp:` or `tcp:`.
    Elsewhere,
}

/// Splits `module:place`.
fn split_place(token: &Token) -> Result<Place, Problem> {
    let text = token.text.as_str();
    if text == "none" {
        return Ok(Place::Nowhere);
    }
    if text == "syslog" || ["syslog:", "udp:", "tcp:"].iter().any(|module| text.starts_with(module))
    {
        return Ok(Place::Elsewhere);
    }
    let path = text.strip_prefix("stdio:").or_else(|| text.strip_prefix("daemon:")).unwrap_or(text);
    if path.is_empty() {
        return Err(token.error("the place to write to is missing after the module"));
    }
    Ok(Place::File(path.to_owned()))
}

/// Either options (`name=value`) or the name of a format may stand between the place and the ACLs.
fn read_format_and_options(log: &mut AccessLog, line: &mut Line<'_>) -> Result<(), Problem> {
    if let Some(token) = line.peek()
        && is_format(&token.text, line)
    {
        line.next()?;
        log.format = token.text;
        return Ok(());
    }
    while let Some(token) = line.peek() {
        let Some((name, value)) = token.text.split_once('=') else { return Ok(()) };
        line.next()?;
        let idle = IDLE_OPTIONS.iter().find(|option| option.name == name);
        match (name, idle) {
            ("logformat", _) if is_format(value, line) => log.format = value.to_owned(),
            ("logformat", _) => {
                return Err(token.error(format!("no log format is named `{value}`")));
            }
            (_, Some(option)) if (option.takes)(value) => {
                line.warn(&token, format!("`{name}` has no effect: {}", option.why), None);
            }
            // As it is.
            ("on-error", _) if value == "drop" => {}
            _ => {
                return Err(
                    token.error(format!("`{}` is not an option of `access_log`", token.text))
                );
            }
        }
    }
    Ok(())
}

/// An option of `access_log` that changes nothing.
struct IdleOption {
    name: &'static str,
    /// Tells a value that the option may have.
    takes: fn(&str) -> bool,
    /// The reason, for the warning.
    why: &'static str,
}

const IDLE_OPTIONS: [IdleOption; 3] = [
    IdleOption {
        name: "rotate",
        takes: |value| value.parse::<u32>().is_ok(),
        why: "all logs keep as many old files as `logfile_rotate` says",
    },
    IdleOption {
        name: "buffer-size",
        takes: |value| units::parse_size(value).is_some(),
        why: "each core has a buffer of 4 MB at most, which is written within a second",
    },
    IdleOption {
        name: "on-error",
        takes: |value| value == "die",
        why: "lines that cannot be written are dropped and counted",
    },
];

fn is_format(name: &str, line: &Line<'_>) -> bool {
    BUILT_IN_FORMATS.contains(&name) || line.state.log_formats.contains(name)
}

impl Kind for LogFormats {
    type Out = Vec<LogFormat>;
    const NAME: &'static str = "name and format";

    fn apply(out: &mut Vec<LogFormat>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("the name of the format")?;
        let format = line.rest()?.ok_or_else(|| line.missing("the format"))?;
        if BUILT_IN_FORMATS.contains(&name.text.as_str())
            || line.state.log_formats.contains(&name.text)
        {
            line.warn(
                &name,
                format!("`{}` is already defined; this line is ignored", name.text),
                None,
            );
            return Ok(());
        }
        check_log_format(&format, line);
        line.state.log_formats.insert(name.text.clone());
        out.push(LogFormat { name: name.text, format: format.text });
        Ok(())
    }
}

/// Reports the parts of a format that cannot be written, each at its position.
pub(super) fn check_log_format(format: &Token, line: &mut Line<'_>) {
    for problem in log_parts(&format.text).1 {
        let (start, len) = (format.at.start, format.at.len());
        // In quotes the text is not where it was.
        let at = match format.quoted || len != format.text.len() {
            true => format.at.clone(),
            false => start + problem.at.start..start + problem.at.end,
        };
        let severity = if problem.is_error { Severity::Error } else { Severity::Warning };
        line.report(Problem { severity, at, message: problem.message, help: None });
    }
}

/// As [`check_log_format`], for a value that is made before the request is answered.
pub(super) fn check_early_log_format(format: &Token, line: &mut Line<'_>) {
    check_log_format(format, line);
    let (parts, _) = log_parts(&format.text);
    let late = |part: &LogPart<'_>| match part {
        LogPart::Value(value) => value.code.is_some_and(LogCode::is_of_the_answer),
        LogPart::Text(_) => false,
    };
    if parts.iter().any(late) {
        let help = "use codes of the request here; those of the answer are for logs and `note`";
        let what = "a code of this format is not known before the answer: `-` is written";
        line.warn(format, what, Some(help));
    }
}

impl Kind for LogPath {
    type Out = Option<String>;
    const NAME: &'static str = "path or `none`";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a path")?;
        *out = match split_place(&token)? {
            Place::Nowhere => None,
            Place::File(path) => Some(path),
            Place::Elsewhere => return Err(token.error("this log can only be written to a file")),
        };
        Ok(())
    }
}

impl Kind for DebugOptions {
    type Out = Vec<String>;
    const NAME: &'static str = "sections and levels";

    fn apply(out: &mut Vec<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut words = Vec::new();
        let mut next = Some(line.expect("`ALL,LEVEL`")?);
        while let Some(token) = next {
            if is_debug_option(&token.text) {
                words.push(token.text);
            } else {
                let why = format!("`{}` is not a section and a level: it is ignored", token.text);
                line.warn(&token, why, Some("write `ALL,1`, with a level from 0 to 9"));
            }
            next = line.next()?;
        }
        *out = words;
        Ok(())
    }
}

/// `ALL,LEVEL`, `NUMBER,LEVEL` or `rotate=NUMBER`.
fn is_debug_option(text: &str) -> bool {
    if let Some(number) = text.strip_prefix("rotate=") {
        return number.parse::<u32>().is_ok();
    }
    text.split_once(',').is_some_and(|(section, level)| {
        let known = section.eq_ignore_ascii_case("ALL") || section.parse::<u16>().is_ok();
        known && level.parse::<u8>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use crate::{Config, Severity, parse_str};

    fn parse(text: &str) -> Result<Config, String> {
        let (config, found) = parse_str("t", &format!("http_port 1\n{text}\n"));
        if found.has_errors() { Err(found.render_from(false, Severity::Error)) } else { Ok(config) }
    }

    #[test]
    fn every_form_of_access_log() {
        let text = "logformat mine %>a \"%rm\" # not a comment\n\
                    access_log /var/log/a.log mine CONNECT\n\
                    access_log stdio:/dev/stdout logformat=combined buffer-size=64KB rotate=3 on-error=drop all\n\
                    access_log daemon:/var/log/b.log squid\n\
                    access_log udp://127.0.0.1:514 common\n\
                    access_log /var/log/c.log !CONNECT\n\
                    access_log none localhost";
        let config = parse(text).expect("parses");
        assert_eq!(config.logformat[0].format, "%>a \"%rm\" # not a comment");
        let logs = &config.access_log;
        let place = |index: usize| logs[index].place.as_deref();
        assert_eq!((logs[0].format.as_str(), logs[0].terms.len()), ("mine", 1));
        assert_eq!((place(1), logs[1].format.as_str()), (Some("/dev/stdout"), "combined"));
        assert_eq!(place(2), Some("/var/log/b.log"));
        assert_eq!(place(3), Some("/var/log/c.log"), "a log over the network is left out");
        assert!(logs[3].terms[0].negated && logs[3].format == "squid");
        assert_eq!((place(4), logs[4].terms.len()), (None, 1));
    }

    #[test]
    fn what_an_access_log_cannot_do_is_said() {
        let warnings = |text: &str| {
            let text = format!("http_port 1\nhttp_access allow all\naccess_log {text}\n");
            parse_str("t", &text).1.count(Severity::Warning)
        };
        assert_eq!(warnings("/a logformat=common on-error=drop"), 0);
        assert_eq!(warnings("/a rotate=3 buffer-size=64KB on-error=die all"), 3);
        assert_eq!(warnings("syslog:daemon.info squid"), 1);
        assert_eq!(warnings("tcp://127.0.0.1:514"), 1);
        assert_eq!(warnings("access.log"), 1, "relative, and below nothing");
        assert_eq!(warnings("access.log\ncoredump_dir /x"), 0);
    }

    #[test]
    fn a_code_without_a_value_is_a_warning_and_one_that_is_none_an_error() {
        let found = |format: &str| {
            let text =
                format!("http_port 1\nhttp_access allow all\nlogformat x %ts {format} %ru\n");
            let (_, found) = parse_str("t", &text);
            (found.count(Severity::Error), found.count(Severity::Warning), found.render(false))
        };
        let (errors, warnings, text) = found("%sn");
        assert!((errors, warnings) == (0, 1) && text.contains("t:3:17"), "{text}");
        assert_eq!(found("%master_xaction %ssl::>sni %{x}ui %<h").1, 4);
        assert_eq!(found("%zz").0, 1);
        let add = "request_header_add X \"%>a %sn %zz\" all";
        let (_, found) = parse_str("t", &format!("http_port 1\nhttp_access allow all\n{add}\n"));
        assert_eq!((found.count(Severity::Error), found.count(Severity::Warning)), (1, 1));
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "access_log",
            "access_log stdio:",
            "access_log /a nothing",
            "access_log /a rotate=x all",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("access_log /a logformat=nothing").is_err());
    }

    #[test]
    fn the_first_line_replaces_the_default_and_other_logs_may_be_none() {
        assert_eq!(parse("").expect("parses").access_log.len(), 1);
        let config = parse("cache_access_log /dev/null\ncache_store_log none\ncache_log stdio:/x")
            .expect("parses");
        assert_eq!(
            (config.access_log.len(), config.access_log[0].place.as_deref()),
            (1, Some("/dev/null"))
        );
        assert_eq!((config.cache_store_log, config.cache_log), (None, Some("/x".to_owned())));
    }

    #[test]
    fn debug_levels_are_kept_and_what_is_none_is_a_warning() {
        let text = "http_port 1\nhttp_access allow all\ndebug_options ALL,1 33,2 rotate=1 loud\n";
        let (config, found) = crate::parse_str("t", text);
        assert_eq!(config.debug_options, ["ALL,1", "33,2", "rotate=1"]);
        assert_eq!(found.count(crate::Severity::Warning), 1, "{}", found.render(false));
        assert_eq!(crate::parse_str("t", "").0.debug_options, ["ALL,1"]);
    }
}
