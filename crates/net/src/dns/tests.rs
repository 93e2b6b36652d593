use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::task::LocalSet;

use super::*;

/// The reaction of the test's name server to a question.
#[derive(Clone, Copy)]
enum Reply {
    Addresses(&'static [&'static str]),
    Names(&'static [&'static str]),
    Code(u8),
    Silence,
}

/// A name server on loopback: answers by the first label of the name, and counts questions of type
/// A.
struct NameServer {
    addr: SocketAddr,
    questions: Arc<AtomicUsize>,
}

const TTL_S: u32 = 300;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_PTR: u16 = 12;

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
            timeout: Duration::from_secs(20),
            retransmit: Duration::from_secs(10),
            ..DnsOptions::default()
        }
    }

    /// For questions that are not answered.
    fn hasty_options(&self) -> DnsOptions {
        DnsOptions {
            timeout: Duration::from_millis(900),
            retransmit: Duration::from_millis(300),
            ..self.options()
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
        ("1.2.0.192.in-addr.arpa", TYPE_PTR) => Reply::Names(&["", "PC1.Inside.test", "b.test"]),
        ("1.2.0.192.in-addr.arpa", TYPE_A) => Reply::Addresses(&["192.0.2.77"]),
        ("2.2.0.192.in-addr.arpa", TYPE_PTR) => Reply::Silence,
        ("3.2.0.192.in-addr.arpa", TYPE_PTR) => Reply::Code(2),
        ("4.2.0.192.in-addr.arpa", TYPE_PTR) => Reply::Code(0),
        ("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", TYPE_PTR) => {
            Reply::Names(&["six.test"])
        }
        ("good.silent.test", TYPE_A) => Reply::Addresses(&["192.0.2.9"]),
        ("good.silent.test", _) => Reply::Code(0),
        (name, _) if name.ends_with(".silent.test") => Reply::Silence,
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
    if matches!(qtype, TYPE_A | TYPE_PTR) {
        counter.fetch_add(1, Ordering::SeqCst);
    }
    let (code, addresses): (u8, &[&str]) = match reply_to(&labels.join("."), qtype) {
        Reply::Silence => return None,
        Reply::Code(code) => (code, &[]),
        Reply::Addresses(records) | Reply::Names(records) => (0, records),
    };
    let mut out = question[..2].to_vec();
    out.extend([0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    out.extend(&question[12..end]);
    for address in addresses {
        let data = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Ok(IpAddr::V6(ip)) => ip.octets().to_vec(),
            Err(_) => name_data(address),
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

/// A name as a record has it.
fn name_data(name: &str) -> Vec<u8> {
    let mut data = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
}

/// Runs `test` on a core, with an empty name cache.
fn on_core<F: Future<Output = ()>>(
    options: DnsOptions,
    test: impl FnOnce(Resolver, Arc<NameCache>) -> F,
) {
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
            let found = resolver.lookup(host, Asker::Proxy).await.unwrap();
            assert_eq!(found.to_vec(), ips(&["2001:db8::1", "192.0.2.1", "192.0.2.2"]));
        }
        assert_eq!(server.questions(), 1, "the second was answered from the cache");
        let later = |s| Instant::now() + Duration::from_secs(s);
        assert!(names.get("both.test", later(u64::from(TTL_S) - 10)).is_some());
        assert!(names.get("both.test", later(u64::from(TTL_S) + 10)).is_none());
        let counters = &resolver.inner.counters;
        let counted =
            [Counter::DnsHits, Counter::DnsMisses, Counter::DnsErrors].map(|c| counters.get(c));
        assert_eq!(counted, [1, 1, 0]);
    });
}

#[test]
fn each_failure_has_its_reason_and_is_remembered() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, names| async move {
        assert_eq!(resolver.lookup("nowhere.test", Asker::Proxy).await, Err(DnsError::NoSuchName));
        assert_eq!(resolver.lookup("empty.test", Asker::Proxy).await, Err(DnsError::Empty));
        let broken = resolver.lookup("broken.test", Asker::Proxy).await;
        assert!(matches!(broken, Err(DnsError::ServFail(_))), "{broken:?}");
        let asked = server.questions();
        assert_eq!(resolver.lookup("nowhere.test", Asker::Proxy).await, Err(DnsError::NoSuchName));
        assert_eq!(server.questions(), asked);
        let soon = Instant::now() + TEMPORARY_FAILURE_TTL;
        assert!(names.get("broken.test", soon).is_none(), "a temporary failure is forgotten soon");
        assert!(names.get("empty.test", soon).is_some());
        let asked = server.questions();
        assert_eq!(resolver.lookup("a b", Asker::Proxy).await, Err(DnsError::InvalidName));
        assert_eq!(server.questions(), asked, "what is no name is not asked for");
    });
}

