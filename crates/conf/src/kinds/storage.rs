//! Stores, replacement policies and `refresh_pattern`.

use std::path::PathBuf;
use std::time::Duration;

use humboldt_policy::Policy;

use super::Kind;
use crate::line::{Line, Problem, Token};
use crate::suggest::suggest;
use crate::types::{CacheDir, DirSelect, RefreshOptions, RefreshPattern, Scheme};

/// `cache_dir` lines.
pub(crate) struct CacheDirs;
/// `store_dir_select_algorithm`
pub(crate) struct DirSelectKind;
/// `lru`, `heap …` and the newer ones.
pub(crate) struct PolicyName;
/// `refresh_pattern` lines.
pub(crate) struct RefreshPatterns;

/// Most `cache_dir` lines, as in Squid.
const CACHE_DIRS_MAX: usize = 64;
/// Most first- or second-level directories.
const LEVEL_MAX: u32 = 65_536;
/// Longest age in `refresh_pattern`: one year, in minutes.
const REFRESH_MINUTES_MAX: i64 = 60 * 24 * 365;

const SCHEMES: [&str; 7] = ["null", "ufs", "aufs", "diskd", "coss", "rock", "ring"];

impl Kind for CacheDirs {
    type Out = Vec<CacheDir>;
    const NAME: &'static str = "store";

    fn apply(out: &mut Vec<CacheDir>, line: &mut Line<'_>) -> Result<(), Problem> {
        let scheme_token = line.expect("a storage scheme")?;
        let Some(scheme) = read_scheme(&scheme_token, line)? else {
            while line.next()?.is_some() {}
            return Ok(());
        };
        let path = line.expect("a directory")?;
        let mut dir = CacheDir {
            scheme,
            written_scheme: scheme_token.text.clone(),
            path: PathBuf::from(&path.text),
            size_bytes: 0,
            l1: 16,
            l2: 256,
            min_size_bytes: 0,
            max_size_bytes: None,
            read_only: false,
            other: Vec::new(),
        };
        if scheme == Scheme::Null {
            // `cache_dir null /tmp`, perhaps with the numbers of the scheme it replaced.
            while line.next()?.is_some() {}
        } else {
            read_capacity(&mut dir, line)?;
            read_levels(&mut dir, line)?;
            while let Some(token) = line.next()? {
                read_dir_option(&mut dir, &token, line)?;
            }
        }
        if scheme != Scheme::Null && out.iter().any(|other| other.path == dir.path) {
            return Err(path.error(format!("`{}` is already the directory of another store", path.text)));
        }
        if out.len() >= CACHE_DIRS_MAX {
            return Err(path.error(format!("more than {CACHE_DIRS_MAX} stores")));
        }
        out.push(dir);
        Ok(())
    }
}

/// The scheme; `None` for a line that cannot be obeyed yet, or cannot be meant: it is left out with a warning, since a cache
/// without that store serves the same answers.
fn read_scheme(token: &Token, line: &mut Line<'_>) -> Result<Option<Scheme>, Problem> {
    match token.text.as_str() {
        "null" => Ok(Some(Scheme::Null)),
        "ufs" => Ok(Some(Scheme::Ufs)),
        name @ ("aufs" | "diskd") => {
            let message = format!("the storage scheme `{name}` does not exist yet: `ufs` takes its place");
            line.warn(token, message, Some("the layout on disk is the same; nothing is lost"));
            Ok(Some(Scheme::Ufs))
        }
        name @ ("coss" | "rock" | "ring") => {
            let message = format!("the storage scheme `{name}` does not exist yet: this store is left out");
            line.warn(token, message, Some("use `ufs`; without a store the cache is in memory only"));
            Ok(None)
        }
        text if text.bytes().all(|b| b.is_ascii_digit()) => {
            let rest = line.rest().ok().flatten().map_or(String::new(), |rest| format!(" {}", rest.text));
            let message = "the scheme and the directory are missing: this store is left out";
            let help = format!("write `cache_dir ufs /path/to/cache {text}{rest}`");
            line.warn(token, format!("`{text}` is not a storage scheme: {message}"), Some(&help));
            Ok(None)
        }
        text => Err(missing_scheme(token, text, line)),
    }
}

