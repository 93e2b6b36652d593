//! Values of the directives about helpers that rewrite URLs and say which URLs are one object.

use std::path::Path;
use std::time::Duration;

use super::Kind;
use super::helpers::read_children;
use super::logs::{check_early_log_format, warn_of_hardware_address};
use super::units::read_time;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::types::{HelperChildren, OnTimeout, ReplacementPart, RewriteTimeout, StoreIdRule};

/// A program and its arguments; `none` for none.
pub(crate) struct HelperCommand;
/// Numbers of processes.
pub(crate) struct Children;
/// A `logformat` for a time before the answer, perhaps in quotes.
pub(crate) struct EarlyFormat;
/// `TIME on_timeout=ACTION [response=TEXT]`
pub(crate) struct RewriteTimeouts;
/// `[-i] REGEX REPLACEMENT`
pub(crate) struct StoreIdRules;

impl Kind for HelperCommand {
    type Out = Vec<String>;
    const NAME: &'static str = "command";

    fn apply(out: &mut Vec<String>, line: &mut Line<'_>) -> Result<(), Problem> {
        let program = line.next_quoted()?.ok_or_else(|| line.missing("a program"))?;
        out.clear();
        if program.text == "none" {
            return Ok(());
        }
        if !Path::new(&program.text).exists() {
            let why = format!("there is no program {}: nothing is answered", program.text);
            line.warn(&program, why, None);
        }
        out.push(program.text);
        while let Some(token) = line.next_quoted()? {
            out.push(token.text);
        }
        Ok(())
    }
}

impl Kind for Children {
    type Out = HelperChildren;
    const NAME: &'static str = "number of processes";

    fn apply(out: &mut HelperChildren, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = read_children(line)?;
        Ok(())
    }
}

impl Kind for EarlyFormat {
    type Out = String;
    const NAME: &'static str = "format";

    fn apply(out: &mut String, line: &mut Line<'_>) -> Result<(), Problem> {
        let format = line.next_quoted()?.ok_or_else(|| line.missing("a format"))?;
        check_early_log_format(&format, line);
        warn_of_hardware_address(&format, "the helpers", line);
        *out = format.text;
        Ok(())
    }
}

impl Kind for RewriteTimeouts {
    type Out = RewriteTimeout;
    const NAME: &'static str = "time and action";

    fn apply(out: &mut RewriteTimeout, line: &mut Line<'_>) -> Result<(), Problem> {
        let limit = read_time(line, Duration::from_secs(1))?;
        let (mut action, mut answer) = (None, None);
        while let Some((key, value)) = line.next_pair()? {
            match key.text.as_str() {
                "on_timeout" => action = Some(value),
                "response" => answer = Some(value.text),
                other => return Err(key.error(format!("`{other}` is not an option of this"))),
            }
        }
        let action = action.ok_or_else(|| line.missing("`on_timeout=ACTION`"))?;
        let on_timeout = match (action.text.as_str(), answer) {
            ("fail", _) => OnTimeout::Fail,
            ("bypass", _) => OnTimeout::Bypass,
            ("retry", _) => OnTimeout::Retry,
            ("use_configured_response", Some(answer)) => OnTimeout::Answer(answer),
            ("use_configured_response", None) => return Err(line.missing("`response=TEXT`")),
            (other, _) => {
                let help = "write `fail`, `bypass`, `retry` or `use_configured_response`";
                return Err(action.error(format!("`{other}` is not an action")).with_help(help));
            }
        };
        // No time at all is no limit, as in Squid.
        *out = RewriteTimeout { limit: Some(limit).filter(|limit| !limit.is_zero()), on_timeout };
        Ok(())
    }
}

impl Kind for StoreIdRules {
    type Out = Vec<StoreIdRule>;
    const NAME: &'static str = "expression and replacement";

    fn apply(out: &mut Vec<StoreIdRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut pattern = line.next_regex()?.ok_or_else(|| line.missing("a regular expression"))?;
        let ignores_case = pattern.text == "-i";
        if ignores_case {
            pattern = line.next_regex()?.ok_or_else(|| line.missing("a regular expression"))?;
        }
        let regex = crate::posix::compile(&pattern.text, ignores_case).map_err(|why| {
            pattern.error(format!("`{}` is not a regular expression: {why}", pattern.text))
        })?;
        let replacement = line.next_quoted()?.ok_or_else(|| line.missing("a replacement"))?;
        let replacement = read_replacement(&replacement, regex.captures_len())?;
        out.push(StoreIdRule { regex, replacement });
        Ok(())
    }
}

