//! Replacement policies, choice of a store, and `refresh_pattern`.

use std::time::Duration;

use humboldt_options::{DirSelect, InTransit, MemoryMode, Words};
use humboldt_policy::Policy;

use super::Kind;
use super::options::{self, OptionRow, rows};
use crate::diagnostics::{Problem, Severity};
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::{RefreshOptions, RefreshPattern};

/// `store_dir_select_algorithm`
pub(crate) struct DirSelectKind;
/// `in_transit`
pub(crate) struct InTransitKind;
/// `memory_cache_mode`
pub(crate) struct MemoryModeKind;
/// `lru`, `heap …` and the newer ones.
pub(crate) struct PolicyName;
/// `refresh_pattern` lines.
pub(crate) struct RefreshPatterns;

/// Longest age in `refresh_pattern`: one year, in minutes.
const REFRESH_MINUTES_MAX: i64 = 60 * 24 * 365;

/// One of a few words, in any case; `names` is all of them for a message.
fn word<W: Words>(line: &mut Line<'_>, names: &str) -> Result<W, Problem> {
    let token = line.expect(names)?;
    let found = W::WORDS.iter().find(|(word, _)| token.text.eq_ignore_ascii_case(word));
    let unknown =
        || token.error(format!("`{}` is not one of {names}", token.text.to_ascii_lowercase()));
    found.map(|(_, value)| *value).ok_or_else(unknown)
}

impl Kind for DirSelectKind {
    type Out = DirSelect;
    const NAME: &'static str = "`least-load` or `round-robin`";

    fn apply(out: &mut DirSelect, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = word(line, Self::NAME)?;
        Ok(())
    }
}

impl Kind for InTransitKind {
    type Out = InTransit;
    const NAME: &'static str = "`memory`, `disk` or `auto`";

    fn apply(out: &mut InTransit, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = word(line, Self::NAME)?;
        Ok(())
    }
}

impl Kind for MemoryModeKind {
    type Out = MemoryMode;
    const NAME: &'static str = "`auto`, `always`, `disk` or `network`";

    fn apply(out: &mut MemoryMode, line: &mut Line<'_>) -> Result<(), Problem> {
        *out = word(line, Self::NAME)?;
        Ok(())
    }
}

impl Kind for PolicyName {
    type Out = Policy;
    const NAME: &'static str = "replacement policy";

    fn apply(out: &mut Policy, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a replacement policy")?;
        if token.text.eq_ignore_ascii_case("heap") {
            let key = line.expect("GDSF, LFUDA or LRU")?;
            let found = Policy::from_name(&format!("heap {}", key.text));
            *out = found
                .ok_or_else(|| key.error(format!("`{}` is not GDSF, LFUDA or LRU", key.text)))?;
            return Ok(());
        }
        *out = Policy::from_name(&token.text).ok_or_else(|| {
            let known = Policy::ALL.map(Policy::name).join(", ");
            token.error(format!("`{}` is not a replacement policy", token.text)).with_help(known)
        })?;
        Ok(())
    }
}

impl Kind for RefreshPatterns {
    type Out = Vec<RefreshPattern>;
    const NAME: &'static str = "freshness rule";

    fn apply(out: &mut Vec<RefreshPattern>, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut case_insensitive = false;
        let mut pattern = line.next_regex()?.ok_or_else(|| line.missing("a regular expression"))?;
        if pattern.text == "-i" || pattern.text == "+i" {
            case_insensitive = pattern.text == "-i";
            pattern = line.next_regex()?.ok_or_else(|| line.missing("a regular expression"))?;
        }
        let regex = crate::posix::compile(&pattern.text, case_insensitive).map_err(|why| {
            pattern.error(format!("`{}` is not a regular expression: {why}", pattern.text))
        })?;
        let min_s = read_minutes("the minimum age in minutes", line)?;
        let percent = read_percent(line)?;
        let max_s = read_minutes("the maximum age in minutes", line)?;
        let mut options = RefreshOptions::default();
        while let Some(token) = line.next()? {
            read_refresh_option(&mut options, &token, line)?;
        }
        out.push(RefreshPattern { regex, case_insensitive, min_s, percent, max_s, options });
        Ok(())
    }
}

