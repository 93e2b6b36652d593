//! Questions under way to name servers, their clients, and the choice of the question that gives
//! way when there are too many.
//!
//! A silent name server holds a question for `dns_timeout`, so the owner of one could take all
//! places. Each place therefore belongs to the client that asked and to the zone of the name, and
//! both have a bound. A client at a bound, or with a full table, gets the place of the oldest
//! question of the client with most; the client with most itself waits. A question that no task
//! waits for ends.
//!
//! Connections to Unix sockets have shares of their own among each other. A process can have many
//! of them, so against other clients all of them together are one.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::rc::Rc;

use humboldt_base::client_network::client_network;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use super::answer::{DnsError, Told};

/// Most questions on their way to name servers from one core.
pub const QUESTIONS_MAX: usize = 1024;

/// Most of them for one client: an IPv4 address, or a /64 of IPv6.
pub const QUESTIONS_PER_CLIENT_MAX: usize = 256;

/// Most of them about names of one zone.
pub const QUESTIONS_PER_ZONE_MAX: usize = 256;

/// Most look-ups of one core that wait for a place; beyond it they fail with [`DnsError::Busy`].
pub const WAITING_MAX: usize = 1024;

/// Most of them for one client.
pub const WAITING_PER_CLIENT_MAX: usize = 256;

/// Most of them for all connections to Unix sockets together.
pub const WAITING_OF_CONNECTIONS_MAX: usize = WAITING_MAX / 2;

/// For whom a name is looked up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// The proxy itself: names in its configuration.
    Proxy,
    /// A client with this address.
    Client(IpAddr),
    /// A client without an address, on a Unix socket: the number of its connection.
    Connection(usize),
}

impl Asker {
    /// With the part of an IPv6 address that a client cannot choose itself.
    pub(super) fn folded(self) -> Self {
        match self {
            Self::Client(ip) => Self::Client(client_network(ip)),
            Self::Proxy | Self::Connection(_) => self,
        }
    }

    fn is_connection(self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// The same for all connections to Unix sockets.
    fn group(self) -> Self {
        if self.is_connection() { Self::Connection(0) } else { self }
    }
}

/// One question, shared by all tasks that wait for its answer.
pub(super) struct Question {
    /// The client that asked first.
    pub asker: Asker,
    /// Its number: the smaller, the older.
    pub number: u64,
    /// Number of waiting tasks.
    pub waiting: usize,
    /// The channel of the answer.
    pub answer: Rc<watch::Sender<Option<Told>>>,
    /// The task that asks.
    pub task: AbortHandle,
}

struct Waiting {
    asker: Asker,
    name: Box<str>,
    wake: oneshot::Sender<()>,
}

/// The place for one more question, if there is one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Free,
    /// If the question about this name makes way.
    Instead(Box<str>),
    /// Not before another question of this client has ended.
    None,
}

/// The questions of one core, and the tasks that wait for a place.
#[derive(Default)]
pub(super) struct Questions {
    /// By lower-case name, or reverse name.
    asked: HashMap<Box<str>, Question>,
    by_asker: HashMap<Asker, usize>,
    by_zone: HashMap<Box<str>, usize>,
    queue: VecDeque<Waiting>,
    next_number: u64,
}

