//! Names to addresses: literals, `localhost`, the hosts file, a cache that all cores share, and
//! then the name servers. Addresses to names in the same way.
//!
//! Each core has a [`Resolver`] of its own. Equal questions at one time are one question, which
//! ends when no task waits for its answer any more.

mod answer;
mod cache;
mod hosts;
mod options;
mod questions;
mod upstream;

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_base::counters::{Counter, Counters};
use tokio::sync::{oneshot, watch};

pub use answer::{Answer, DnsError, NameAnswer};
use answer::{Records, Told};
pub use cache::NameCache;
pub use options::DnsOptions;
pub use questions::{
    Asker, QUESTIONS_MAX, QUESTIONS_PER_CLIENT_MAX, QUESTIONS_PER_ZONE_MAX, WAITING_MAX,
    WAITING_OF_CONNECTIONS_MAX, WAITING_PER_CLIENT_MAX,
};
use questions::{Questions, Room};
use upstream::Upstream;

/// A failure that the next try may not meet again (time-out, server failure) is remembered no
/// longer than this (RFC 9520 section 3.2 allows 1 s to 5 min).
const TEMPORARY_FAILURE_TTL: Duration = Duration::from_secs(10);

/// Begins the reverse name of an address in the tables of questions and answers. Names in there are
/// lower-case, so that none is taken for it.
const REVERSE: &str = "PTR ";

/// The resolver of one core.
pub struct Resolver {
    inner: Rc<Inner>,
}

struct Inner {
    options: DnsOptions,
    names: Arc<NameCache>,
    upstream: Upstream,
    counters: Arc<Counters>,
    /// Questions on their way, and look-ups that wait for a place among them.
    questions: RefCell<Questions>,
}

impl Resolver {
    /// A resolver for this core. Call it inside the core's runtime.
    ///
    /// It never fails: without a usable configuration (no `/etc/resolv.conf`, say) literals,
    /// `localhost` and the hosts file still work, and other names fail with
    /// [`DnsError::Unavailable`] and the reason.
    pub fn new(options: DnsOptions, names: Arc<NameCache>, counters: Arc<Counters>) -> Self {
        let upstream = Upstream::new(&options);
        let inner = Inner { options, names, upstream, counters, questions: RefCell::default() };
        Self { inner: Rc::new(inner) }
    }

    /// The addresses of `host`: a name, an address, or an IPv6 address in brackets; in the order in
    /// which to try them. Dropping the future gives up its place.
    pub async fn lookup(&self, host: &str, asker: Asker) -> Answer {
        if let Some(answer) = self.lookup_local(host) {
            return answer;
        }
        let name = self.inner.full_name(host);
        self.inner.find(&name, asker).await.and_then(Records::addresses)
    }

    /// The name of the machine at `ip`. It is the word of whoever owns the address: that the name
    /// leads back to it is not checked, as in Squid. Dropping the future gives up its place.
    pub async fn name_of(&self, ip: IpAddr, asker: Asker) -> NameAnswer {
        let ip = ip.to_canonical();
        if ip.is_unspecified() {
            return Err(DnsError::NoSuchName);
        }
        if let Some(name) = self.inner.names.hosts_name(ip) {
            return Ok(name);
        }
        self.inner.find(&reverse_name(ip), asker).await.and_then(Records::name)
    }

    /// Answers without a name server, as [`NameCache::lookup_local`] does.
    pub fn lookup_local(&self, host: &str) -> Option<Answer> {
        self.inner.names.lookup_local(host)
    }

    /// Why only local names can be looked up, if that is so: for one warning at start.
    pub fn unavailable_reason(&self) -> Option<&str> {
        self.inner.upstream.unavailable_reason()
    }
}

impl Inner {
    /// The answer of the cache, or of the name servers.
    async fn find(self: &Rc<Self>, name: &str, asker: Asker) -> Told {
        if let Some(answer) = self.names.get(name, Instant::now()) {
            self.counters.add(Counter::DnsHits, 1);
            return answer;
        }
        self.counters.add(Counter::DnsMisses, 1);
        let answer = self.ask_in_turn(name, asker.folded()).await;
        if answer == Err(DnsError::Busy) {
            self.counters.add(Counter::DnsErrors, 1);
        }
        answer
    }

