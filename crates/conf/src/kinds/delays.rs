//! `delay_pools`, `client_delay_pools`, `response_delay_pool` and the directives about them.

use super::Kind;
use super::access::read_rule;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::types::{
    DelayAccess, DelayClass, DelayParameters, DelayRate, ResponsePool, ResponsePoolAccess,
};

/// A number of pools; what was said about pools before is dropped.
pub(crate) struct PoolCount;
/// The same, of pools for clients.
pub(crate) struct ClientPoolCount;
/// `POOL CLASS`
pub(crate) struct DelayClasses;
/// `POOL RATE/SIZE…`
pub(crate) struct DelayRates;
/// `POOL RATE SIZE`
pub(crate) struct ClientDelayRates;
/// `POOL allow|deny ACL…`
pub(crate) struct DelayRules;
/// The same, for clients.
pub(crate) struct ClientDelayRules;
/// `NAME OPTION=VALUE…`
pub(crate) struct ResponsePools;
/// `NAME allow|deny ACL…`
pub(crate) struct ResponsePoolRules;

/// A class with the buckets that its parameters are about.
const CLASSES: [(u8, &[&str]); 5] = [
    (1, &["aggregate"]),
    (2, &["aggregate", "individual"]),
    (3, &["aggregate", "network", "individual"]),
    (4, &["aggregate", "network", "individual", "user"]),
    (5, &["tagrate"]),
];

fn read_count(known: &mut u16, line: &mut Line<'_>) -> Result<u16, Problem> {
    let token = line.expect("a number of pools")?;
    *known = token.text.parse().map_err(|_| {
        let why = format!("`{}` is not a whole number from 0 to {}", token.text, u16::MAX);
        token.error(why)
    })?;
    Ok(*known)
}

impl Kind for PoolCount {
    type Out = u16;
    const NAME: &'static str = "number";

    fn apply(out: &mut u16, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut count = 0;
        *out = read_count(&mut count, line)?;
        if line.state.pools.count > 0 {
            let name = line.name.clone();
            line.warn(&name, "a second `delay_pools`: only the number of this line counts", None);
        }
        line.state.pools.count = count;
        Ok(())
    }
}

impl Kind for ClientPoolCount {
    type Out = u16;
    const NAME: &'static str = "number";

    fn apply(out: &mut u16, line: &mut Line<'_>) -> Result<(), Problem> {
        let mut count = 0;
        *out = read_count(&mut count, line)?;
        line.state.pools.client_count = count;
        Ok(())
    }
}

/// The number of a pool. `None`: there is no such pool, and the line has no effect, as in Squid.
fn read_pool(line: &mut Line<'_>, count: u16, of: &str) -> Result<Option<u16>, Problem> {
    let token = line.expect("the number of a pool")?;
    let number: Option<u16> = token.text.parse().ok();
    let Some(number) = number.filter(|number| *number > 0) else {
        let why = format!("`{}` is not the number of a pool", token.text);
        return Err(token.error(why).with_help("pools are numbered from 1"));
    };
    if number > count {
        let why = match count {
            0 => format!("this line has no effect: no `{of}` says how many pools there are"),
            _ => format!("this line has no effect: `{of}` says that there are {count} pools"),
        };
        line.warn(&token, why, Some("write the number of pools on a line above this one"));
        while line.next()?.is_some() {}
        return Ok(None);
    }
    Ok(Some(number))
}

impl Kind for DelayClasses {
    type Out = Vec<DelayClass>;
    const NAME: &'static str = "pool and class";

    fn apply(out: &mut Vec<DelayClass>, line: &mut Line<'_>) -> Result<(), Problem> {
        let count = line.state.pools.count;
        let Some(pool) = read_pool(line, count, "delay_pools")? else { return Ok(()) };
        let token = line.expect("a class from 1 to 5")?;
        let class = token.text.parse().ok().filter(|class| (1..=5).contains(class));
        let Some(class) = class else {
            return Err(token.error(format!("`{}` is not a class from 1 to 5", token.text)));
        };
        let new = DelayClass { pool, class };
        if out.iter().any(|one| one.pool == pool) {
            let why = format!("pool {pool} has a class already");
            return Err(token.error(why).with_help("remove one of the two lines"));
        }
        out.push(new);
        line.state.pools.classes.push(new);
        Ok(())
    }
}

