//! `lists KIND ENTRIES FILE`: writes a list made by a seed to FILE, and prints what it costs to
//! load it and to ask it. `cargo xtask bench acl` puts the figures side by side.
//!
//! Half of the questions that do not match are near misses of entries, the others have nothing in
//! common with them.
#![allow(clippy::print_stdout, reason = "prints its result")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Instant;

use humboldt_acl::{AclSet, RuleList, Subject};
use humboldt_base::rng::Rng;
use humboldt_conf::Config;

/// Seeds of the list, and of questions without an entry.
const LIST_SEED: u64 = 1;
const OTHERS_SEED: u64 = 2;

/// More questions than caches of the processor have room for, and another order than that of the
/// list.
const QUESTIONS: usize = 100_000;

/// How often they are asked in a round: the kernel accounts for time in steps of milliseconds.
const REPEATS: usize = 5;

/// Rounds of questions, and of loading.
const ROUNDS: usize = 7;
const LOADS: usize = 3;

type Failure = Box<dyn std::error::Error>;

#[derive(Copy, Clone)]
enum Kind {
    Domains,
    Addresses,
    Literals { ignore_case: bool },
}

/// A question, as the kind asks it.
enum Question {
    Host(String),
    Client(IpAddr),
    Url(String),
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, entries, file] = arguments.as_slice() else {
        return Err("write: lists KIND ENTRIES FILE".into());
    };
    let (kind, path) = (Kind::named(kind)?, Path::new(file));
    let list = made(kind, LIST_SEED, entries.parse()?);
    std::fs::write(path, list.join("\n") + "\n")?;
    let (mut seconds, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..LOADS {
        let begin = Instant::now();
        let begin_ns = cpu_ns()?;
        let loaded = compiled(&read(kind, path)?)?;
        seconds.push((cpu_ns()? - begin_ns) / 1e9);
        wall.push(begin.elapsed().as_secs_f64());
        drop(loaded);
    }
    print("load_s:", &seconds);
    print("wall_s:", &wall);
    let mut outcome = Ok(None);
    let as_read = allocation_counter::measure(|| outcome = read(kind, path).map(Some));
    let config = outcome?.ok_or("nothing was read")?;
    let mut outcome = Ok(None);
    let in_use = allocation_counter::measure(|| outcome = compiled(&config).map(Some));
    let rules = outcome?.ok_or("nothing was compiled")?;
    drop(config);
    let each = |bytes: i64| bytes as f64 / list.len() as f64;
    print("read_bytes:", &[each(as_read.bytes_current)]);
    print("compiled_bytes:", &[each(in_use.bytes_current)]);
    let (matching, others) = questions(kind, &list, &rules);
    print("match_ns:", &rounds(&rules, &matching, true)?);
    print("other_ns:", &rounds(&rules, &others, false)?);
    Ok(())
}

impl Kind {
    fn named(name: &str) -> Result<Self, Failure> {
        Ok(match name {
            "dstdomain" => Self::Domains,
            "src" => Self::Addresses,
            "url_regex" => Self::Literals { ignore_case: false },
            "url_regex -i" => Self::Literals { ignore_case: true },
            _ => return Err(format!("there is no kind {name}").into()),
        })
    }

    fn type_and_flags(self) -> &'static str {
        match self {
            Self::Domains => "dstdomain",
            Self::Addresses => "src",
            Self::Literals { ignore_case: false } => "url_regex",
            Self::Literals { ignore_case: true } => "url_regex -i",
        }
    }
}

/// Processor time of this thread: other programs of the machine do not count.
fn cpu_ns() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().ok_or("schedstat is empty")?;
    Ok(first.parse()?)
}

fn print(label: &str, values: &[f64]) {
    let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    println!("{label} {}", values.join(" "));
}

fn made(kind: Kind, seed: u64, entries: usize) -> Vec<String> {
    let mut rng = Rng::new(seed);
    (0..entries).map(|_| entry(kind, &mut rng)).collect()
}

fn entry(kind: Kind, rng: &mut Rng) -> String {
    match kind {
        Kind::Domains => format!("{}{}", pick(rng, &["", "."]), domain(rng)),
        Kind::Addresses => {
            let address = Ipv4Addr::from_bits(rng.next_u64() as u32);
            match rng.below(2) {
                0 => address.to_string(),
                _ => {
                    let bits = 24 + rng.below(6) as u32;
                    let network = address.to_bits() >> (32 - bits) << (32 - bits);
                    format!("{}/{bits}", Ipv4Addr::from_bits(network))
                }
            }
        }
        Kind::Literals { .. } => format!("{}/{}", domain(rng), word(rng)).replace('.', "\\."),
    }
}

