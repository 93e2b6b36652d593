//! A known piece of work, by which the speed of a processor is measured.
//!
//! Programs differ in what makes them slow: a faster core, a neighbour on it, larger caches or a
//! slow way into the kernel. So the work has the three things that a cache does most: text is put
//! together and taken apart, messages go through the kernel, and memory is read that is in none of
//! the core's own caches. On the reference processor each takes about a third of the time.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;

/// CPU time that the reference processor takes for one look: about that of a core of an AMD EPYC
/// at 2.4 GHz beside which a cache and its laboratory are at work, with the release build of Rust
/// 1.95. Another build of the laboratory has another reference.
const REFERENCE_S: f64 = 130e-6;

/// Rounds of text in one look, and before it, which bring the work into the core's own caches.
const TEXTS: u32 = 100;
const WARM_UP_TEXTS: u32 = 30;
/// Entries of the table in which they look, which fits into those caches.
const ENTRIES: u64 = 256;

/// Messages in one look, and before it.
const MESSAGES: u32 = 16;
const WARM_UP_MESSAGES: u32 = 4;
/// Length of a message in bytes.
const MESSAGE_BYTES: usize = 2048;

/// Places of memory that are read in one look, one after the other.
const READS: u32 = 140;
/// Length of that memory: more than the core's own caches, less than the processor's.
const MEMORY_BYTES: usize = 4 << 20;

/// The work, with all that it needs.
pub(super) struct Work {
    text: Text,
    messages: Messages,
    memory: Memory,
}

impl Work {
    /// Prepares it.
    ///
    /// # Errors
    /// If the system has no sockets left.
    pub(super) fn new() -> Result<Self, String> {
        let messages = Messages::new().map_err(|error| format!("no messages: {error}"))?;
        Ok(Self { text: Text::new(), messages, memory: Memory::new() })
    }

    /// The speed of the processor on which this thread runs now; the reference processor has 1.
    pub(super) fn speed(&mut self) -> f64 {
        self.text.rounds(WARM_UP_TEXTS);
        self.messages.rounds(WARM_UP_MESSAGES);
        let begun_s = thread_s();
        self.text.rounds(TEXTS);
        self.messages.rounds(MESSAGES);
        self.memory.rounds(READS);
        REFERENCE_S / (thread_s() - begun_s).max(1e-6)
    }
}

/// The CPU time of this thread in seconds: what others had of the processor is not in it.
fn thread_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The head of a request is put together, taken apart, and numbers are looked up.
struct Text {
    head: String,
    table: HashMap<u64, u64, BuildHasherDefault<DefaultHasher>>,
    round: u64,
}

impl Text {
    fn new() -> Self {
        let table = (0..ENTRIES).map(|key| (key, key)).collect();
        Self { head: String::new(), table, round: 0 }
    }

    fn rounds(&mut self, count: u32) {
        (0..count).for_each(|_| _ = black_box(self.round()));
    }

    fn round(&mut self) -> u64 {
        self.round += 1;
        let key = self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.head.clear();
        let _ = write!(
            self.head,
            "GET /{key:08x}.html HTTP/1.1\r\nHost: www{}.example\r\nAccept: text/html\r\n\
             Content-Length: {}\r\nIf-None-Match: \"{key:x}\"\r\nConnection: keep-alive\r\n",
            key % 100,
            key % 10_000
        );
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let length = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum::<u64>();
        let found = (0..4).filter_map(|step| self.table.get(&((key + step * length) % ENTRIES)));
        found.sum()
    }
}

/// A message is sent from one socket to another of this thread.
struct Messages {
    from: UnixStream,
    to: UnixStream,
    message: Box<[u8]>,
}

impl Messages {
    fn new() -> io::Result<Self> {
        let (from, to) = UnixStream::pair()?;
        Ok(Self { from, to, message: vec![0; MESSAGE_BYTES].into() })
    }

    fn rounds(&mut self, count: u32) {
        // Between two sockets of one thread nothing fails, and the next message has room.
        let _ = (0..count).try_for_each(|_| self.round());
    }

    fn round(&mut self) -> io::Result<()> {
        self.from.write_all(&self.message)?;
        self.to.read_exact(&mut self.message)
    }
}

/// Each place of the memory names the next one, in no order.
struct Memory {
    next: Box<[u32]>,
    at: u32,
}

impl Memory {
    fn new() -> Self {
        let count = MEMORY_BYTES / size_of::<u32>();
        let mut next: Vec<u32> = (0..count as u32).collect();
        // One way through all places (Sattolo's shuffle).
        let mut random = 1_u64;
        for last in (1..count).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            next.swap(last, (random >> 33) as usize % last);
        }
        Self { next: next.into(), at: 0 }
    }

    fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.at = black_box(self.next.get(self.at as usize).copied().unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_work_whose_result_is_needed() {
        let mut text = Text::new();
        let found: u64 = (0..100).map(|_| text.round()).sum();
        assert!(found > 0);
        assert!(Work::new().expect("sockets").speed() > 0.0);
    }

    #[test]
    fn a_message_arrives() {
        let mut messages = Messages::new().expect("sockets");
        messages.message[7] = 7;
        (0..1000).for_each(|_| messages.round().expect("it arrives"));
        assert_eq!(messages.message[7], 7);
    }

    #[test]
    fn the_way_through_memory_comes_to_every_place() {
        let mut memory = Memory::new();
        let count = memory.next.len() as u32;
        let mut seen = vec![false; count as usize];
        for _ in 0..count {
            assert!(!std::mem::replace(&mut seen[memory.at as usize], true));
            memory.rounds(1);
        }
        assert_eq!(memory.at, 0);
    }
}