/// `RATE/SIZE`, or `none` and everything that begins with `-`, which are no limit.
fn read_rate(token: &Token) -> Result<Option<DelayRate>, Problem> {
    if token.text == "none" || token.text.starts_with('-') {
        return Ok(None);
    }
    let wrong = |why: String| {
        Err(token.error(why).with_help(
            "write bytes in a second and bytes at most, `64000/128000`, or `none` for no limit",
        ))
    };
    let Some((rate, size)) = token.text.split_once('/') else {
        return wrong(format!("`{}` is not RATE/SIZE", token.text));
    };
    match (rate.parse::<u64>(), size.parse::<u64>()) {
        (Ok(0), _) => wrong("nothing would ever pass at a rate of 0".to_owned()),
        (Ok(rate), Ok(size)) => Ok(Some(DelayRate { rate, size })),
        (Err(_), _) => wrong(format!("`{rate}` is not a number of bytes in a second")),
        (_, Err(_)) => wrong(format!("`{size}` is not a number of bytes")),
    }
}

impl Kind for DelayRates {
    type Out = Vec<DelayParameters>;
    const NAME: &'static str = "pool and rates";

    fn apply(out: &mut Vec<DelayParameters>, line: &mut Line<'_>) -> Result<(), Problem> {
        let count = line.state.pools.count;
        let Some(pool) = read_pool(line, count, "delay_pools")? else { return Ok(()) };
        let class = line.state.pools.classes.iter().find(|one| one.pool == pool);
        let Some(class) = class.map(|one| one.class) else {
            let name = line.name.clone();
            let why = format!("no `delay_class` says of which class pool {pool} is");
            return Err(name.error(why).with_help("write `delay_class` on a line above this one"));
        };
        let buckets = CLASSES.iter().find(|(one, _)| *one == class).map_or(&[][..], |one| one.1);
        let mut rates = Vec::new();
        for bucket in buckets {
            let Some(token) = line.next()? else {
                let why = format!(
                    "a pool of class {class} has {} parameters, {}: `{bucket}` is missing",
                    buckets.len(),
                    buckets.join(", ")
                );
                return Err(line.name.clone().error(why).with_help("write `none` for no limit"));
            };
            rates.push(read_rate(&token)?);
        }
        if let Some(token) = line.next()? {
            let why = format!(
                "a pool of class {class} has no more than {} parameters: {}",
                buckets.len(),
                buckets.join(", ")
            );
            return Err(token.error(why));
        }
        // The last line counts, as in Squid.
        out.retain(|one| one.pool != pool);
        out.push(DelayParameters { pool, rates });
        Ok(())
    }
}

impl Kind for ClientDelayRates {
    type Out = Vec<DelayParameters>;
    const NAME: &'static str = "pool, rate and size";

    fn apply(out: &mut Vec<DelayParameters>, line: &mut Line<'_>) -> Result<(), Problem> {
        let count = line.state.pools.client_count;
        let Some(pool) = read_pool(line, count, "client_delay_pools")? else { return Ok(()) };
        let mut number = |what: &str| {
            let token = line.expect(what)?;
            let number = token.text.parse::<u64>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| token.error(format!("`{}` is not {what}", token.text)))
        };
        let rate = number("a number of bytes in a second")?;
        let size = number("a number of bytes")?;
        out.retain(|one| one.pool != pool);
        out.push(DelayParameters { pool, rates: vec![Some(DelayRate { rate, size })] });
        Ok(())
    }
}

impl Kind for DelayRules {
    type Out = Vec<DelayAccess>;
    const NAME: &'static str = "pool and access rules";

    fn apply(out: &mut Vec<DelayAccess>, line: &mut Line<'_>) -> Result<(), Problem> {
        let count = line.state.pools.count;
        if let Some(pool) = read_pool(line, count, "delay_pools")? {
            out.push(DelayAccess { pool, rule: read_rule(line)? });
        }
        Ok(())
    }
}

impl Kind for ClientDelayRules {
    type Out = Vec<DelayAccess>;
    const NAME: &'static str = "pool and access rules";

    fn apply(out: &mut Vec<DelayAccess>, line: &mut Line<'_>) -> Result<(), Problem> {
        let count = line.state.pools.client_count;
        if let Some(pool) = read_pool(line, count, "client_delay_pools")? {
            out.push(DelayAccess { pool, rule: read_rule(line)? });
        }
        Ok(())
    }
}

impl Kind for ResponsePools {
    type Out = Vec<ResponsePool>;
    const NAME: &'static str = "name and options";

