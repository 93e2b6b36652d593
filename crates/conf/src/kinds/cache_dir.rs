//! `cache_dir`: scheme, directory, capacity, options.

use std::path::PathBuf;

use humboldt_options::{DirLimits, LEVEL_DIRS_MAX, Scheme};

use super::{Kind, dir_options};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::types::CacheDir;

/// `cache_dir` lines.
pub(crate) struct CacheDirs;

/// Most `cache_dir` lines, as in Squid.
const CACHE_DIRS_MAX: usize = 64;

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
            path: PathBuf::from(&path.text),
            size_bytes: 0,
            limits: DirLimits::default(),
            options: scheme.defaults(),
        };
        if scheme == Scheme::Null {
            // `cache_dir null /tmp`, perhaps with the numbers of the scheme it replaced.
            while line.next()?.is_some() {}
        } else {
            read_capacity(&mut dir, line)?;
            read_levels(&mut dir, line)?;
            let mut last = None;
            while let Some(token) = line.next()? {
                dir_options::read(&mut dir, &token, line)?;
                last = Some(token);
            }
            last.map_or(Ok(()), |last| dir_options::check(&dir, &last))?;
        }
        if scheme != Scheme::Null && out.iter().any(|other| other.path == dir.path) {
            return Err(
                path.error(format!("`{}` is already the directory of another store", path.text))
            );
        }
        if out.len() >= CACHE_DIRS_MAX {
            return Err(path.error(format!("more than {CACHE_DIRS_MAX} stores")));
        }
        out.push(dir);
        Ok(())
    }
}

/// The scheme; `None` for a line that cannot be meant: it is left out with a warning, since a cache
/// without that store serves the same answers.
fn read_scheme(token: &Token, line: &mut Line<'_>) -> Result<Option<Scheme>, Problem> {
    let text = token.text.as_str();
    if let Some(scheme) = Scheme::named(text) {
        return Ok(Some(scheme));
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        let rest =
            line.rest().ok().flatten().map_or(String::new(), |rest| format!(" {}", rest.text));
        let message = "the scheme and the directory are missing: this store is left out";
        let help = format!("write `cache_dir ufs /path/to/cache {text}{rest}`");
        line.warn(token, format!("`{text}` is not a storage scheme: {message}"), Some(&help));
        return Ok(None);
    }
    Err(missing_scheme(token, text, line))
}

/// The form of Squid 2.2 and older without a scheme, and misspellings.
fn missing_scheme(token: &Token, text: &str, line: &mut Line<'_>) -> Problem {
    if text.starts_with('/') {
        let rest =
            line.rest().ok().flatten().map_or(String::new(), |rest| format!(" {}", rest.text));
        return token
            .error(format!("`{text}` is not a storage scheme: the scheme is missing"))
            .with_help(format!("write `cache_dir ufs {text}{rest}`"));
    }
    let problem = token.error(format!("`{text}` is not a storage scheme"));
    let names = Scheme::ALL.map(Scheme::name);
    match suggest(text, names) {
        Some(name) => problem.with_help(format!("did you mean `{name}`?")),
        None => problem.with_help(format!("the schemes are {}", names.join(", "))),
    }
}

/// The capacity in MB.
fn read_capacity(dir: &mut CacheDir, line: &mut Line<'_>) -> Result<(), Problem> {
    let token = line.expect("the capacity in MB")?;
    dir.size_bytes = match token.text.parse::<u64>() {
        Ok(megabytes @ 1..) => megabytes
            .checked_mul(1 << 20)
            .ok_or_else(|| token.error("this capacity is too large"))?,
        _ => {
            let why = format!("`{}` is not a capacity: a number of MB, at least 1", token.text);
            return Err(token.error(why));
        }
    };
    Ok(())
}