/// Minutes, cropped to a year as in Squid; the result in seconds.
fn read_minutes(what: &str, line: &mut Line<'_>) -> Result<u32, Problem> {
    let token = line.expect(what)?;
    let minutes: i64 = token
        .text
        .parse()
        .map_err(|_| token.error(format!("`{}` is not a number of minutes", token.text)))?;
    let cropped = minutes.clamp(0, REFRESH_MINUTES_MAX);
    if cropped != minutes {
        line.warn(
            &token,
            format!("{minutes} minutes are cropped to {cropped}"),
            Some("the longest age is one year"),
        );
    }
    Ok(u32::try_from(cropped * 60).unwrap_or(u32::MAX))
}

fn read_percent(line: &mut Line<'_>) -> Result<f64, Problem> {
    let token = line.expect("a percentage")?;
    let number = token.text.strip_suffix('%').unwrap_or(&token.text);
    match number.parse::<u32>() {
        Ok(percent) => Ok(f64::from(percent)),
        Err(_) => Err(token.error(format!("`{}` is not a percentage", token.text))),
    }
}

/// The options, in the order of the reference.
pub(super) const REFRESH_OPTIONS: &[OptionRow] = rows! {
    Status::Works => {
        "override-expire" "", "The minimum age wins over lifetimes that the server sent.";
        "override-lastmod" "", "The minimum age wins over the guess from Last-Modified.";
        "reload-into-ims" "", "A reload of a client becomes a validation.";
        "ignore-reload" "", "A reload of a client is ignored.";
        "ignore-no-store" "", "Cache-Control: no-store of answers is ignored.";
        "ignore-private" "", "Cache-Control: private of answers is ignored.";
        "refresh-ims" "", "If-Modified-Since of a client makes the proxy validate.";
        "store-stale" "", "Answers that are stale on arrival are stored.";
        "max-stale" "=SECONDS", "Longest staleness that may be served when the server fails; `max_stale` when not given.";
    }
    Status::Ignored("it no longer exists") => {
        "ignore-no-cache" "", "Cache-Control: no-cache of answers is ignored.";
        "ignore-must-revalidate" "", "Cache-Control: must-revalidate is ignored.";
        "ignore-auth" "", "Answers to requests with credentials are stored.";
    }
};

/// As in Squid, an unknown option is only a warning: without it less is cached.
fn read_refresh_option(
    options: &mut RefreshOptions,
    token: &Token,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    let (name, value) = options::split(token);
    if !REFRESH_OPTIONS.iter().any(|row| row.name == name) {
        let mut problem = options::unknown(REFRESH_OPTIONS, token, line);
        problem.severity = Severity::Warning;
        line.report(problem);
        return Ok(());
    }
    if !options::is_wanted(REFRESH_OPTIONS, token, line)? {
        return Ok(());
    }
    match name {
        "override-expire" => options.override_expire = true,
        "override-lastmod" => options.override_lastmod = true,
        "reload-into-ims" => options.reload_into_ims = true,
        "ignore-reload" => options.ignore_reload = true,
        "ignore-no-store" => options.ignore_no_store = true,
        "ignore-private" => options.ignore_private = true,
        "refresh-ims" => options.refresh_ims = true,
        "store-stale" => options.store_stale = true,
        // Seconds, unlike the ages on the same line.
        _ => options.max_stale = Some(read_max_stale(token, value.unwrap_or(""))?),
    }
    Ok(())
}