    /// Asks, or waits for a place to ask, at most for `dns_timeout`.
    async fn ask_in_turn(self: &Rc<Self>, name: &str, asker: Asker) -> Told {
        let deadline = tokio::time::Instant::now() + self.options.timeout;
        loop {
            let Some(mut asking) = self.ask(name, asker) else {
                self.wait_for_place(name, asker, deadline).await?;
                if let Some(answer) = self.names.get(name, Instant::now()) {
                    self.questions.borrow_mut().wake();
                    return answer;
                }
                continue;
            };
            match asking.answer().await {
                // It gave way because of the first client that asked.
                Err(DnsError::Busy)
                    if asking.asker != asker && tokio::time::Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    /// Joins the question for `name`, or asks it. `None`: there is no place.
    fn ask(self: &Rc<Self>, name: &str, asker: Asker) -> Option<Asking> {
        let mut questions = self.questions.borrow_mut();
        if questions.get_mut(name).is_none() {
            loop {
                match questions.room(asker, name) {
                    Room::Free => break,
                    Room::Instead(other) => questions.make_way(&other),
                    Room::None => return None,
                }
            }
            let answer = Rc::new(watch::channel(None).0);
            let asked = Asked {
                inner: Rc::clone(self),
                name: name.into(),
                sender: Rc::clone(&answer),
                answer: Err(DnsError::Broken),
            };
            let task = tokio::task::spawn_local(async move {
                let answer = asked.inner.resolve(&asked.name).await;
                asked.end_with(answer);
            });
            questions.insert(name, asker, answer, task.abort_handle());
        } else {
            // The place that it was woken for may be another's.
            questions.wake();
        }
        let question = questions.get_mut(name)?;
        question.waiting += 1;
        Some(Asking {
            inner: Rc::clone(self),
            name: name.into(),
            number: question.number,
            asker: question.asker,
            answer: question.answer.subscribe(),
        })
    }

    async fn wait_for_place(
        self: &Rc<Self>,
        name: &str,
        asker: Asker,
        deadline: tokio::time::Instant,
    ) -> Result<(), DnsError> {
        let woken = self.questions.borrow_mut().wait(asker, name).ok_or(DnsError::Busy)?;
        let mut place = Place { inner: self, woken };
        let result = tokio::time::timeout_at(deadline, &mut place.woken).await;
        if matches!(result, Ok(Ok(()))) { Ok(()) } else { Err(DnsError::Busy) }
    }

    /// Lower case, without the final dot, with `append_domain` when there is no dot.
    fn full_name(&self, host: &str) -> String {
        let mut name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if let (Some(domain), false) = (&self.options.append_domain, host.contains('.')) {
            name.push_str(domain);
        }
        name
    }

    /// Asks the name servers and remembers their answer.
    async fn resolve(&self, name: &str) -> Told {
        let found = match name.strip_prefix(REVERSE) {
            Some(reverse) => {
                let found = self.upstream.name(reverse).await;
                found.map(|(name, ttl)| (Records::Name(name), ttl))
            }
            None => {
                let found = self.upstream.addresses(name).await;
                found.map(|(addresses, ttl)| (Records::Addresses(addresses.into()), ttl))
            }
        };
        let negative = self.options.negative_ttl;
        let (answer, keep) = match found {
            Ok((records, ttl)) => (Ok(records), ttl.min(self.options.positive_ttl).max(negative)),
            Err(error @ (DnsError::NoSuchName | DnsError::Empty)) => (Err(error), negative),
            Err(error) => (Err(error), negative.min(TEMPORARY_FAILURE_TTL)),
        };
        if let Err(error) = &answer {
            self.counters.add(Counter::DnsErrors, 1);
            tracing::debug!("no address for {}: {error}", name.escape_debug());
        }
        if answer != Err(DnsError::NoDescriptor) {
            self.names.insert(name, answer.clone(), Instant::now() + keep);
        }
        answer
    }
}

/// A question that is being asked, in its task. However the task ends, also by a panic, the
/// question gives up its place.
struct Asked {
    inner: Rc<Inner>,
    name: Box<str>,
    sender: Rc<watch::Sender<Option<Told>>>,
    answer: Told,
}

impl Asked {
    fn end_with(mut self, answer: Told) {
        self.answer = answer;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // One that was ended for another has been removed before, and there may be a younger one
        // about the same name.
        let Ok(mut questions) = self.inner.questions.try_borrow_mut() else { return };
        if questions
            .get_mut(&self.name)
            .is_none_or(|known| !Rc::ptr_eq(&known.answer, &self.sender))
        {
            return;
        }
        questions.remove(&self.name);
        questions.wake();
        self.sender.send_replace(Some(std::mem::replace(&mut self.answer, Err(DnsError::Broken))));
    }
}

/// A task that waits for the answer to a question.
struct Asking {
    inner: Rc<Inner>,
    name: Box<str>,
    number: u64,
    /// The client that asked first.
    asker: Asker,
    answer: watch::Receiver<Option<Told>>,
}

impl Asking {
    async fn answer(&mut self) -> Told {
        loop {
            if let Some(answer) = &*self.answer.borrow_and_update() {
                return answer.clone();
            }
            if self.answer.changed().await.is_err() {
                // Only when the core is ending: its tasks are dropped.
                return Err(DnsError::Unavailable("shutting down".into()));
            }
        }
    }
}

impl Drop for Asking {
    /// A question without waiting tasks ends.
    fn drop(&mut self) {
        let mut questions = self.inner.questions.borrow_mut();
        let Some(question) =
            questions.get_mut(&self.name).filter(|question| question.number == self.number)
        else {
            return;
        };
        question.waiting -= 1;
        if question.waiting == 0
            && let Some(question) = questions.remove(&self.name)
        {
            question.task.abort();
            questions.wake();
        }
    }
}

/// A place in the queue.
struct Place<'a> {
    inner: &'a Inner,
    woken: oneshot::Receiver<()>,
}

impl Drop for Place<'_> {
    /// A task that was woken and has left wakes the next one.
    fn drop(&mut self) {
        if self.woken.try_recv().is_ok() {
            self.inner.questions.borrow_mut().wake();
        }
    }
}

/// The name under which name servers have the name of an address (RFC 1035 section 3.5, RFC 3596
/// section 2.5), marked as such.
fn reverse_name(ip: IpAddr) -> String {
    let mut name = REVERSE.to_owned();
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            name.push_str(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"));
        }
        IpAddr::V6(ip) => {
            for byte in ip.octets().iter().rev() {
                name.push_str(&format!("{:x}.{:x}.", byte & 0xf, byte >> 4));
            }
            name.push_str("ip6.arpa");
        }
    }
    name
}

impl NameCache {
    /// Answers without a name server: literals, `localhost` (RFC 6761 section 6.3), the hosts file.
    pub fn lookup_local(&self, host: &str) -> Option<Answer> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Some(Ok(Arc::new([ip])));
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        if is_localhost(host) {
            return Some(Ok(Arc::new([Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])));
        }
        self.hosts_entry(host).map(Ok)
    }

    /// The addresses of a name in the hosts file.
    pub fn in_hosts_file(&self, host: &str) -> Option<Arc<[IpAddr]>> {
        self.hosts_entry(host.strip_suffix('.').unwrap_or(host))
    }
}

fn is_localhost(host: &str) -> bool {
    let ends_in_localhost = || {
        host.len() > 10 && host.as_bytes()[host.len() - 10..].eq_ignore_ascii_case(b".localhost")
    };
    host.eq_ignore_ascii_case("localhost") || ends_in_localhost()
}

#[cfg(test)]
mod tests;