/// `L1 L2`, both or neither. A scheme without such directories ignores them.
fn read_levels(dir: &mut CacheDir, line: &mut Line<'_>) -> Result<(), Problem> {
    let is_number = |token: &Token| token.text.bytes().all(|b| b.is_ascii_digit());
    let Some(first) = line.peek().filter(is_number) else { return Ok(()) };
    let scheme = dir.scheme();
    let Some(levels) = dir.options.levels_mut() else {
        let message = format!("`{}` has no directories of two levels: no effect", scheme.name());
        line.note(&first, message, Some("leave the two numbers out"));
        while line.peek().as_ref().is_some_and(is_number) {
            line.next()?;
        }
        return Ok(());
    };
    for level in [&mut levels.l1, &mut levels.l2] {
        let token = line.expect("the number of second-level directories")?;
        *level = match token.text.parse() {
            Ok(number @ 1..=LEVEL_DIRS_MAX) => number,
            _ => {
                let why = format!(
                    "`{}` is not a number of directories: 1 to {LEVEL_DIRS_MAX}",
                    token.text
                );
                return Err(token.error(why));
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use humboldt_options::{
        AufsOptions, CossOptions, DiskdOptions, Io, Levels, Overload, RingOptions, RockOptions,
        SchemeOptions,
    };

    use super::*;
    use crate::{Config, Severity, parse_str};

    fn parse(text: &str) -> Result<Config, String> {
        let (config, found) = parse_str("t", &format!("http_port 1\n{text}\n"));
        if found.has_errors() { Err(found.render_from(false, Severity::Error)) } else { Ok(config) }
    }

    /// The messages about a valid line.
    fn remarks(line: &str) -> (usize, usize, String) {
        let (_, found) = parse_str("t", &format!("http_port 1\nhttp_access allow all\n{line}\n"));
        assert!(!found.has_errors(), "{}", found.render(false));
        (found.count(Severity::Warning), found.count(Severity::Note), found.render(false))
    }

    #[test]
    fn stores() {
        let config = parse(
            "cache_dir ufs /cache 7500 16 256 min-size=10 max-size=1000 no-store\ncache_dir null /tmp\n\
             cache_dir aufs /other 100 threads=4",
        )
        .expect("parses");
        let dir = &config.cache_dir[0];
        let levels = Levels { l1: 16, l2: 256 };
        assert_eq!((dir.size_bytes, &dir.options), (7500 << 20, &SchemeOptions::Ufs(levels)));
        let limits = DirLimits { min_bytes: 10, max_bytes: Some(1000), read_only: true };
        assert_eq!(dir.limits, limits);
        assert_eq!(config.cache_dir[1].options, SchemeOptions::Null);
        let aufs =
            SchemeOptions::Aufs(AufsOptions { levels, threads: 4, ..AufsOptions::default() });
        assert_eq!(config.cache_dir[2].options, aufs);
    }

    #[test]
    fn options_of_each_scheme_are_taken_over() {
        let config = parse(
            "cache_dir diskd /d 100 16 256 Q1=10 Q2=20\n\
             cache_dir coss /c 100 block-size=1024 membufs=20 maxfullbufs=19 overwrite-percent=0 max-stripe-waste=100\n\
             cache_dir rock /r 100 slot-size=32768 max-swap-rate=200 swap-timeout=300 io=threads threads=256 overload=wait\n\
             cache_dir ring /x 100 io=uring max-size=-1 read-only",
        )
        .expect("parses");
        let [diskd, coss, rock, ring] = &config.cache_dir[..] else { panic!("four stores") };
        let expected = DiskdOptions { q1: 10, q2: 20, ..DiskdOptions::default() };
        assert_eq!(diskd.options, SchemeOptions::Diskd(expected));
        let expected = CossOptions {
            block_bytes: Some(1024),
            membufs: 20,
            maxfullbufs: Some(19),
            overwrite_percent: 0,
            max_stripe_waste_bytes: Some(100),
            ..CossOptions::default()
        };
        assert_eq!(coss.options, SchemeOptions::Coss(expected));
        let expected = RockOptions {
            slot_bytes: 32_768,
            max_swap_rate: Some(200),
            swap_timeout: Some(Duration::from_millis(300)),
            io: Io::Threads,
            threads: 256,
            overload: Overload::Wait,
        };
        assert_eq!(rock.options, SchemeOptions::Rock(expected));
        let expected = RingOptions { io: Io::Uring, ..RingOptions::default() };
        assert_eq!(ring.options, SchemeOptions::Ring(expected));
        assert_eq!((ring.limits.max_bytes, ring.limits.read_only), (None, true));
    }

    #[test]
    fn what_belongs_to_another_scheme_has_no_effect() {
        let config = parse("cache_dir ufs /a 100 Q1=10 slot-size=7").expect("goes on");
        assert_eq!(config.cache_dir[0].options, Scheme::Ufs.defaults());
        let (warnings, _, text) = remarks("cache_dir ufs /a 100 Q1=10");
        assert!(
            warnings == 1 && text.contains("t:3:22") && text.contains("option of `diskd`"),
            "{text}"
        );
        let (warnings, notes, text) = remarks("cache_dir rock /a 100 16 256 slot-size=4096");
        assert!((warnings, notes) == (0, 1) && text.contains("t:3:23"), "{text}");
        assert_eq!(remarks("cache_dir aufs /a 100 IOEngine=DiskThreads").1, 1);
    }

    #[test]
    fn a_bad_value_is_refused_with_its_place_and_range() {
        for (option, range) in [
            ("rock /r 100 slot-size=4000", "bytes from 4096 to 1048576, a multiple of 512"),
            ("rock /r 100 slot-size=4608x", "bytes from 4096"),
            ("rock /r 100 io=aio", "io=auto|uring|threads"),
            ("coss /r 100 block-size=1000", "512 to 8192, a power of two"),
            ("coss /r 100 overwrite-percent=101", "percent from 0 to 100"),
            ("coss /r 100 membufs", "stripes from 2 to 1024"),
            ("aufs /r 100 threads=0", "threads from 1 to 256"),
            ("diskd /r 10 Q1=-1", "messages from 1 to 3000"),
            ("ring /r 100 max-size=-2", "bytes from 0, or -1"),
            ("ring /r 100 no-store=1", "write `no-store`"),
        ] {
            let text = parse(&format!("cache_dir {option}")).expect_err(option);
            let column = "cache_dir ".len() + option.rfind(' ').expect("words") + 2;
            assert!(
                text.contains(&format!("t:2:{column}")) && text.contains(range),
                "{option}: {text}"
            );
        }
        let text = parse("cache_dir coss /r 100 maxfullbufs=10").expect_err("as many as membufs");
        assert!(text.contains("not below `membufs=10`"), "{text}");
        assert!(parse("cache_dir coss /r 100 maxfullbufs=10 membufs=11").is_ok(), "in any order");
        assert!(parse("cache_dir coss /r 100 membufs=3").is_ok(), "the default follows");
        let text = parse("cache_dir rock /r 100 slot_size=4096").expect_err("misspelt");
        assert!(text.contains("did you mean `slot-size`?"), "{text}");
        assert!(parse("cache_dir ufs /r 100 min-size=10 max-size=9").is_err());
    }

    #[test]
    fn the_classic_slips_are_explained() {
        let config = parse("cache_dir 6000 14 256").expect("goes on without it");
        assert!(config.cache_dir.is_empty());
        let text = parse("cache_dir /var/spool/squid 100 16 256").expect_err("slip");
        assert!(text.contains("cache_dir ufs /var/spool/squid 100 16 256"), "{text}");
        for bad in [
            "cache_dir uffs /r 100",
            "cache_dir ufs",
            "cache_dir ufs /a",
            "cache_dir ufs /a 0",
            "cache_dir ufs /a 100 16",
            "cache_dir ufs /a 100 0 256",
            "cache_dir ufs /a 100 16 257",
            "cache_dir ufs /a 99999999999999999",
            "cache_dir ufs /a 100 16 256 max-sise=1",
            "cache_dir ufs /a 100\ncache_dir ufs /a 200",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