impl Questions {
    /// The question about `name`.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Question> {
        self.asked.get_mut(name)
    }

    /// Whether one more question about `name` may be asked.
    pub(super) fn room(&self, asker: Asker, name: &str) -> Room {
        let zone = zone(name);
        let own = self.by_asker.get(&asker).copied().unwrap_or(0);
        let in_zone = self.by_zone.get(zone).copied().unwrap_or(0);
        let victim = if own >= QUESTIONS_PER_CLIENT_MAX {
            self.oldest_of_greediest(
                |_, question| question.asker == asker,
                |name, _| self::zone(name),
                zone,
            )
        } else if in_zone >= QUESTIONS_PER_ZONE_MAX {
            self.victim_of(asker, |name| self::zone(name) == zone)
        } else if self.asked.len() >= QUESTIONS_MAX {
            self.victim_of(asker, |_| true)
        } else {
            return Room::Free;
        };
        victim.map_or(Room::None, |name| Room::Instead(name.into()))
    }

    /// Of the questions with such names, the one that gives way to this asker.
    fn victim_of(&self, asker: Asker, among: impl Fn(&str) -> bool) -> Option<&str> {
        let found = self.oldest_of_greediest(
            |name, _| among(name),
            |_, question| question.asker.group(),
            asker.group(),
        );
        let victim = found.and_then(|name| self.asked.get(name));
        let is_among_connections = match victim {
            Some(question) => question.asker.is_connection(),
            None => asker.is_connection(),
        };
        if !is_among_connections {
            return found;
        }
        self.oldest_of_greediest(
            |name, question| among(name) && question.asker.is_connection(),
            |_, question| question.asker,
            asker,
        )
    }

    /// Of the questions `among` all, the oldest of the key that has most of them; `None` if `own`
    /// has hardly less.
    fn oldest_of_greediest<'a, K: Eq + Hash + Copy + 'a>(
        &'a self,
        among: impl Fn(&str, &Question) -> bool,
        key: impl Fn(&'a str, &'a Question) -> K,
        own: K,
    ) -> Option<&'a str> {
        // Their number, and the oldest of them with its name.
        let mut counts: HashMap<K, (usize, u64, &'a str)> = HashMap::new();
        for (name, question) in self.asked.iter().filter(|(name, question)| among(name, question)) {
            let entry = counts.entry(key(name, question)).or_insert((0, question.number, name));
            entry.0 += 1;
            if question.number < entry.1 {
                (entry.1, entry.2) = (question.number, name);
            }
        }
        let own = counts.get(&own).map_or(0, |entry| entry.0);
        let most =
            counts.into_values().max_by_key(|entry| (entry.0, std::cmp::Reverse(entry.1)))?;
        // Two that have nearly as many do not take places from each other in turn.
        (own == 0 || most.0 > own + 1).then_some(most.2)
    }

    /// Notes a question that is being asked, and returns its number.
    pub(super) fn insert(
        &mut self,
        name: &str,
        asker: Asker,
        answer: Rc<watch::Sender<Option<Told>>>,
        task: AbortHandle,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        *self.by_asker.entry(asker).or_insert(0) += 1;
        *self.by_zone.entry(zone(name).into()).or_insert(0) += 1;
        self.asked.insert(name.into(), Question { asker, number, waiting: 0, answer, task });
        number
    }

    /// Forgets a question that is answered, or without waiting tasks.
    pub(super) fn remove(&mut self, name: &str) -> Option<Question> {
        let question = self.asked.remove(name)?;
        release(&mut self.by_asker, &question.asker);
        release(&mut self.by_zone, zone(name));
        Some(question)
    }

    /// Ends a question for another one. Who waits for it is told that there are too many.
    pub(super) fn make_way(&mut self, name: &str) {
        if let Some(question) = self.remove(name) {
            question.task.abort();
            question.answer.send_replace(Some(Err(DnsError::Busy)));
        }
    }

    /// Queues a look-up for which there is no room; `None` when too many wait already.
    pub(super) fn wait(&mut self, asker: Asker, name: &str) -> Option<oneshot::Receiver<()>> {
        self.queue.retain(|waiting| !waiting.wake.is_closed());
        let own = self.queue.iter().filter(|waiting| waiting.asker == asker).count();
        let connections = || self.queue.iter().filter(|one| one.asker.is_connection()).count();
        if self.queue.len() >= WAITING_MAX
            || own >= WAITING_PER_CLIENT_MAX
            || asker.is_connection() && connections() >= WAITING_OF_CONNECTIONS_MAX
        {
            return None;
        }
        let (wake, woken) = oneshot::channel();
        self.queue.push_back(Waiting { asker, name: name.into(), wake });
        Some(woken)
    }

    /// Wakes the first look-up of the queue for which there is room now.
    pub(super) fn wake(&mut self) {
        let mut at = 0;
        while let Some(waiting) = self.queue.get(at) {
            if self.asked.contains_key(&waiting.name) || self.is_free(waiting.asker, &waiting.name)
            {
                if self.queue.remove(at).is_some_and(|waiting| waiting.wake.send(()).is_ok()) {
                    return;
                }
            } else {
                at += 1;
            }
        }
    }

    fn is_free(&self, asker: Asker, name: &str) -> bool {
        let count = |count: Option<&usize>| count.copied().unwrap_or(0);
        self.asked.len() < QUESTIONS_MAX
            && count(self.by_asker.get(&asker)) < QUESTIONS_PER_CLIENT_MAX
            && count(self.by_zone.get(zone(name))) < QUESTIONS_PER_ZONE_MAX
    }

    /// Number of questions under way.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Number of look-ups that wait for a place.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queue.iter().filter(|waiting| !waiting.wake.is_closed()).count()
    }
}

