use std::future::Future;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::task::LocalSet;

use super::*;

/// What the test's name server does with a question.
#[derive(Clone, Copy)]
enum Reply {
    Addresses(&'static [&'static str]),
    Code(u8),
    Silence,
}

/// A name server on loopback: answers by the first label of the name, and counts questions of type A.
struct NameServer {
    addr: SocketAddr,
    questions: Arc<AtomicUsize>,
}

const TTL_S: u32 = 300;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let questions = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&questions);
        thread::spawn(move || {
            let mut packet = [0_u8; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if let Some(answer) = answer(&packet[..length], &counter) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { addr, questions }
    }

    fn options(&self) -> DnsOptions {
        DnsOptions {
            nameservers: vec![self.addr],
            timeout: Duration::from_millis(900),
            retransmit: Duration::from_millis(300),
            ..DnsOptions::default()
        }
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

fn reply_to(name: &str, qtype: u16) -> Reply {
    match (name, qtype) {
        ("both.test" | "short.lan", TYPE_A) => Reply::Addresses(&["192.0.2.1", "192.0.2.2"]),
        ("both.test", TYPE_AAAA) => Reply::Addresses(&["2001:db8::1"]),
        ("half.test", TYPE_A) => Reply::Addresses(&["192.0.2.3"]),
        ("half.test", _) => Reply::Silence,
        ("empty.test" | "short.lan", _) => Reply::Code(0),
        ("broken.test", _) => Reply::Code(2),
        ("silent.test", _) => Reply::Silence,
        _ => Reply::Code(3),
    }
}

fn answer(question: &[u8], counter: &AtomicUsize) -> Option<Vec<u8>> {
    let mut labels: Vec<String> = Vec::new();
    let mut at = 12;
    while question[at] > 0 {
        let length = usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..at + 1 + length]).to_lowercase());
        at += 1 + length;
    }
    let qtype = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let end = at + 5;
    if qtype == TYPE_A {
        counter.fetch_add(1, Ordering::SeqCst);
    }
    let (code, addresses): (u8, &[&str]) = match reply_to(&labels.join("."), qtype) {
        Reply::Silence => return None,
        Reply::Code(code) => (code, &[]),
        Reply::Addresses(addresses) => (0, addresses),
    };
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    out.extend(&question[12..end]);
    for address in addresses {
        let data = match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        out.extend([0xc0, 12]);
        out.extend(qtype.to_be_bytes());
        out.extend([0, 1]);
        out.extend(TTL_S.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
    Some(out)
}

/// Runs `test` on a core, with an empty name cache.
fn on_core<F: Future<Output = ()>>(options: DnsOptions, test: impl FnOnce(Resolver, Arc<NameCache>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let names = Arc::new(NameCache::new(100));
        let resolver = Resolver::new(options, Arc::clone(&names), Arc::new(Counters::default()));
        test(resolver, names).await;
    });
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn both_families_are_asked_for_and_remembered() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, names| async move {
        for host in ["both.test", "BOTH.test."] {
            let found = resolver.lookup(host).await.unwrap();
            assert_eq!(found.to_vec(), ips(&["2001:db8::1", "192.0.2.1", "192.0.2.2"]));
        }
        assert_eq!(server.questions(), 1, "the second was answered from the cache");
        let later = |s| Instant::now() + Duration::from_secs(s);
        assert!(names.get("both.test", later(u64::from(TTL_S) - 10)).is_some());
        assert!(names.get("both.test", later(u64::from(TTL_S) + 10)).is_none());
        let counters = &resolver.inner.counters;
        let counted = [Counter::DnsHits, Counter::DnsMisses, Counter::DnsErrors].map(|c| counters.get(c));
        assert_eq!(counted, [1, 1, 0]);
    });
}

#[test]
fn each_failure_has_its_reason_and_is_remembered() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, names| async move {
        assert_eq!(resolver.lookup("nowhere.test").await, Err(DnsError::NoSuchName));
        assert_eq!(resolver.lookup("empty.test").await, Err(DnsError::Empty));
        let broken = resolver.lookup("broken.test").await;
        assert!(matches!(broken, Err(DnsError::ServFail(_))), "{broken:?}");
        let asked = server.questions();
        assert_eq!(resolver.lookup("nowhere.test").await, Err(DnsError::NoSuchName));
        assert_eq!(server.questions(), asked);
        let soon = Instant::now() + TEMPORARY_FAILURE_TTL;
        assert!(names.get("broken.test", soon).is_none(), "a temporary failure is forgotten soon");
        assert!(names.get("empty.test", soon).is_some());
        let asked = server.questions();
        assert_eq!(resolver.lookup("a b").await, Err(DnsError::InvalidName));
        assert_eq!(server.questions(), asked, "what is no name is not asked for");
    });
}

#[test]
fn silence_ends_at_the_time_limit() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, _| async move {
        let start = Instant::now();
        assert_eq!(resolver.lookup("silent.test").await, Err(DnsError::Timeout));
        assert!(start.elapsed() >= Duration::from_millis(800), "asked again before giving up");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_family_that_is_not_answered_does_not_hold_up_the_other() {
    let server = NameServer::start();
    on_core(DnsOptions { timeout: Duration::from_secs(20), ..server.options() }, |resolver, _| async move {
        let start = Instant::now();
        assert_eq!(resolver.lookup("half.test").await.unwrap().to_vec(), ips(&["192.0.2.3"]));
        assert!(start.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn equal_questions_at_the_same_time_are_one_and_survive_their_askers() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let resolver = Rc::clone(&resolver);
                tokio::task::spawn_local(async move { resolver.lookup("both.test").await })
            })
            .collect();
        tokio::task::yield_now().await;
        tasks[0].abort(); // the one that asked
        for task in tasks.into_iter().skip(1) {
            assert_eq!(task.await.unwrap().unwrap().len(), 3);
        }
        assert_eq!(server.questions(), 1);
    });
}

#[test]
fn names_without_a_dot_get_the_domain() {
    let server = NameServer::start();
    let options = DnsOptions { append_domain: Some(".lan".into()), ..server.options() };
    on_core(options, |resolver, _| async move {
        assert_eq!(resolver.lookup("short").await.unwrap().len(), 2);
    });
}

#[test]
fn without_name_servers_what_is_known_locally_still_works() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "10.0.0.9 printer\n").unwrap();
    on_core(DnsOptions::default(), |mut resolver, names| async move {
        let inner = Rc::get_mut(&mut resolver.inner).unwrap();
        inner.upstream = Upstream::unusable("no configuration");
        names.load_hosts(Some(&hosts), None).unwrap();
        let known = [
            ("192.0.2.7", "192.0.2.7"),
            ("[2001:db8::7]", "2001:db8::7"),
            ("2001:db8::7", "2001:db8::7"),
            ("localhost", "127.0.0.1"),
            ("LocalHost.", "127.0.0.1"),
            ("a.localhost", "127.0.0.1"),
            ("Printer", "10.0.0.9"),
        ];
        for (host, first) in known {
            assert_eq!(resolver.lookup(host).await.unwrap()[0], ips(&[first])[0], "{host}");
        }
        assert_eq!(resolver.unavailable_reason(), Some("no configuration"));
        let unknown = resolver.lookup("notlocalhost.test").await;
        assert_eq!(unknown, Err(DnsError::Unavailable("no configuration".into())));
    });
}
