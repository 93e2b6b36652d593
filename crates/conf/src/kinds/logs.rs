//! `access_log`, `logformat` and the paths of other logs.

use super::access::read_terms;
use super::{Kind, units};
use crate::line::{Line, Problem, Token};
use crate::types::{AccessLog, LogFormat, LogModule};

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
        let place = line.expect("a place to write to")?;
        let (module, place) = split_place(&place)?;
        let mut log = AccessLog {
            module,
            place,
            format: "squid".to_owned(),
            rotate: None,
            buffer_bytes: None,
            drop_on_error: false,
            terms: Vec::new(),
        };
        if module != LogModule::None {
            read_format_and_options(&mut log, line)?;
        }
        log.terms = read_terms(line)?;
        out.push(log);
        Ok(())
    }
}

/// Splits `module:place`.
fn split_place(token: &Token) -> Result<(LogModule, String), Problem> {
    let text = token.text.as_str();
    let (module, place) = if text == "none" {
        (LogModule::None, "")
    } else if let Some(path) = text.strip_prefix("stdio:").or_else(|| text.strip_prefix("daemon:")) {
        (LogModule::File, path)
    } else if text == "syslog" || text.starts_with("syslog:") {
        (LogModule::Syslog, text.strip_prefix("syslog:").unwrap_or(""))
    } else if let Some(place) = text.strip_prefix("udp:") {
        (LogModule::Udp, place.trim_start_matches('/'))
    } else if let Some(place) = text.strip_prefix("tcp:") {
        (LogModule::Tcp, place.trim_start_matches('/'))
    } else {
        (LogModule::File, text)
    };
    if place.is_empty() && matches!(module, LogModule::File | LogModule::Udp | LogModule::Tcp) {
        return Err(token.error("the place to write to is missing after the module"));
    }
    Ok((module, place.to_owned()))
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
        match name {
            "logformat" if is_format(value, line) => log.format = value.to_owned(),
            "logformat" => return Err(token.error(format!("no log format is named `{value}`"))),
            "rotate" => log.rotate = Some(parse_number(&token, value)?),
            "buffer-size" => log.buffer_bytes = Some(parse_buffer_size(&token, value)?),
            "on-error" if value == "die" || value == "drop" => log.drop_on_error = value == "drop",
            _ => return Err(token.error(format!("`{}` is not an option of `access_log`", token.text))),
        }
    }
    Ok(())
}

fn is_format(name: &str, line: &Line<'_>) -> bool {
    BUILT_IN_FORMATS.contains(&name) || line.state.log_formats.contains(name)
}

fn parse_number(token: &Token, value: &str) -> Result<u32, Problem> {
    value.parse().map_err(|_| token.error(format!("`{value}` is not a whole number")))
}

fn parse_buffer_size(token: &Token, value: &str) -> Result<u64, Problem> {
    units::parse_size(value).ok_or_else(|| token.error(format!("`{value}` is not a size like 64KB")))
}

impl Kind for LogFormats {
    type Out = Vec<LogFormat>;
    const NAME: &'static str = "name and format";

    fn apply(out: &mut Vec<LogFormat>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("the name of the format")?;
        let format = line.rest()?.ok_or_else(|| line.missing("the format"))?;
        if BUILT_IN_FORMATS.contains(&name.text.as_str()) || line.state.log_formats.contains(&name.text) {
            line.warn(&name, format!("`{}` is already defined; this line is ignored", name.text), None);
            return Ok(());
        }
        line.state.log_formats.insert(name.text.clone());
        out.push(LogFormat { name: name.text, format: format.text });
        Ok(())
    }
}

impl Kind for LogPath {
    type Out = Option<String>;
    const NAME: &'static str = "path or `none`";

    fn apply(out: &mut Option<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a path")?;
        let (module, place) = split_place(&token)?;
        *out = match module {
            LogModule::None => None,
            LogModule::File => Some(place),
            _ => return Err(token.error("this log can only be written to a file")),
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
    use crate::types::LogModule;
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
        assert_eq!((logs[0].format.as_str(), logs[0].terms.len()), ("mine", 1));
        assert_eq!((logs[1].place.as_str(), logs[1].format.as_str()), ("/dev/stdout", "combined"));
        assert_eq!(
            (logs[1].rotate, logs[1].buffer_bytes, logs[1].drop_on_error),
            (Some(3), Some(65_536), true)
        );
        assert_eq!((logs[2].module, logs[2].place.as_str()), (LogModule::File, "/var/log/b.log"));
        assert_eq!((logs[3].module, logs[3].place.as_str()), (LogModule::Udp, "127.0.0.1:514"));
        assert!(logs[4].terms[0].negated && logs[4].format == "squid");
        assert_eq!((logs[5].module, logs[5].terms.len()), (LogModule::None, 1));
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in ["access_log", "access_log stdio:", "access_log /a nothing", "access_log /a rotate=x all"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("access_log /a logformat=nothing").is_err());
    }

    #[test]
    fn the_first_line_replaces_the_default_and_other_logs_may_be_none() {
        assert_eq!(parse("").expect("parses").access_log.len(), 1);
        let config =
            parse("cache_access_log /dev/null\ncache_store_log none\ncache_log stdio:/x").expect("parses");
        assert_eq!((config.access_log.len(), config.access_log[0].place.as_str()), (1, "/dev/null"));
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
