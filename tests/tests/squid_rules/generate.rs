//! Sets of rules and requests from a seed. Both draw from the same small pools, so that rules
//! match often.

use crate::pools::*;
use crate::requests::Case;
use crate::sets::{Acl, AclLine, Rule, RuleSet, Term};
use crate::unrelated;
use std::time::UNIX_EPOCH;

/// Deterministic random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<'a>(&mut self, pool: &[&'a str]) -> &'a str {
        pool[self.below(pool.len())]
    }

    /// One to `most` entries of a pool, each once.
    fn some(&mut self, pool: &[&str], most: usize) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for _ in 0..=self.below(most) {
            let one = self.of(pool).to_owned();
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// The text with some letters in the other case.
    fn odd_case(&mut self, text: &str) -> String {
        let other = |c: char| match c.is_ascii_lowercase() {
            true => c.to_ascii_uppercase(),
            false => c.to_ascii_lowercase(),
        };
        text.chars().map(|c| if self.percent(25) { other(c) } else { c }).collect()
    }
}

/// A set, and requests for its port.
pub(crate) fn set(random: &mut Random, own: usize, requests: usize) -> (RuleSet, Vec<Case>) {
    let mut set = RuleSet::default();
    for _ in 0..3 + random.below(6) {
        let kind = random.of(KINDS);
        set.acls.push(acl(random, kind));
    }
    for _ in 0..random.below(3) {
        let group = group(random, set.acls.len());
        set.acls.push(group);
    }
    let about_requests = set.acls.len();
    let rule = |random: &mut Random, list: &'static str, acls: usize| {
        let terms = (0..=random.below(3)).map(|_| term(random, acls)).collect();
        Rule { list, allow: random.percent(50), terms }
    };
    for (list, percent, most) in [
        ("http_access", 100, 5),
        ("adapted_http_access", 25, 2),
        ("miss_access", 20, 2),
        ("cache", 20, 2),
    ] {
        if random.percent(percent) {
            for _ in 0..=random.below(most) {
                set.rules.push(rule(random, list, about_requests));
            }
            let allow = list != "http_access" && random.percent(50) || random.percent(70);
            set.rules.push(Rule { list, allow, terms: Vec::new() });
        }
    }
    if random.percent(50) {
        for _ in 0..=random.below(3) {
            let kind = random.of(REPLY_KINDS);
            set.acls.push(acl(random, kind));
        }
        for _ in 0..=random.below(3) {
            set.rules.push(rule(random, "http_reply_access", set.acls.len()));
        }
        let allow = random.percent(70);
        set.rules.push(Rule { list: "http_reply_access", allow, terms: Vec::new() });
    }
    if random.percent(15) {
        let acl = acl(random, "src");
        set.acls.push(acl);
        let terms = vec![Term { acl: set.acls.len() - 1, negated: random.percent(20) }];
        set.rules.push(Rule { list: "follow_x_forwarded_for", allow: true, terms });
    }
    for _ in 0..random.below(4) {
        let page = random.of(&[
            "404:ERR_ACCESS_DENIED",
            "http://where.test/?u=%u&h=%H&m=%M",
            "307:http://where.test/%R",
            "303:http://where.test/?s=%s",
            "TCP_RESET",
            "ERR_DNS_FAIL",
            "511:ERR_CANNOT_FORWARD",
        ]);
        set.deny_infos.push((page.to_owned(), random.below(set.acls.len())));
    }
    let is_known = |one: &&Acl| matches!(one.kind, "dstdomain" | "dstdom_regex");
    let looks_up =
        set.acls.iter().filter(is_known).any(|acl| {
            acl.lines.iter().any(|line| line.lead.first().is_none_or(|flag| flag != "-n"))
        });
    let cases = (0..requests).map(|number| case(random, own * 1000 + number, !looks_up)).collect();
    (set, cases)
}

fn term(random: &mut Random, acls: usize) -> Term {
    Term { acl: random.below(acls), negated: random.percent(25) }
}

fn group(random: &mut Random, acls: usize) -> Acl {
    let kind = random.of(&["any-of", "all-of"]);
    let kind = if kind == "any-of" { "any-of" } else { "all-of" };
    let line = |random: &mut Random| AclLine {
        members: (0..=random.below(3)).map(|_| term(random, acls)).collect(),
        ..AclLine::default()
    };
    let lines = (0..=random.below(2)).map(|_| line(random)).collect();
    Acl { kind, lines }
}

/// Kinds with regular expressions, which take `-i`.
fn expressions(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "dstdom_regex" => HOST_EXPRESSIONS,
        "url_regex" => URL_EXPRESSIONS,
        "urlpath_regex" => PATH_EXPRESSIONS,
        "urllogin" => LOGIN_EXPRESSIONS,
        "browser" => AGENT_EXPRESSIONS,
        "referer_regex" => REFERER_EXPRESSIONS,
        "req_header" | "rep_header" => FRUIT_EXPRESSIONS,
        "req_mime_type" | "rep_mime_type" => MEDIA_EXPRESSIONS,
        _ => return None,
    })
}

