//! `client_budget`

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use super::Kind;
use super::access::read_terms;
use super::units::parse_size;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::types::{BudgetKey, BudgetLimits, BudgetRule, Location, Rate, RuleSource};

/// `none|OPTION… [ACL…]`
pub(crate) struct Budgets;

const HELP: &str = "write `requests=100/s`, `burst=200`, `bytes=10GB/day`, `tunnels=50`, \
                    `key=address` or `key=user`, `prefix=56`, `prefix4=24`";

/// The periods, for messages.
const PERIODS: &str = "`/s`, `/min`, `/hour` or `/day`";

impl Kind for Budgets {
    type Out = Vec<BudgetRule>;
    const NAME: &'static str = "limits and ACLs";

    fn apply(out: &mut Vec<BudgetRule>, line: &mut Line<'_>) -> Result<(), Problem> {
        let first = line.expect("a limit")?;
        let Location { file, line: number, .. } = line.location(&first);
        let mut text = format!("{} {}", line.name.text, first.text);
        let limits = match first.text.as_str() {
            "none" => None,
            _ => Some(read_limits(&first, &mut text, line)?),
        };
        let terms = read_terms(line)?;
        for term in &terms {
            text.push_str(if term.negated { " !" } else { " " });
            text.push_str(&term.name);
        }
        let source = Arc::new(RuleSource { text, file, line: number });
        out.push(BudgetRule { limits, terms, source });
        Ok(())
    }
}

/// Reads the options up to the first ACL.
fn read_limits(
    first: &Token,
    text: &mut String,
    line: &mut Line<'_>,
) -> Result<BudgetLimits, Problem> {
    let mut limits = BudgetLimits::default();
    let mut burst = None;
    read_option(&mut limits, &mut burst, first)?;
    let name = |token: &Token| token.text.split('=').next().unwrap_or_default().to_owned();
    let mut names = vec![name(first)];
    while let Some(next) = line.peek().filter(|next| next.text.contains('=')) {
        line.next()?;
        read_option(&mut limits, &mut burst, &next)?;
        if names.contains(&name(&next)) {
            return Err(next.error(format!("`{}=` is here twice", name(&next))));
        }
        names.push(name(&next));
        text.push(' ');
        text.push_str(&next.text);
    }
    limits.burst = match (&limits.requests, burst) {
        (Some(rate), None) => rate.amount,
        (Some(_), Some(burst)) => burst,
        (None, Some(_)) => return Err(first.error("`burst=` needs `requests=`")),
        (None, None) => 0,
    };
    if limits.requests.is_none() && limits.bytes.is_none() && limits.tunnels.is_none() {
        return Err(first.error("this line limits nothing").with_help(HELP));
    }
    Ok(limits)
}

fn read_option(
    limits: &mut BudgetLimits,
    burst: &mut Option<u64>,
    token: &Token,
) -> Result<(), Problem> {
    let Some((name, value)) = token.text.split_once('=') else {
        return Err(token.error(format!("`{}` is no limit", token.text)).with_help(HELP));
    };
    let number = || -> Result<u64, Problem> {
        let wrong = || token.error(format!("`{value}` is not a number above 0"));
        value.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
    };
    match name {
        "requests" => limits.requests = Some(read_rate(value, token, |text| text.parse().ok())?),
        "bytes" => limits.bytes = Some(read_rate(value, token, parse_size)?),
        "burst" => *burst = Some(number()?),
        // 0 is a limit as well.
        "tunnels" => {
            let most = value.parse().ok();
            let wrong = || token.error(format!("`{value}` is not a number of tunnels"));
            limits.tunnels = Some(most.ok_or_else(wrong)?);
        }
        "prefix" => limits.prefix_bits.1 = read_prefix(value, token, Ipv6Addr::BITS)?,
        "prefix4" => limits.prefix_bits.0 = read_prefix(value, token, Ipv4Addr::BITS)?,
        "key" => {
            limits.key = match value {
                "address" => BudgetKey::Address,
                "user" => BudgetKey::User,
                _ => return Err(token.error("the key is `address` or `user`")),
            }
        }
        _ => {
            let why = format!("`{name}` is no limit of `client_budget`");
            return Err(token.error(why).with_help(HELP));
        }
    }
    Ok(())
}