fn release<K, Q>(counts: &mut HashMap<K, usize>, key: &Q)
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The registered part of a name, more or less: its last two labels, or three below a country's
/// `co.uk`, `com.br` and the like. Of a reverse name, the first 16 bits of an IPv4 address or 32 of
/// an IPv6 one. If that is too much or too little, a bound is shared by too many or too few names.
fn zone(name: &str) -> &str {
    let mut labels = name.rsplit('.');
    let (Some(top), Some(second)) = (labels.next(), labels.next()) else { return name };
    let count = match (top, second) {
        ("arpa", "in-addr") => 4,
        ("arpa", "ip6") => 10,
        _ if top.len() == 2 && second.len() <= 3 => 3,
        _ => 2,
    };
    let bytes: usize = name.rsplit('.').take(count).map(|label| label.len() + 1).sum();
    name.get(name.len() - (bytes - 1)..).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u32) -> Asker {
        Asker::Client(IpAddr::V4((0x0a00_0000 + n).into()))
    }

    /// Runs `test` where tasks can be spawned.
    fn with_questions(test: impl FnOnce(&mut Questions)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async { test(&mut Questions::default()) });
    }

    fn ask(questions: &mut Questions, asker: Asker, name: &str) -> Room {
        let room = questions.room(asker, name);
        match &room {
            Room::None => return room,
            Room::Instead(other) => questions.make_way(other),
            Room::Free => {}
        }
        let task = tokio::task::spawn_local(std::future::pending::<()>()).abort_handle();
        questions.insert(name, asker, Rc::new(watch::channel(None).0), task);
        room
    }

    #[test]
    fn zones() {
        for (name, wanted) in [
            ("a.b.example.com", "example.com"),
            ("example.com", "example.com"),
            ("a.b.example.co.uk", "example.co.uk"),
            ("co.uk", "co.uk"),
            ("www.example.de", "example.de"),
            ("localhost", "localhost"),
            ("", ""),
            ("..", "."),
            ("PTR 4.3.2.1.in-addr.arpa", "2.1.in-addr.arpa"),
            ("PTR 9.8.7.6.5.4.3.2.1.0.8.b.d.0.1.0.0.2.ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa"),
            ("in-addr.arpa", "in-addr.arpa"),
        ] {
            assert_eq!(zone(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_client_has_so_many_and_its_busiest_zone_makes_way_for_its_others() {
        with_questions(|questions| {
            for n in 0..QUESTIONS_PER_CLIENT_MAX - 1 {
                assert_eq!(ask(questions, client(1), &format!("n{n}.silent.test")), Room::Free);
            }
            assert_eq!(ask(questions, client(1), "other.example"), Room::Free);
            assert_eq!(
                ask(questions, client(1), "one.silent.test"),
                Room::None,
                "it waits for its own"
            );
            let instead = Room::Instead("n0.silent.test".into());
            assert_eq!(ask(questions, client(1), "www.example"), instead);
            assert_eq!(questions.len(), QUESTIONS_PER_CLIENT_MAX);
            assert_eq!(
                ask(questions, client(2), "b.example"),
                Room::Free,
                "others have places of their own"
            );
        });
    }

    #[test]
    fn a_zone_has_so_many_and_who_asks_most_in_it_makes_way() {
        with_questions(|questions| {
            for n in 0..QUESTIONS_PER_ZONE_MAX - 2 {
                assert_eq!(ask(questions, client(1), &format!("n{n}.shop.test")), Room::Free);
            }
            for n in 0..2 {
                assert_eq!(ask(questions, client(2), &format!("m{n}.shop.test")), Room::Free);
            }
            assert_eq!(ask(questions, client(1), "more.shop.test"), Room::None);
            assert_eq!(
                ask(questions, client(2), "www.shop.test"),
                Room::Instead("n0.shop.test".into())
            );
            assert_eq!(ask(questions, client(1), "elsewhere.test"), Room::Free);
        });
    }

    #[test]
    fn a_full_table_has_a_place_for_who_has_none() {
        with_questions(|questions| {
            for n in 0..QUESTIONS_MAX {
                let asker = client(u32::try_from(n / 200).unwrap());
                assert_eq!(ask(questions, asker, &format!("www.n{n}.test")), Room::Free);
            }
            assert_eq!(ask(questions, client(0), "a.test"), Room::None);
            // 200 each, but for client 5 with 24.
            assert_eq!(ask(questions, client(5), "b.test"), Room::Instead("www.n0.test".into()));
            assert_eq!(ask(questions, client(9), "c.test"), Room::Instead("www.n200.test".into()));
            assert_eq!(questions.len(), QUESTIONS_MAX);
        });
    }

    #[test]
    fn when_each_has_one_the_oldest_makes_way() {
        with_questions(|questions| {
            for n in 0..QUESTIONS_MAX as u32 {
                assert_eq!(ask(questions, client(n), &format!("www.n{n}.test")), Room::Free);
            }
            assert_eq!(
                ask(questions, client(5_000), "a.test"),
                Room::Instead("www.n0.test".into())
            );
        });
    }

    #[test]
    fn so_many_wait_and_those_who_left_do_not_count() {
        with_questions(|questions| {
            let mut kept: Vec<_> = (0..WAITING_PER_CLIENT_MAX)
                .map(|_| questions.wait(client(1), "a.test").unwrap())
                .collect();
            assert!(questions.wait(client(1), "a.test").is_none(), "one client");
            kept.pop();
            kept.push(questions.wait(client(1), "a.test").expect("the place of who left"));
            for n in 0..WAITING_MAX - WAITING_PER_CLIENT_MAX {
                kept.push(questions.wait(client(2 + n as u32), "a.test").expect("another client"));
            }
            assert!(questions.wait(client(100_000), "a.test").is_none(), "all clients");
            drop(kept);
            assert_eq!(questions.queued(), 0);
            assert!(questions.wait(client(1), "a.test").is_some());
        });
    }

    #[test]
    fn clients_with_ipv6_are_networks() {
        let asker = |text: &str| Asker::Client(text.parse().unwrap()).folded();
        assert_eq!(asker("2001:db8::1"), asker("2001:db8::ffff:0:1"));
        assert_ne!(asker("2001:db8::1"), asker("2001:db8:0:1::1"));
        assert_eq!(asker("::ffff:192.0.2.1"), asker("192.0.2.1"));
        assert_ne!(asker("192.0.2.2"), asker("192.0.2.1"));
    }

    #[test]
    fn each_connection_without_an_address_has_its_own_share() {
        with_questions(|questions| {
            let mut places = 0;
            while ask(questions, Asker::Connection(1).folded(), &format!("{places}.a{places}.test"))
                == Room::Free
            {
                places += 1;
            }
            assert!(places >= QUESTIONS_PER_CLIENT_MAX, "{places}");
            let other = ask(questions, Asker::Connection(2).folded(), "b.test");
            assert_ne!(other, Room::None);
        });
    }

    #[test]
    fn many_connections_of_a_process_take_no_places_of_others() {
        with_questions(|questions| {
            let connection = Asker::Connection;
            for n in 0..2 {
                assert_eq!(ask(questions, client(1), &format!("www.c{n}.test")), Room::Free);
            }
            for n in 2..QUESTIONS_MAX {
                assert_eq!(ask(questions, connection(n), &format!("www.n{n}.test")), Room::Free);
            }
            let oldest = Room::Instead("www.n2.test".into());
            assert_eq!(ask(questions, connection(5_000), "a.test"), oldest);
            let oldest = Room::Instead("www.n3.test".into());
            assert_eq!(ask(questions, client(1), "b.test"), oldest);
            assert_eq!(ask(questions, connection(4), "c.test"), Room::None, "it has one");
        });
    }

    #[test]
    fn many_connections_of_a_process_do_not_fill_a_zone_or_the_queue() {
        with_questions(|questions| {
            for n in 0..2 {
                assert_eq!(ask(questions, client(1), &format!("c{n}.shop.test")), Room::Free);
            }
            for n in 2..QUESTIONS_PER_ZONE_MAX {
                let asker = Asker::Connection(n);
                assert_eq!(ask(questions, asker, &format!("n{n}.shop.test")), Room::Free);
            }
            let room = ask(questions, Asker::Connection(5_000), "more.shop.test");
            assert_eq!(room, Room::Instead("n2.shop.test".into()));
            let kept: Vec<_> = (0..WAITING_OF_CONNECTIONS_MAX)
                .map(|n| questions.wait(Asker::Connection(n), "a.shop.test").unwrap())
                .collect();
            assert!(questions.wait(Asker::Connection(5_000), "a.shop.test").is_none());
            assert!(questions.wait(client(1), "a.shop.test").is_some());
            drop(kept);
        });
    }
}