fn domain(rng: &mut Rng) -> String {
    let name = format!("{}.{}", word(rng), pick(rng, &["com", "net", "org", "example", "co.uk"]));
    match rng.below(3) {
        0 => format!("{}{}.{name}", pick(rng, &["ads", "track", "cdn", "img"]), rng.below(100)),
        _ => name,
    }
}

/// Eight to fifteen letters: enough that hardly any of a million occurs twice, as Squid refuses a
/// list with a name and its domain.
fn word(rng: &mut Rng) -> String {
    let len = 8 + rng.below(8);
    (0..len).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from.get(rng.below(from.len() as u64) as usize).copied().unwrap_or_default()
}

fn read(kind: Kind, path: &Path) -> Result<Config, Failure> {
    let text = format!(
        "http_port 3128\nacl listed {} \"{}\"\nhttp_access deny listed\nhttp_access allow all\n",
        kind.type_and_flags(),
        path.display()
    );
    let (config, found) = humboldt_conf::parse_str("bench", &text);
    if found.has_errors() { Err(found.render(false).into()) } else { Ok(config) }
}

fn compiled(config: &Config) -> Result<RuleList, Failure> {
    let said = |errors: Vec<humboldt_acl::AclError>| {
        errors.first().map_or_else(String::new, ToString::to_string)
    };
    let acls = AclSet::compile(&config.acl).map_err(said)?;
    Ok(RuleList::compile(&acls, &config.http_access, false).map_err(said)?)
}

/// Questions that match an entry, and such that match none.
fn questions(kind: Kind, list: &[String], rules: &RuleList) -> (Vec<Question>, Vec<Question>) {
    let mut rng = Rng::new(OTHERS_SEED);
    let (mut matching, mut others) = (Vec::new(), Vec::new());
    while matching.len() < QUESTIONS || others.len() < QUESTIONS {
        let Some(entry) = list.get(rng.below(list.len() as u64) as usize) else { break };
        matching.push(hit(kind, entry));
        let other = match rng.below(2) {
            0 => near_miss(kind, entry),
            _ => hit(kind, &self::entry(kind, &mut rng)),
        };
        others.extend(Some(other).filter(|other| !denied(rules, other)));
    }
    matching.truncate(QUESTIONS);
    others.truncate(QUESTIONS);
    (matching, others)
}

fn hit(kind: Kind, entry: &str) -> Question {
    match kind {
        Kind::Domains => Question::Host(match entry.strip_prefix('.') {
            Some(domain) => format!("www.{domain}"),
            None => entry.to_owned(),
        }),
        Kind::Addresses => Question::Client(first_address(entry)),
        Kind::Literals { .. } => {
            Question::Url(format!("http://www.{}/size/120x600.gif", entry.replace('\\', "")))
        }
    }
}

fn near_miss(kind: Kind, entry: &str) -> Question {
    match kind {
        Kind::Domains => Question::Host(format!("x{}", entry.trim_start_matches('.'))),
        Kind::Addresses => match first_address(entry) {
            IpAddr::V4(address) => {
                Question::Client(Ipv4Addr::from_bits(address.to_bits().wrapping_sub(1)).into())
            }
            other => Question::Client(other),
        },
        Kind::Literals { .. } => {
            let mut text = entry.replace('\\', "");
            text.pop();
            Question::Url(format!("http://www.{text}0/size/120x600.gif"))
        }
    }
}

fn first_address(entry: &str) -> IpAddr {
    let address = entry.split('/').next().unwrap_or_default();
    address.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

fn denied(rules: &RuleList, question: &Question) -> bool {
    let mut subject = Subject::default();
    match question {
        Question::Host(host) => subject.host = host.as_bytes(),
        Question::Client(address) => subject.client_ip = *address,
        Question::Url(url) => subject.url = url.as_bytes(),
    }
    !rules.check(&subject).is_allowed()
}

/// Nanoseconds of a question, in each round.
fn rounds(rules: &RuleList, questions: &[Question], expected: bool) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        let begin_ns = cpu_ns()?;
        let mut matched = 0;
        for _ in 0..REPEATS {
            matched += questions.iter().filter(|asked| denied(rules, black_box(asked))).count();
        }
        let asked = REPEATS * questions.len();
        all.push((cpu_ns()? - begin_ns) / asked as f64);
        if matched != if expected { asked } else { 0 } {
            return Err(format!("{matched} of {asked} questions match").into());
        }
    }
    Ok(all)
}