    fn apply(out: &mut Vec<ResponsePool>, line: &mut Line<'_>) -> Result<(), Problem> {
        let name = line.expect("the name of a pool")?;
        if out.iter().any(|pool| pool.name == name.text) {
            return Err(name.error(format!("there is a pool `{}` already", name.text)));
        }
        let mut values: [Option<u64>; OPTIONS.len()] = [None; OPTIONS.len()];
        while let Some(token) = line.next()? {
            let (option, value) = token.text.split_once('=').unwrap_or((&token.text, ""));
            let place = OPTIONS.iter().position(|one| *one == option);
            let Some(place) = place.and_then(|index| values.get_mut(index)) else {
                let problem = token.error(format!("`{option}` is not an option of a pool"));
                return Err(match suggest(option, OPTIONS) {
                    Some(word) => problem.with_help(format!("did you mean `{word}`?")),
                    None => problem,
                });
            };
            let why = || token.error(format!("`{value}` is not a number"));
            *place = Some(value.parse().map_err(|_| why())?);
        }
        let [individual_rate, individual_size, aggregate_rate, aggregate_size, level] = values;
        let both = |rate: Option<u64>, size: Option<u64>| match (rate, size) {
            (Some(rate), Some(size)) if rate > 0 => Ok(Some(DelayRate { rate, size })),
            (None, None) => Ok(None),
            _ => Err(name.error("`…-restore`, which is not 0, and `…-maximum` belong together")),
        };
        out.push(ResponsePool {
            individual: both(individual_rate, individual_size)?,
            aggregate: both(aggregate_rate, aggregate_size)?,
            level_percent: u32::try_from(level.unwrap_or(50)).unwrap_or(u32::MAX),
            name: name.text.clone(),
        });
        line.state.pools.named.push(name.text);
        Ok(())
    }
}

/// Options of `response_delay_pool`.
const OPTIONS: [&str; 5] = [
    "individual-restore",
    "individual-maximum",
    "aggregate-restore",
    "aggregate-maximum",
    "initial-bucket-level",
];

impl Kind for ResponsePoolRules {
    type Out = Vec<ResponsePoolAccess>;
    const NAME: &'static str = "pool and access rules";

    fn apply(out: &mut Vec<ResponsePoolAccess>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("the name of a pool")?;
        let named = &line.state.pools.named;
        if !named.contains(&token.text) {
            let problem = token.error(format!("no pool is named `{}`", token.text));
            return Err(match suggest(&token.text, named.iter().map(String::as_str)) {
                Some(word) => problem.with_help(format!("did you mean `{word}`?")),
                None => problem.with_help("write `response_delay_pool` on a line above this one"),
            });
        }
        out.push(ResponsePoolAccess { pool: token.text, rule: read_rule(line)? });
        Ok(())
    }
}