/// The form of Squid 2.2 and older without a scheme, and misspellings.
fn missing_scheme(token: &Token, text: &str, line: &mut Line<'_>) -> Problem {
    if text.starts_with('/') {
        let rest = line.rest().ok().flatten().map_or(String::new(), |rest| format!(" {}", rest.text));
        return token
            .error(format!("`{text}` is not a storage scheme: the scheme is missing"))
            .with_help(format!("write `cache_dir ufs {text}{rest}`"));
    }
    let problem = token.error(format!("`{text}` is not a storage scheme"));
    match suggest(text, SCHEMES) {
        Some(name) => problem.with_help(format!("did you mean `{name}`?")),
        None => problem.with_help("the schemes are null, ufs, aufs, diskd, coss, rock and ring"),
    }
}

/// The capacity in MB.
fn read_capacity(dir: &mut CacheDir, line: &mut Line<'_>) -> Result<(), Problem> {
    let token = line.expect("the capacity in MB")?;
    dir.size_bytes = match token.text.parse::<u64>() {
        Ok(megabytes @ 1..) => {
            megabytes.checked_mul(1 << 20).ok_or_else(|| token.error("this capacity is too large"))?
        }
        _ => {
            let why = format!("`{}` is not a capacity: a number of MB, at least 1", token.text);
            return Err(token.error(why));
        }
    };
    Ok(())
}

/// `L1 L2`, both or neither.
fn read_levels(dir: &mut CacheDir, line: &mut Line<'_>) -> Result<(), Problem> {
    let is_number = |token: &Token| token.text.bytes().all(|b| b.is_ascii_digit());
    if !line.peek().as_ref().is_some_and(is_number) {
        return Ok(());
    }
    for level in [&mut dir.l1, &mut dir.l2] {
        let token = line.expect("the number of second-level directories")?;
        *level = match token.text.parse() {
            Ok(number @ 1..=LEVEL_MAX) => number,
            _ => return Err(token.error(format!("`{}` is not a number of directories", token.text))),
        };
    }
    Ok(())
}

fn read_dir_option(dir: &mut CacheDir, token: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
    let (name, value) = token.text.split_once('=').unwrap_or((&token.text, ""));
    let bytes = || value.parse().map_err(|_| token.error(format!("`{value}` is not a number of bytes")));
    match name {
        "min-size" => dir.min_size_bytes = bytes()?,
        "max-size" if value == "-1" => dir.max_size_bytes = None,
        "max-size" => dir.max_size_bytes = Some(bytes()?),
        "no-store" | "read-only" if value.is_empty() => dir.read_only = true,
        "Q1" | "Q2" | "IOEngine" | "threads" | "slot-size" | "swap-timeout" | "max-swap-rate"
        | "block-size" | "membufs" | "maxfullbufs" | "overwrite-percent" | "max-stripe-waste" => {
            line.note(token, format!("`{name}` has no effect on this scheme"), None);
            dir.other.push((name.to_owned(), value.to_owned()));
        }
        _ => {
            let problem = token.error(format!("`{}` is not an option of `cache_dir`", token.text));
            return Err(match suggest(name, ["min-size", "max-size", "no-store", "read-only"]) {
                Some(option) => problem.with_help(format!("did you mean `{option}`?")),
                None => problem,
            });
        }
    }
    if dir.max_size_bytes.is_some_and(|max| max < dir.min_size_bytes) {
        return Err(token.error("`min-size` is above `max-size`: nothing could be stored"));
    }
    Ok(())
}

impl Kind for DirSelectKind {
    type Out = DirSelect;
    const NAME: &'static str = "`least-load` or `round-robin`";