/// Reads text with `$1` to `$9` in it; `groups` is one more than there are parentheses.
fn read_replacement(token: &Token, groups: usize) -> Result<Vec<ReplacementPart>, Problem> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut chars = token.text.chars();
    while let Some(one) = chars.next() {
        if one.is_whitespace() || one.is_control() {
            return Err(token.error("the name of an object has no blanks"));
        }
        if one != '$' {
            text.push(one);
            continue;
        }
        match chars.next() {
            Some('$') => text.push('$'),
            Some(digit @ '1'..='9') => {
                let number = digit as usize - '0' as usize;
                if number >= groups {
                    let why = format!("`${number}`: the expression has {} parts", groups - 1);
                    return Err(token.error(why));
                }
                if !text.is_empty() {
                    parts.push(ReplacementPart::Text(std::mem::take(&mut text)));
                }
                parts.push(ReplacementPart::Group(number));
            }
            _ => return Err(token.error("`$` stands before 1 to 9, or before another `$`")),
        }
    }
    if !text.is_empty() {
        parts.push(ReplacementPart::Text(text));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Severity, parse_str};

    fn read(line: &str) -> (Config, String, usize, usize) {
        let text = format!("http_port 1\nhttp_access allow localhost\n{line}\n");
        let (config, found) = parse_str("t", &text);
        let (errors, warnings) = (found.count(Severity::Error), found.count(Severity::Warning));
        (config, found.render(false), errors, warnings)
    }

    #[test]
    fn commands_have_arguments_and_none_is_none() {
        let (config, said, ..) = read("redirect_program /bin/sh -c \"a b\"");
        assert_eq!(config.url_rewrite_program, ["/bin/sh", "-c", "a b"], "{said}");
        let (config, said, errors, warnings) = read("url_rewrite_program none");
        assert!(config.url_rewrite_program.is_empty() && errors + warnings == 0, "{said}");
        let (_, said, errors, warnings) = read("store_id_program /no/such/program");
        assert!((errors, warnings) == (0, 1) && said.contains("no program"), "{said}");
    }

    #[test]
    fn defaults_are_those_of_squid() {
        let (config, ..) = read("");
        assert_eq!(config.url_rewrite_extras, "%>a/%>A %un %>rm myip=%la myport=%lp");
        let children = &config.url_rewrite_children;
        assert_eq!((children.max, children.startup, children.queue_size), (20, 0, 40));
        assert!(config.url_rewrite_host_header && config.store_id_bypass);
        assert!(!config.url_rewrite_bypass && config.url_rewrite_timeout.limit.is_none());
    }

    #[test]
    fn too_many_channels_are_cropped() {
        let (config, said, errors, warnings) = read("url_rewrite_children 20 concurrency=10000");
        assert!((errors, warnings) == (0, 1) && said.contains("4096 are used"), "{said}");
        assert_eq!(config.url_rewrite_children.concurrency, HelperChildren::CHANNELS_MAX);
        assert_eq!(read("redirect_concurrency 20").0.url_rewrite_concurrency, 20);
    }

    #[test]
    fn what_happens_after_the_time_is_said() {
        let timeout = |rest: &str| read(&format!("url_rewrite_timeout {rest}"));
        let (config, said, ..) =
            timeout("5 seconds on_timeout=use_configured_response response=\"OK url=http://x/\"");
        let answer = OnTimeout::Answer("OK url=http://x/".into());
        assert_eq!(config.url_rewrite_timeout.on_timeout, answer, "{said}");
        assert_eq!(config.url_rewrite_timeout.limit, Some(Duration::from_secs(5)));
        assert_eq!(
            timeout("5 seconds on_timeout=retry").0.url_rewrite_timeout.on_timeout,
            OnTimeout::Retry
        );
        for bad in [
            "5 seconds",
            "5 seconds on_timeout=x",
            "5 seconds on_timeout=use_configured_response",
            "5 seconds x=y",
        ] {
            assert_eq!(timeout(bad).2, 1, "{bad}");
        }
    }

    #[test]
    fn every_option_of_the_table_is_read() {
        let line = |option: &str| format!("http_port 1\nurl_rewrite_children 5 {option}");
        let example = |name: &str| match name {
            "on-persistent-overload" => "=die",
            _ => "=5",
        };
        super::super::options::tests::check_rows(super::super::helpers::CHILDREN, line, example);
    }

    #[test]
    fn a_replacement_has_parts_of_the_expression() {
        let (config, said, errors, _) =
            read("store_id_rule -i ^http://([a-z]+)/(.*)$ http://x/$$$2-$1");
        assert_eq!(errors, 0, "{said}");
        let text = |text: &str| ReplacementPart::Text(text.into());
        assert_eq!(
            config.store_id_rule[0].replacement,
            [text("http://x/$"), ReplacementPart::Group(2), text("-"), ReplacementPart::Group(1)]
        );
        assert!(config.store_id_rule[0].regex.is_match(b"HTTP://A/"));
        for bad in ["[ x", "a", "a $1", "(a) $2", "(a) $", "(a) $x"] {
            assert_eq!(read(&format!("store_id_rule {bad}")).2, 1, "{bad}");
        }
    }
}