fn read_max_stale(token: &Token, value: &str) -> Result<Duration, Problem> {
    let seconds: u32 =
        value.parse().map_err(|_| token.error(format!("`{value}` is not a number")))?;
    Ok(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Severity, parse_str};

    fn parse(text: &str) -> Result<Config, String> {
        let (config, found) = parse_str("t", &format!("http_port 1\n{text}\n"));
        if found.has_errors() { Err(found.render_from(false, Severity::Error)) } else { Ok(config) }
    }

    #[test]
    fn objects_in_transit() {
        assert_eq!(parse("").expect("ok").in_transit, InTransit::Auto);
        assert_eq!(parse("in_transit disk").expect("ok").in_transit, InTransit::Disk);
        assert_eq!(parse("in_transit Memory").expect("ok").in_transit, InTransit::Memory);
        assert!(parse("in_transit ram").is_err());
    }

    #[test]
    fn what_memory_keeps() {
        assert_eq!(parse("").expect("ok").memory_cache_mode, MemoryMode::Auto);
        assert_eq!(
            parse("memory_cache_mode disk").expect("ok").memory_cache_mode,
            MemoryMode::Disk
        );
        assert_eq!(
            parse("memory_cache_mode Always").expect("ok").memory_cache_mode,
            MemoryMode::Always
        );
        assert_eq!(
            parse("memory_cache_mode network").expect("ok").memory_cache_mode,
            MemoryMode::Network
        );
        assert!(parse("memory_cache_mode both").is_err());
    }

    #[test]
    fn policies() {
        let config = parse("cache_replacement_policy heap LFUDA\nmemory_replacement_policy GDSF")
            .map(|_| ());
        assert!(config.is_err());
        let config = parse("cache_replacement_policy heap LFUDA\nmemory_replacement_policy s3fifo")
            .expect("ok");
        assert_eq!(config.cache_replacement_policy, Policy::HeapLfuda);
        assert_eq!(config.memory_replacement_policy, Policy::S3Fifo);
        for policy in Policy::ALL {
            let text = format!("cache_replacement_policy {}", policy.name());
            assert_eq!(parse(&text).expect("a name").cache_replacement_policy, policy);
        }
        let (_, found) =
            crate::parse_str("t", "cache_replacement_policy heap\nmemory_replacement_policy lur\n");
        let said = found.render(false);
        assert!(
            said.contains("GDSF, LFUDA or LRU") && said.contains("heap GDSF, heap LFUDA"),
            "{said}"
        );
    }

    #[test]
    fn freshness_rules() {
        let config = parse(
            "refresh_pattern -i (/cgi-bin/|\\?) 0 0% 0\nrefresh_pattern \\.iso$ 10 250% 99999999 override-expire \
             max-stale=60 ignore-auth\nrefresh_pattern a\\ b 0 20 4320",
        )
        .expect("parses");
        let rules = &config.refresh_pattern;
        assert!(rules[0].case_insensitive && rules[0].regex.is_match(b"http://x/CGI-BIN/y"));
        assert_eq!((rules[1].min_s, rules[1].percent, rules[1].max_s), (600, 250.0, 365 * 86_400));
        assert!(rules[1].options.override_expire);
        assert_eq!(rules[1].options.max_stale, Some(Duration::from_secs(60)));
        assert!(rules[2].regex.is_match(b"a b"));
        for bad in [
            "[ 0 0% 0",
            ". 0 0%",
            ". x 0% 0",
            ". 0 -5% 0",
            ". 0 0% 0 max-stale=x",
            ". 0 0% 0 max-stale",
        ] {
            assert!(parse(&format!("refresh_pattern {bad}")).is_err(), "{bad}");
        }
        for odd in ["negative-ttl=60", "ignore-no-private", "overide-expire", "ignore-auth"] {
            let (_, found) = parse_str(
                "t",
                &format!("http_port 1\nhttp_access allow all\nrefresh_pattern . 0 0% 0 {odd}"),
            );
            assert_eq!((found.has_errors(), found.count(Severity::Warning)), (false, 1), "{odd}");
        }
        let line = |option: &str| format!("http_port 1\nrefresh_pattern . 0 0% 0 {option}");
        options::tests::check_rows(REFRESH_OPTIONS, line, |_| "=2");
    }
}