fn acl(random: &mut Random, kind: &'static str) -> Acl {
    let field = random.of(&["X-Fruit", "x-fruit", "X-Fruit", "Accept"]).to_owned();
    // In Squid, the flag `-n` of one line counts for all.
    let no_lookup = random.percent(60);
    let line = |random: &mut Random| {
        let mut line = AclLine::default();
        if matches!(kind, "dstdomain" | "dstdom_regex" | "dst") && no_lookup {
            line.lead.push("-n".to_owned());
        }
        if let Some(pool) = expressions(kind) {
            let has_field = kind.ends_with("_header");
            if has_field {
                line.lead.push(field.clone());
            }
            if random.percent(40) {
                // In front of the field the flag is for all lines.
                line.lead.push("-i".to_owned());
            }
            line.values = random.some(pool, 3);
            return line;
        }
        line.values = match kind {
            "src" | "localip" => random.some(SOURCES, 3),
            "dst" => random.some(DESTINATIONS, 3),
            "myportname" => {
                vec![random.of(&["{own}", "{next}", "p"]).to_owned()]
            }
            "annotate_transaction" => {
                random.some(&["color=red", "color=blue", "color+=red", "size=large"], 2)
            }
            "note" => {
                let mut words = vec![random.of(&["color", "color", "size", "none"]).to_owned()];
                if random.percent(60) {
                    words.extend(random.some(&["red", "blue", "large", "re"], 2));
                }
                words
            }
            "port" => random.some(&["80", "443", "8080", "1-1024", "8000-8999", "0", "65535"], 3),
            "dstdomain" => random.some(DOMAINS, 3),
            "proto" => random.some(&["HTTP", "http", "FTP", "https", "NONE", "urn"], 2),
            "method" => random.some(
                &["GET", "HEAD", "POST", "CONNECT", "PUT", "get", "FOO", "OPTIONS", "PROPFIND"],
                3,
            ),
            "http_status" => random.some(&["200", "400-499", "404", "500", "200-299", "0"], 3),
            _ => times(random),
        };
        line
    };
    // In Squid, the name of one line counts for all lines of a `note`.
    let more = if kind == "note" { 0 } else { random.below(2) };
    let mut lines: Vec<AclLine> = (0..=more).map(|_| line(random)).collect();
    unrelated::keep(kind, &mut lines);
    Acl { kind, lines }
}

/// Days and hours, which begin and end hours before or after now.
fn times(random: &mut Random) -> Vec<String> {
    let mut words = Vec::new();
    if random.percent(60) {
        words.push(random.of(&["MTWHFAS", "MTWHF", "AS", "M", "D", "SMT", "W"]).to_owned());
    }
    if words.is_empty() || random.percent(60) {
        // Both programs run in UTC.
        let now_s = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let hour = (now_s / 3600 % 24) as i64;
        let (first, last) = match random.below(3) {
            0 => (0, 24),
            1 => ((hour - 2).max(0), (hour + 3).min(24)),
            _ if hour >= 4 => (0, hour - 2),
            _ => (hour + 3, 24),
        };
        words.push(format!("{first:02}:00-{last:02}:00"));
    }
    words
}

fn case(random: &mut Random, id: usize, may_have_address: bool) -> Case {
    let client: std::net::IpAddr = random.of(CLIENTS).parse().expect("an address");
    let local = match client.is_ipv4() {
        true => random.of(&["127.0.0.1", "127.0.0.3", "127.0.0.9"]).parse().expect("an address"),
        false => client,
    };
    let method = if random.percent(8) { "CONNECT" } else { random.of(METHODS) };
    let bare = match may_have_address && random.percent(25) {
        true => random.of(ADDRESSES),
        false => random.of(NAMES),
    };
    let mut host = if random.percent(30) { random.odd_case(bare) } else { bare.to_owned() };
    if !bare.starts_with('[') && !bare.ends_with(|c: char| c.is_ascii_digit()) {
        host += if random.percent(10) { "." } else { "" };
    }
    let port = if random.percent(40) { format!(":{}", random.of(PORTS)) } else { String::new() };
    let mut target = format!("{host}{port}");
    let twice = method == "GET" && random.percent(15);
    if method == "CONNECT" {
        target = if port.is_empty() { format!("{host}:443") } else { target };
    } else {
        let scheme = match random.below(100) {
            0..3 => "ftp",
            3..6 => "https",
            6..10 => "HTTP",
            _ => "http",
        };
        let login = match random.percent(if scheme == "ftp" { 40 } else { 2 }) {
            true => format!("{}@", random.of(LOGINS)),
            false => String::new(),
        };
        target = format!("{scheme}://{login}{target}{}", random.of(PATHS));
        if twice {
            target += if target.contains('?') { "&" } else { "/?" };
            target += &format!("u={id}");
        }
    }
    let fields = fields(random, &host, twice);
    Case { client, local, method: method.to_owned(), target, fields, twice }
}

fn fields(random: &mut Random, host: &str, twice: bool) -> Vec<(String, String)> {
    let mut fields = vec![("Host".to_owned(), host.to_owned())];
    let mut push = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
    if random.percent(60) {
        push("User-Agent", random.of(AGENTS));
    }
    if random.percent(40) {
        push("Referer", random.of(REFERERS));
    }
    if random.percent(50) {
        push("X-Fruit", random.of(FRUITS));
        if random.percent(25) {
            push("X-Fruit", random.of(FRUITS));
        }
    }
    if random.percent(30) {
        push("Content-Type", random.of(MEDIA));
    }
    if random.percent(25) {
        push(
            "X-Forwarded-For",
            random.of(&["192.0.2.9", "198.51.100.7", "127.0.0.2, 10.0.0.1", "::1"]),
        );
    }
    let media = if random.percent(20) { "-" } else { random.of(MEDIA) };
    let fruit = random.of(&["-", "apple", "Pear", "plum"]);
    // What is asked for twice can be stored, by the rules of both.
    let status = if twice { "200" } else { random.of(STATUSES) };
    push("X-Answer", &format!("{status} {media} {fruit}"));
    fields
}