    fn apply(out: &mut DirSelect, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect(Self::NAME)?;
        *out = match token.text.to_ascii_lowercase().as_str() {
            "least-load" => DirSelect::LeastLoad,
            "round-robin" => DirSelect::RoundRobin,
            other => return Err(token.error(format!("`{other}` is not one of {}", Self::NAME))),
        };
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
            *out = found.ok_or_else(|| key.error(format!("`{}` is not GDSF, LFUDA or LRU", key.text)))?;
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
        let regex = crate::posix::compile(&pattern.text, case_insensitive)
            .map_err(|why| pattern.error(format!("`{}` is not a regular expression: {why}", pattern.text)))?;
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

fn read_refresh_option(
    options: &mut RefreshOptions,
    token: &Token,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    match token.text.as_str() {
        "override-expire" => options.override_expire = true,
        "override-lastmod" => options.override_lastmod = true,
        "reload-into-ims" => options.reload_into_ims = true,
        "ignore-reload" => options.ignore_reload = true,
        "ignore-no-store" => options.ignore_no_store = true,
        "ignore-private" => options.ignore_private = true,
        "refresh-ims" => options.refresh_ims = true,
        "store-stale" => options.store_stale = true,
        "ignore-no-cache" | "ignore-must-revalidate" | "ignore-auth" => {
            line.note(
                token,
                format!("`{}` no longer exists and has no effect", token.text),
                Some("remove it"),
            );
        }
        text => match text.strip_prefix("max-stale=") {
            // Seconds, unlike the ages on the same line.
            Some(value) => options.max_stale = Some(read_max_stale(token, value)?),
            None => {
                let problem = token.error(format!("`{text}` is not an option of `refresh_pattern`"));
                return Err(match suggest(text, REFRESH_OPTIONS) {
                    Some(option) => problem.with_help(format!("did you mean `{option}`?")),
                    None => problem,
                });
            }
        },
    }
    Ok(())
}

const REFRESH_OPTIONS: [&str; 9] = [
    "override-expire",
    "override-lastmod",
    "reload-into-ims",
    "ignore-reload",
    "ignore-no-store",
    "ignore-private",
    "refresh-ims",
    "store-stale",
    "max-stale=",
];

fn read_max_stale(token: &Token, value: &str) -> Result<Duration, Problem> {
    let seconds: u32 = value.parse().map_err(|_| token.error(format!("`{value}` is not a number")))?;
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
    fn stores() {
        let config = parse(
            "cache_dir ufs /cache 7500 16 256 min-size=10 max-size=1000 no-store\ncache_dir null /tmp\n\
             cache_dir aufs /other 100",
        )
        .expect("parses");
        let dir = &config.cache_dir[0];
        assert_eq!((dir.scheme, dir.size_bytes, dir.l1, dir.l2), (Scheme::Ufs, 7500 << 20, 16, 256));
        assert_eq!((dir.min_size_bytes, dir.max_size_bytes, dir.read_only), (10, Some(1000), true));
        assert_eq!(config.cache_dir[1].scheme, Scheme::Null);
        let aufs = &config.cache_dir[2];
        assert_eq!((aufs.scheme, aufs.written_scheme.as_str(), aufs.l2), (Scheme::Ufs, "aufs", 256));
    }

    #[test]
    fn the_classic_slips_are_explained() {
        for left_out in ["cache_dir 6000 14 256", "cache_dir rock /r 100", "cache_dir coss /c 100"] {
            assert!(parse(left_out).expect("goes on without it").cache_dir.is_empty(), "{left_out}");
        }
        let text = parse("cache_dir /var/spool/squid 100 16 256").expect_err("slip");
        assert!(text.contains("cache_dir ufs /var/spool/squid 100 16 256"), "{text}");
        for bad in [
            "cache_dir uffs /r 100",
            "cache_dir ufs",
            "cache_dir ufs /a",
            "cache_dir ufs /a 0",
            "cache_dir ufs /a 100 16",
            "cache_dir ufs /a 100 0 256",
            "cache_dir ufs /a 99999999999999999",
            "cache_dir ufs /a 100 16 256 max-sise=1",
            "cache_dir ufs /a 100\ncache_dir ufs /a 200",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn policies() {
        let config = parse("cache_replacement_policy heap LFUDA\nmemory_replacement_policy GDSF").map(|_| ());
        assert!(config.is_err());
        let config =
            parse("cache_replacement_policy heap LFUDA\nmemory_replacement_policy s3fifo").expect("ok");
        assert_eq!(config.cache_replacement_policy, Policy::HeapLfuda);
        assert_eq!(config.memory_replacement_policy, Policy::S3Fifo);
        for policy in Policy::ALL {
            let text = format!("cache_replacement_policy {}", policy.name());
            assert_eq!(parse(&text).expect("a name").cache_replacement_policy, policy);
        }
        let (_, found) =
            crate::parse_str("t", "cache_replacement_policy heap\nmemory_replacement_policy lur\n");
        let said = found.render(false);
        assert!(said.contains("GDSF, LFUDA or LRU") && said.contains("heap GDSF, heap LFUDA"), "{said}");
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
        for bad in
            ["[ 0 0% 0", ". 0 0%", ". x 0% 0", ". 0 0% 0 overide-expire", ". 0 -5% 0", ". 0 0% 0 max-stale=x"]
        {
            assert!(parse(&format!("refresh_pattern {bad}")).is_err(), "{bad}");
        }
    }
}