#[test]
fn an_address_has_the_first_name_that_the_servers_have_for_it() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, names| async move {
        let name = async |text: &str| resolver.name_of(text.parse().unwrap(), Asker::Proxy).await;
        for address in ["192.0.2.1", "::ffff:192.0.2.1"] {
            assert_eq!(name(address).await.as_deref(), Ok("PC1.Inside.test"), "{address}");
        }
        assert_eq!(server.questions(), 1, "the second was answered from the cache");
        assert_eq!(name("2001:db8::1").await.as_deref(), Ok("six.test"));
        let reverse = resolver.lookup("1.2.0.192.in-addr.arpa", Asker::Proxy).await;
        assert_eq!(reverse.unwrap().to_vec(), ips(&["192.0.2.77"]), "not taken for each other");
        assert!(matches!(name("192.0.2.3").await, Err(DnsError::ServFail(_))));
        assert_eq!(name("192.0.2.4").await, Err(DnsError::Empty));
        assert_eq!(name("192.0.2.5").await, Err(DnsError::NoSuchName));
        let soon = Instant::now() + TEMPORARY_FAILURE_TTL;
        assert!(names.get("PTR 5.2.0.192.in-addr.arpa", soon).is_some());
        let asked = server.questions();
        assert_eq!(name("0.0.0.0").await, Err(DnsError::NoSuchName));
        assert_eq!(server.questions(), asked);
    });
}

#[test]
fn silence_about_an_address_is_forgotten_soon() {
    let server = NameServer::start();
    on_core(server.hasty_options(), |resolver, names| async move {
        let name = resolver.name_of("192.0.2.2".parse().unwrap(), Asker::Proxy).await;
        assert_eq!(name, Err(DnsError::Timeout));
        let soon = Instant::now() + TEMPORARY_FAILURE_TTL;
        assert!(names.get("PTR 2.2.0.192.in-addr.arpa", soon).is_none());
    });
}

#[test]
fn silence_ends_at_the_time_limit() {
    let server = NameServer::start();
    on_core(server.hasty_options(), |resolver, _| async move {
        let start = Instant::now();
        assert_eq!(resolver.lookup("silent.test", Asker::Proxy).await, Err(DnsError::Timeout));
        assert!(start.elapsed() >= Duration::from_millis(800), "asked again before giving up");
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_family_that_is_not_answered_does_not_hold_up_the_other() {
    let server = NameServer::start();
    on_core(
        DnsOptions { timeout: Duration::from_secs(20), ..server.options() },
        |resolver, _| async move {
            let start = Instant::now();
            assert_eq!(
                resolver.lookup("half.test", Asker::Proxy).await.unwrap().to_vec(),
                ips(&["192.0.2.3"])
            );
            assert!(start.elapsed() < Duration::from_secs(10));
        },
    );
}

#[test]
fn equal_questions_at_the_same_time_are_one_and_survive_their_askers() {
    let server = NameServer::start();
    on_core(server.options(), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let resolver = Rc::clone(&resolver);
                tokio::task::spawn_local(
                    async move { resolver.lookup("both.test", Asker::Proxy).await },
                )
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

/// A look-up that goes on by itself.
fn spawn(resolver: &Rc<Resolver>, name: String, asker: Asker) -> tokio::task::JoinHandle<Answer> {
    let resolver = Rc::clone(resolver);
    tokio::task::spawn_local(async move { resolver.lookup(&name, asker).await })
}

/// Lets all tasks run until none of them can go on by itself.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn client(n: u8) -> Asker {
    Asker::Client(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)))
}

/// Options with which nothing ends by itself while a test runs.
fn patient(server: &NameServer) -> DnsOptions {
    DnsOptions {
        timeout: Duration::from_secs(300),
        retransmit: Duration::from_secs(60),
        ..server.options()
    }
}

#[test]
fn five_thousand_silent_names_of_one_client_leave_room_for_others_and_for_its_own() {
    let server = NameServer::start();
    on_core(patient(&server), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let greedy: Vec<_> =
            (0..5_000).map(|n| spawn(&resolver, format!("n{n}.silent.test"), client(1))).collect();
        settle().await;
        {
            let questions = resolver.inner.questions.borrow();
            let held = (questions.len(), questions.queued());
            assert_eq!(held, (QUESTIONS_PER_CLIENT_MAX, WAITING_PER_CLIENT_MAX));
        }
        for asker in [client(2), client(1)] {
            let found = resolver.lookup("both.test", asker).await.unwrap();
            assert_eq!(found.len(), 3, "{asker:?}");
            resolver.inner.names.clear();
        }
        let busy = greedy.iter().filter(|task| task.is_finished()).count();
        // One of them made way for the client's own name in another zone.
        let held = QUESTIONS_PER_CLIENT_MAX + WAITING_PER_CLIENT_MAX;
        assert!(busy == 5_000 - held || busy == 5_000 - held + 1, "{busy}");
        greedy.iter().for_each(|task| task.abort());
    });
}

#[test]
fn a_question_ends_with_the_last_who_waits_for_it() {
    let server = NameServer::start();
    on_core(patient(&server), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let both = [1, 2].map(|n| spawn(&resolver, "silent.test".into(), client(n)));
        let tasks: Vec<_> =
            (0..1_100).map(|n| spawn(&resolver, format!("n{n}.silent.test"), client(1))).collect();
        settle().await;
        assert_eq!(resolver.inner.questions.borrow().len(), QUESTIONS_PER_CLIENT_MAX);
        tasks.iter().for_each(|task| task.abort());
        both[0].abort();
        settle().await;
        let held = |resolver: &Resolver| {
            let questions = resolver.inner.questions.borrow();
            (questions.len(), questions.queued())
        };
        assert_eq!(held(&resolver), (1, 0), "the second client waits still");
        both[1].abort();
        settle().await;
        assert_eq!(held(&resolver), (0, 0));
    });
}