/// Pools that nothing or nobody is in.
pub(crate) fn check_pools(config: &crate::Config, state: &mut crate::state::State) {
    let mut warn = |message: String, help: &str| {
        state.report_general(crate::Severity::Warning, &message, help);
    };
    for pool in 1..=config.delay_pools {
        let has_rules = config.delay_access.iter().any(|one| one.pool == pool && one.rule.allow);
        if !config.delay_class.iter().any(|one| one.pool == pool) {
            if has_rules {
                let help = "write `delay_class` and `delay_parameters`";
                warn(format!("delay pool {pool} has no class: it slows nothing down"), help);
            }
        } else if !config.delay_parameters.iter().any(|one| one.pool == pool) {
            let help = "write `delay_parameters`";
            warn(format!("delay pool {pool} has no parameters: it slows nothing down"), help);
        } else if !has_rules {
            let help = "write `delay_access`";
            warn(format!("no rule lets any request into delay pool {pool}"), help);
        }
    }
    for pool in 1..=config.client_delay_pools {
        let has_rules =
            config.client_delay_access.iter().any(|one| one.pool == pool && one.rule.allow);
        if has_rules && !config.client_delay_parameters.iter().any(|one| one.pool == pool) {
            let help = "write `client_delay_parameters`";
            warn(format!("client delay pool {pool} has no rate: it slows nothing down"), help);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Severity, parse_str};

    use super::*;

    const ACCESS: &str = "http_port 1\nhttp_access allow all\n";

    fn parse(lines: &str) -> (Config, Vec<String>, usize) {
        let (config, found) = parse_str("t", &format!("{ACCESS}{lines}\n"));
        let errors = found.iter().filter(|one| one.severity == Severity::Error);
        let errors = errors.map(|one| one.message.clone()).collect();
        (config, errors, found.count(Severity::Warning))
    }

    #[test]
    fn the_examples_of_the_manual() {
        let (config, errors, warnings) = parse(
            "delay_pools 4\ndelay_class 1 2\ndelay_class 2 3\ndelay_class 3 4\ndelay_class 4 5\n\
             delay_parameters 1 none 8000/8000\n\
             delay_parameters 2 32000/32000 8000/8000 600/8000\n\
             delay_parameters 3 32000/32000 8000/8000 600/64000 16000/16000\n\
             delay_parameters 4 -1/-1\ndelay_access 1 allow localhost\ndelay_access 2 allow all\n\
             delay_access 3 allow all\ndelay_access 4 allow all\n\
             client_delay_pools 2\nclient_delay_initial_bucket_level 150\n\
             client_delay_parameters 1 1024 2048\nclient_delay_parameters 2 51200 16384\n\
             client_delay_access 1 allow localhost",
        );
        assert_eq!((errors, warnings), (Vec::new(), 0));
        let rate = |rate, size| Some(DelayRate { rate, size });
        assert_eq!(config.delay_parameters[0].rates, [None, rate(8000, 8000)]);
        assert_eq!(config.delay_parameters[2].rates[2], rate(600, 64000));
        assert_eq!(config.delay_parameters[3].rates, [None]);
        assert_eq!(config.client_delay_parameters[1].rates, [rate(51200, 16384)]);
        assert_eq!(config.client_delay_initial_bucket_level, 150);
        assert_eq!(config.delay_initial_bucket_level, 50);
    }

    #[test]
    fn wrong_parameters_are_errors_at_their_place() {
        let begin = "delay_pools 2\ndelay_class 1 2\n";
        for (line, column, why) in [
            ("delay_parameters 1 1/1", 1, "`individual` is missing"),
            ("delay_parameters 1 1/1 1/1 1/1", 28, "no more than 2 parameters"),
            ("delay_parameters 1 1/1 1", 24, "`1` is not RATE/SIZE"),
            ("delay_parameters 1 x/1 1/1", 20, "`x` is not a number of bytes in a second"),
            ("delay_parameters 1 1/1 0/1", 24, "rate of 0"),
            ("delay_parameters 2 1/1", 1, "no `delay_class` says"),
            ("delay_class 2 6", 15, "`6` is not a class"),
            ("delay_class 1 3", 15, "has a class already"),
            ("delay_class 0 3", 13, "not the number of a pool"),
            ("delay_access 1 permit all", 16, "expected `allow` or `deny`"),
            ("client_delay_pools 1\nclient_delay_parameters 1 5", 1, "a number of bytes"),
        ] {
            let text = format!("{ACCESS}{begin}{line}\n");
            let said = parse_str("t", &text).1.render(false);
            let row = text.lines().count();
            assert!(said.contains(why), "{line}: {said}");
            assert!(said.contains(&format!("t:{row}:{column}")), "{line}: {said}");
        }
    }

    #[test]
    fn lines_about_pools_that_do_not_exist_have_no_effect_as_in_squid() {
        let (config, errors, warnings) = parse(
            "delay_pools 1\ndelay_class 2 1\ndelay_parameters 2 1/1\ndelay_access 2 allow all",
        );
        assert_eq!((errors.len(), warnings), (0, 3));
        assert!(config.delay_class.is_empty() && config.delay_access.is_empty());
        assert_eq!(parse("delay_pools 1\ndelay_class 1 1\ndelay_access 1 allow all").2, 1);
        assert_eq!(parse("delay_pools 1\ndelay_access 1 allow all").2, 1);
    }

    #[test]
    fn pools_of_answers_are_known_by_name() {
        let (config, errors, _) = parse(
            "response_delay_pool slow individual-restore=1000 individual-maximum=2000\n\
             response_delay_pool_access slow allow all",
        );
        assert_eq!(errors, Vec::<String>::new());
        let pool = &config.response_delay_pool[0];
        assert_eq!(pool.individual, Some(DelayRate { rate: 1000, size: 2000 }));
        assert_eq!((pool.aggregate, pool.level_percent), (None, 50));
        for wrong in [
            "response_delay_pool a individual-restore=1",
            "response_delay_pool a restore=1",
            "response_delay_pool a aggregate-maximum=x aggregate-restore=1",
            "response_delay_pool_access b allow all",
        ] {
            assert_eq!(parse(wrong).1.len(), 1, "{wrong}");
        }
    }
}
