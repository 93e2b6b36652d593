//! A scriptable name server: a real UDP server whose every answer the test decides.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const TYPE_A: u16 = 1;
const TYPE_PTR: u16 = 12;

/// The answers about a name.
#[derive(Clone, Debug)]
pub enum Says {
    /// These IPv4 addresses, which may not be remembered.
    Addresses(Vec<Ipv4Addr>),
    /// This name of an address, which may not be remembered.
    Name(&'static str),
    /// That there is no such name.
    NoSuchName,
    /// That the server cannot tell.
    Failure,
    /// Nothing.
    Nothing,
}

/// One address of 127.0.0.0/8.
#[must_use]
pub fn loopback(last: u8) -> Says {
    Says::Addresses(vec![Ipv4Addr::new(127, 0, 0, last)])
}

#[derive(Default)]
struct State {
    /// The answers to the first question, the second, …; the last one again and again.
    names: HashMap<String, Vec<Says>>,
    /// Questions for each name and type.
    asked: HashMap<(String, u16), usize>,
}

/// The server; it lives as long as the test.
#[derive(Clone)]
pub struct NameServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Default for NameServer {
    fn default() -> Self {
        Self::new()
    }
}

impl NameServer {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let server =
            Self { address: socket.local_addr().expect("its address"), state: Arc::default() };
        let answering = server.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if let Some(answer) =
                    packet.get(..length).and_then(|question| answering.answer(question))
                {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines of a configuration that asks here, and remembers nothing. The servers of tests are at
    /// private addresses, so names may lead there; [`NameServer::closed_lines`] leave that as it is
    /// without a line.
    #[must_use]
    pub fn lines(&self) -> String {
        format!("{}private_destinations allow all\n", self.closed_lines())
    }

    /// The same, with names that lead to public addresses only.
    #[must_use]
    pub fn closed_lines(&self) -> String {
        format!(
            "dns_nameservers {}\npositive_dns_ttl 0 seconds\nnegative_dns_ttl 0 seconds\n",
            self.address
        )
    }

    /// The answer about a name from now on, and with `*.zone` about all names of a zone.
    pub fn on(&self, name: &str, says: Says) {
        self.on_each(name, vec![says]);
    }

    /// The answers about a name to successive questions of each type; the last is repeated.
    pub fn on_each(&self, name: &str, says: Vec<Says>) {
        let mut state = self.state();
        state.asked.retain(|(asked, _), _| asked != name);
        state.names.insert(name.to_owned(), says);
    }

    /// Number of questions for the IPv4 addresses of a name.
    #[must_use]
    pub fn asked(&self, name: &str) -> usize {
        self.state().asked.get(&(name.to_owned(), TYPE_A)).copied().unwrap_or(0)
    }

    /// Number of questions for the name of an address, by its reverse name.
    #[must_use]
    pub fn asked_for_name(&self, reverse: &str) -> usize {
        self.state().asked.get(&(reverse.to_owned(), TYPE_PTR)).copied().unwrap_or(0)
    }

    /// Number of names below `suffix` that were asked for.
    #[must_use]
    pub fn names_asked(&self, suffix: &str) -> usize {
        let state = self.state();
        state.asked.keys().filter(|(name, kind)| *kind == TYPE_A && name.ends_with(suffix)).count()
    }

    fn says(&self, name: &str, kind: u16) -> Says {
        let mut state = self.state();
        let count = state.asked.entry((name.to_owned(), kind)).or_default();
        let earlier = *count;
        *count += 1;
        let zone = name.split_once('.').map(|(_, zone)| format!("*.{zone}"));
        let found = state.names.get(name).or_else(|| state.names.get(zone.as_deref()?));
        let Some(script) = found else { return Says::NoSuchName };
        script.get(earlier).or(script.last()).cloned().unwrap_or(Says::NoSuchName)
    }

    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut labels: Vec<String> = Vec::new();
        let mut at = 12;
        while *question.get(at)? > 0 {
            let length = usize::from(question[at]);
            labels
                .push(String::from_utf8_lossy(question.get(at + 1..=at + length)?).to_lowercase());
            at += 1 + length;
        }
        let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let (code, records): (u8, Vec<Vec<u8>>) = match self.says(&labels.join("."), kind) {
            Says::Nothing => return None,
            Says::Addresses(addresses) if kind == TYPE_A => {
                (0, addresses.iter().map(|address| address.octets().to_vec()).collect())
            }
            Says::Name(name) if kind == TYPE_PTR => (0, vec![name_data(name)]),
            Says::Addresses(_) | Says::Name(_) => (0, Vec::new()),
            Says::Failure => (2, Vec::new()),
            Says::NoSuchName => (3, Vec::new()),
        };
        let mut out = question.get(..2)?.to_vec();
        out.extend([0x81, 0x80 | code, 0, 1, 0, u8::try_from(records.len()).ok()?, 0, 0, 0, 0]);
        out.extend(question.get(12..at + 5)?);
        for record in records {
            // The name above, the type asked for, class IN, remembered for no time.
            out.extend([0xc0, 12]);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1, 0, 0, 0, 0, 0, u8::try_from(record.len()).ok()?]);
            out.extend(record);
        }
        Some(out)
    }
}

/// A name as a record has it.
fn name_data(name: &str) -> Vec<u8> {
    let labels = name.split('.').map(str::as_bytes);
    let mut data = labels.fold(Vec::new(), |mut data, label| {
        data.push(u8::try_from(label.len()).unwrap_or(0));
        data.extend(label);
        data
    });
    data.push(0);
    data
}
