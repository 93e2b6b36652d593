//! `access_log`, `logformat` and the paths of other logs.

use super::access::read_terms;
use super::{Kind, units};
use crate::diagnostics::{Problem, Severity};
use crate::line::{Line, Token};
use crate::log_codes::LogCode;
use crate::log_format::{LogFormatProblem, LogPart, log_parts};
use crate::log_json::json_fields;
use crate::types::{AccessLog, LogFormat, syslog_priority};

/// Formats that exist without a definition.
const BUILT_IN_FORMATS: [&str; 5] = ["squid", "common", "combined", "referrer", "useragent"];

/// Another one, which Squid does not have: a file may define its own instead.
const BUILT_IN_JSON_FORMAT: &str = "json";

/// `access_log` lines.
pub(crate) struct AccessLogs;
/// `logformat` definitions.
pub(crate) struct LogFormats;
/// `logformat_json` definitions.
pub(crate) struct JsonLogFormats;
/// Path of a log, perhaps with `stdio:` or `daemon:` in front; `none` is nothing.
pub(crate) struct LogPath;
/// A place of any module; `none` is nothing.
pub(crate) struct LogPlace;
/// `SECTION,LEVEL` words; the last line counts.
pub(crate) struct DebugOptions;

impl Kind for AccessLogs {
    type Out = Vec<AccessLog>;
    const NAME: &'static str = "access log";

    fn apply(out: &mut Vec<AccessLog>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a place to write to")?;
        let place = read_place(&token)?;
        let format = "squid".to_owned();
        let mut log = AccessLog { place, format, ..AccessLog::default() };
        if log.place.is_some() {
            read_format_and_options(&mut log, line)?;
        }
        log.terms = read_terms(line)?;
        out.push(log);
        Ok(())
    }
}

/// The place of a log: a path, or another module with its place; `None` for `none`.
fn read_place(token: &Token) -> Result<Option<String>, Problem> {
    let text = token.text.as_str();
    let wrong = |why: &str, help: &str| Err(token.error(why).with_help(help));
    match text.split_once(':') {
        None if text == "none" => Ok(None),
        Some((_, "")) => Err(token.error("the place to write to is missing after the module")),
        Some(("stdio", path)) => Ok(Some(path.to_owned())),
        Some(("syslog", words)) if syslog_priority(words).is_none() => wrong(
            "this is not a facility and a priority of syslog",
            "write `syslog:daemon.info`, with `authpriv`, `daemon`, `local0` … `local7` or `user`, \
             and `err`, `warning`, `notice`, `info` or `debug`",
        ),
        Some(("udp" | "tcp", place)) if !is_receiver(place) => {
            wrong("a receiver has a host and a port", "write `udp://host:514`")
        }
        _ => Ok(Some(text.to_owned())),
    }
}

/// `//host:port`
fn is_receiver(place: &str) -> bool {
    let place = place.strip_prefix("//").unwrap_or(place);
    place.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
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
        let wrong = || token.error(format!("`{}` is not an option of `access_log`", token.text));
        match (name, value) {
            ("logformat", _) if is_format(value, line) => log.format = value.to_owned(),
            ("logformat", _) => {
                return Err(token.error(format!("no log format is named `{value}`")));
            }
            ("buffer-size", _) => {
                log.buffer_bytes = Some(units::parse_size(value).ok_or_else(wrong)?);
            }
            ("rotate", _) => log.rotate = Some(value.parse().map_err(|_| wrong())?),
            ("on-error", "die") => log.dies_on_error = true,
            ("on-error", "drop") => log.dies_on_error = false,
            _ => return Err(wrong()),
        }
    }
    Ok(())
}

fn is_format(name: &str, line: &Line<'_>) -> bool {
    BUILT_IN_FORMATS.contains(&name)
        || name == BUILT_IN_JSON_FORMAT
        || line.state.log_formats.contains(name)
}

impl Kind for LogFormats {
    type Out = Vec<LogFormat>;
    const NAME: &'static str = "name and format";

    fn apply(out: &mut Vec<LogFormat>, line: &mut Line<'_>) -> Result<(), Problem> {
        define(out, line, |text| log_parts(text).1)
    }
}

impl Kind for JsonLogFormats {
    type Out = Vec<LogFormat>;
    const NAME: &'static str = "name and fields";

    fn apply(out: &mut Vec<LogFormat>, line: &mut Line<'_>) -> Result<(), Problem> {
        define(out, line, |text| json_fields(text).1)
    }
}

/// Reads the name of a format and its text, and reports what `check` finds in that.
fn define(
    out: &mut Vec<LogFormat>,
    line: &mut Line<'_>,
    check: fn(&str) -> Vec<LogFormatProblem>,
) -> Result<(), Problem> {
    let name = line.expect("the name of the format")?;
    let format = line.rest()?.ok_or_else(|| line.missing("the format"))?;
    if BUILT_IN_FORMATS.contains(&name.text.as_str()) || line.state.log_formats.contains(&name.text)
    {
        let why = format!("`{}` is already defined; this line is ignored", name.text);
        line.warn(&name, why, None);
        return Ok(());
    }
    report_all(&format, line, check(&format.text));
    line.state.log_formats.insert(name.text.clone());
    out.push(LogFormat { name: name.text, format: format.text });
    Ok(())
}

/// Reports the parts of a format that cannot be written, each at its position.
pub(super) fn check_log_format(format: &Token, line: &mut Line<'_>) {
    report_all(format, line, log_parts(&format.text).1);
}