#[test]
fn who_finds_no_place_waits_for_one() {
    let server = NameServer::start();
    on_core(patient(&server), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let tasks: Vec<_> = (0..QUESTIONS_PER_CLIENT_MAX)
            .map(|n| spawn(&resolver, format!("n{n}.silent.test"), client(1)))
            .collect();
        settle().await;
        // A task that is woken after it has left passes the place on.
        let left = spawn(&resolver, "gone.silent.test".into(), client(1));
        let good = spawn(&resolver, "good.silent.test".into(), client(1));
        settle().await;
        assert!(!good.is_finished());
        assert_eq!(resolver.inner.questions.borrow().queued(), 2);
        left.abort();
        tasks[7].abort();
        assert_eq!(good.await.unwrap().unwrap().to_vec(), ips(&["192.0.2.9"]));
        tasks.iter().for_each(|task| task.abort());
    });
}

#[test]
fn the_wait_for_a_place_has_an_end() {
    let server = NameServer::start();
    on_core(server.hasty_options(), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let start = Instant::now();
        let tasks: Vec<_> = (0..QUESTIONS_PER_CLIENT_MAX)
            .map(|n| spawn(&resolver, format!("n{n}.silent.test"), client(1)))
            .collect();
        settle().await;
        let (waits, joins) = (
            spawn(&resolver, "more.silent.test".into(), client(1)),
            spawn(&resolver, "n0.silent.test".into(), client(2)),
        );
        assert!(matches!(waits.await.unwrap(), Err(DnsError::Busy | DnsError::Timeout)));
        assert_eq!(joins.await.unwrap(), Err(DnsError::Timeout));
        assert!(start.elapsed() < Duration::from_secs(8));
        for task in tasks {
            assert_eq!(task.await.unwrap(), Err(DnsError::Timeout));
        }
        assert_eq!(resolver.inner.questions.borrow().len(), 0);
    });
}

#[test]
fn a_question_that_makes_way_is_asked_again_for_others_who_wait_for_it() {
    let server = NameServer::start();
    on_core(patient(&server), |resolver, _| async move {
        let resolver = Rc::new(resolver);
        let tasks: Vec<_> = (0..QUESTIONS_PER_CLIENT_MAX)
            .map(|n| spawn(&resolver, format!("n{n}.silent.test"), client(1)))
            .collect();
        settle().await;
        let other = spawn(&resolver, "n0.silent.test".into(), client(2));
        settle().await;
        assert_eq!(resolver.lookup("both.test", client(1)).await.unwrap().len(), 3);
        settle().await;
        assert_eq!(
            tasks.iter().filter(|task| task.is_finished()).count(),
            1,
            "the oldest made way"
        );
        assert!(tasks[0].is_finished() && !other.is_finished());
        let asker = resolver.inner.questions.borrow_mut().get_mut("n0.silent.test").unwrap().asker;
        assert_eq!(asker, client(2));
        tasks.iter().for_each(|task| task.abort());
    });
}

#[test]
fn names_without_a_dot_get_the_domain() {
    let server = NameServer::start();
    let options = DnsOptions { append_domain: Some(".lan".into()), ..server.options() };
    on_core(options, |resolver, _| async move {
        assert_eq!(resolver.lookup("short", Asker::Proxy).await.unwrap().len(), 2);
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
            assert_eq!(
                resolver.lookup(host, Asker::Proxy).await.unwrap()[0],
                ips(&[first])[0],
                "{host}"
            );
        }
        assert_eq!(resolver.unavailable_reason(), Some("no configuration"));
        let unknown = resolver.lookup("notlocalhost.test", Asker::Proxy).await;
        assert_eq!(unknown, Err(DnsError::Unavailable("no configuration".into())));
    });
}

#[test]
fn a_question_whose_task_panics_gives_up_its_place() {
    on_core(DnsOptions::default(), |mut resolver, _| async move {
        Rc::get_mut(&mut resolver.inner).unwrap().upstream.panics = true;
        for _ in 0..2 {
            let answer = resolver.lookup("a.test", Asker::Proxy);
            let answer =
                tokio::time::timeout(Duration::from_secs(10), answer).await.expect("an end");
            assert_eq!(answer, Err(DnsError::Broken));
            assert_eq!(resolver.inner.questions.borrow().len(), 0);
        }
    });
}