fn read_prefix(value: &str, token: &Token, most: u32) -> Result<u32, Problem> {
    let bits = value.parse().ok().filter(|bits| (1..=most).contains(bits));
    bits.ok_or_else(|| token.error(format!("`{value}` is not a length from 1 to {most}")))
}

/// `AMOUNT/PERIOD`
fn read_rate(
    value: &str,
    token: &Token,
    amount: impl Fn(&str) -> Option<u64>,
) -> Result<Rate, Problem> {
    let wrong = || {
        let why = format!("`{value}` is not an amount in a period");
        token.error(why).with_help(format!("write the amount and {PERIODS}"))
    };
    let (number, period) = value.split_once('/').ok_or_else(wrong)?;
    let amount = amount(number).filter(|amount| *amount > 0).ok_or_else(wrong)?;
    let seconds = match period {
        "s" | "sec" | "second" => 1,
        "m" | "min" | "minute" => 60,
        "h" | "hour" => 3_600,
        "d" | "day" => 86_400,
        _ => return Err(wrong()),
    };
    Ok(Rate { amount, period: Duration::from_secs(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_str;

    fn read(lines: &str) -> Result<Vec<BudgetRule>, String> {
        let (config, found) =
            parse_str("t", &format!("http_port 1\nacl a src 10.0.0.1\n{lines}\n"));
        if found.has_errors() { Err(found.render(false)) } else { Ok(config.client_budget) }
    }

    #[test]
    fn limits_have_amounts_periods_and_conditions() {
        let lines = "client_budget none a\n\
                     client_budget requests=100/s burst=200 bytes=10GB/day tunnels=50 key=user !a\n\
                     client_budget requests=5/min\n";
        let rules = read(lines).expect("fine");
        assert_eq!((rules[0].limits.is_none(), rules[0].terms.len()), (true, 1));
        let rate = |amount, seconds| Some(Rate { amount, period: Duration::from_secs(seconds) });
        let wanted = BudgetLimits {
            key: BudgetKey::User,
            requests: rate(100, 1),
            burst: 200,
            bytes: rate(10 << 30, 86_400),
            tunnels: Some(50),
            ..BudgetLimits::default()
        };
        assert_eq!(rules[1].limits.as_ref(), Some(&wanted));
        assert!(rules[1].terms[0].negated);
        assert_eq!(
            rules[1].source.to_string(),
            "client_budget requests=100/s burst=200 bytes=10GB/day tunnels=50 key=user !a (t:4)"
        );
        let last = rules[2].limits.clone().expect("limits");
        assert_eq!((last.burst, last.requests), (5, rate(5, 60)));
        assert_eq!(last.prefix_bits, (32, 64));
        let rules = read("client_budget tunnels=1 prefix=56 prefix4=24").expect("fine");
        assert_eq!(rules[0].limits.as_ref().expect("limits").prefix_bits, (24, 56));
    }

    #[test]
    fn what_limits_nothing_or_is_not_known_is_an_error() {
        for (line, why) in [
            ("client_budget", "missing"),
            ("client_budget a", "`a` is no limit"),
            ("client_budget key=user", "limits nothing"),
            ("client_budget burst=5 tunnels=1", "needs `requests=`"),
            ("client_budget requests=5", "not an amount in a period"),
            ("client_budget requests=0/s", "not an amount in a period"),
            ("client_budget requests=5/week", "not an amount in a period"),
            ("client_budget bytes=5XB/day", "not an amount in a period"),
            ("client_budget tunnels=many", "not a number of tunnels"),
            ("client_budget tunnels=1 key=host", "`address` or `user`"),
            ("client_budget tunnels=1 prefix=129", "`129` is not a length from 1 to 128"),
            ("client_budget tunnels=1 prefix4=33", "not a length from 1 to 32"),
            ("client_budget tunnels=1 prefix=0", "not a length"),
            ("client_budget prefix=48", "limits nothing"),
            ("client_budget tunnels=1 speed=5/s", "no limit of `client_budget`"),
            ("client_budget tunnels=1 tunnels=2", "`tunnels=` is here twice"),
            ("client_budget requests=1/s key=user requests=2/s", "`requests=` is here twice"),
            ("client_budget tunnels=1 nobody", "no ACL is named `nobody`"),
        ] {
            let said = read(line).expect_err(line);
            assert!(said.contains(why), "{line}: {said}");
        }
        assert!(read("client_budget tunnels=0").is_ok());
    }
}