fn report_all(format: &Token, line: &mut Line<'_>, problems: Vec<LogFormatProblem>) {
    for problem in problems {
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

/// Warns of a format with the hardware address of the client, for a value that leaves the proxy.
pub(super) fn warn_of_hardware_address(format: &Token, to: &str, line: &mut Line<'_>) {
    let (parts, _) = log_parts(&format.text);
    let is_it = |part: &LogPart<'_>| match part {
        LogPart::Value(value) => value.code == Some(LogCode::ClientHardware),
        LogPart::Text(_) => false,
    };
    if parts.iter().any(is_it) {
        let what = format!("`%>eui` tells the hardware address of each client to {to}");
        line.warn(format, what, Some("leave it out if they need not know the device"));
    }
}

impl Kind for LogPath {
    type Out = Option<String>;
    const NAME: &'static str = "path or `none`";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a path")?;
        let place = read_place(&token)?;
        let is_elsewhere = |place: &str| {
            place == "syslog"
                || ["syslog:", "udp:", "tcp:"].iter().any(|one| place.starts_with(one))
        };
        if place.as_deref().is_some_and(is_elsewhere) {
            return Err(token.error("this log can only be written to a file"));
        }
        *out = place.map(|place| place.strip_prefix("daemon:").unwrap_or(&place).to_owned());
        Ok(())
    }
}

impl Kind for LogPlace {
    type Out = Option<String>;
    const NAME: &'static str = "place or `none`";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_place(&line.expect("a place to write to")?)?;
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
                    access_log syslog:daemon.info\n\
                    access_log /var/log/c.log !CONNECT\n\
                    access_log none localhost";
        let config = parse(text).expect("parses");
        assert_eq!(config.logformat[0].format, "%>a \"%rm\" # not a comment");
        let logs = &config.access_log;
        let place = |index: usize| logs[index].place.as_deref();
        assert_eq!((logs[0].format.as_str(), logs[0].terms.len()), ("mine", 1));
        assert_eq!((place(1), logs[1].format.as_str()), (Some("/dev/stdout"), "combined"));
        assert_eq!((logs[1].buffer_bytes, logs[1].rotate), (Some(64 << 10), Some(3)));
        assert_eq!(place(2), Some("daemon:/var/log/b.log"));
        assert_eq!((place(3), logs[3].format.as_str()), (Some("udp://127.0.0.1:514"), "common"));
        assert_eq!(place(4), Some("syslog:daemon.info"));
        assert!(logs[5].terms[0].negated && logs[5].format == "squid");
        assert_eq!((place(6), logs[6].terms.len()), (None, 1));
    }

    #[test]
    fn formats_in_json() {
        let config = parse(
            "access_log /a json\n\
             logformat_json mine url when=%{%F %T}tl\n\
             access_log /b logformat=mine rotate=1 all\n\
             logformat json {\"url\":\"%#ru\"}\n\
             access_log /c json",
        )
        .expect("parses");
        assert_eq!(config.logformat_json[0].format, "url when=%{%F %T}tl");
        let formats: Vec<_> = config.access_log.iter().map(|log| &*log.format).collect();
        assert_eq!(formats, ["json", "mine", "json"]);
        assert_eq!(config.logformat[0].name, "json", "a file may have its own");
        let text = "http_port 1\nhttp_access allow all\nlogformat_json x url urk a=%<tt";
        let (_, found) = parse_str("t", text);
        let said = found.render(false);
        assert!(said.contains("t:3:22") && said.contains("t:3:26"), "{said}");
        assert_eq!((found.count(Severity::Error), found.count(Severity::Warning)), (1, 1));
        assert!(parse("logformat_json x").is_err());
    }

    #[test]
    fn an_access_log_without_a_place_is_said() {
        let warnings = |text: &str| {
            let text = format!("http_port 1\nhttp_access allow all\naccess_log {text}\n");
            parse_str("t", &text).1.count(Severity::Warning)
        };
        assert_eq!(warnings("/a logformat=common on-error=drop"), 0);
        assert_eq!(warnings("/a rotate=3 buffer-size=64KB on-error=die all"), 0);
        assert_eq!(warnings("tcp://127.0.0.1:514"), 0);
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
        let (errors, warnings, text) = found("%ui");
        assert!((errors, warnings) == (0, 1) && text.contains("t:3:17"), "{text}");
        assert_eq!(found("%<sH %ssl::>other %{x}ui %<tt").1, 4);
        assert_eq!(found("%zz").0, 1);
        let add = "request_header_add X \"%>a %ui %zz\" all";
        let (_, found) = parse_str("t", &format!("http_port 1\nhttp_access allow all\n{add}\n"));
        assert_eq!((found.count(Severity::Error), found.count(Severity::Warning)), (1, 1));
    }

    #[test]
    fn a_hardware_address_that_leaves_the_proxy_is_a_warning() {
        for (line, wanted) in [
            ("request_header_add X \"%>eui\" all", 1),
            ("reply_header_add X \"a%>eui\" all", 1),
            ("url_rewrite_extras \"%>a %>eui\"", 1),
            ("store_id_extras \"%>eui\"", 1),
            ("request_header_add X %>eui all", 0),
            ("request_header_add X \"%>a\" all", 0),
            ("logformat x %>eui", 0),
        ] {
            let (_, found) =
                parse_str("t", &format!("http_port 1\nhttp_access allow all\n{line}\n"));
            let text = found.render(false);
            assert_eq!(found.count(Severity::Warning), wanted, "{line}: {text}");
            assert!(!found.has_errors(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "access_log",
            "access_log stdio:",
            "access_log /a nothing",
            "access_log /a rotate=x all",
            "access_log /a on-error=x all",
            "access_log /a buffer-size=x all",
            "access_log syslog:nobody.info",
            "access_log udp://127.0.0.1",
            "access_log tcp:",
            "cache_log tcp://127.0.0.1:5",
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
