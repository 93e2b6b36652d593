//! The cache of names that all cores share, and the hosts file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use super::answer::Told;
use super::hosts::{HOSTS_BYTES_MAX, Hosts};

/// Answers of name servers, good and bad, until they expire; at most as many as asked for.
///
/// When it is full, the least recently used half is forgotten: names live in a young and an old
/// generation, using one moves it to the young, and when that holds half of the capacity it becomes
/// the old one.
#[derive(Debug)]
pub struct NameCache {
    generations: Mutex<Generations>,
    /// Names a generation may hold.
    generation_max: usize,
    hosts: RwLock<Arc<Hosts>>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Cached>,
    old: HashMap<Box<str>, Cached>,
}

#[derive(Clone, Debug)]
struct Cached {
    answer: Told,
    expires: Instant,
}

impl NameCache {
    /// An empty cache for `capacity` names (`ipcache_size`, at least 2).
    pub fn new(capacity: usize) -> Self {
        Self {
            generations: Mutex::default(),
            generation_max: (capacity / 2).max(1),
            hosts: RwLock::default(),
        }
    }

    /// Reads the hosts file again (`hosts_file`, `None` for none); names without a dot are also
    /// known with `append_domain`. Returns the number of names. After an error the earlier names
    /// stay. Blocks: not to be called on a core that serves.
    pub fn load_hosts(
        &self,
        path: Option<&Path>,
        append_domain: Option<&str>,
    ) -> io::Result<usize> {
        let mut bytes = Vec::new();
        if let Some(path) = path {
            File::open(path)?.take(HOSTS_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        let hosts = Hosts::parse(&String::from_utf8_lossy(&bytes), append_domain);
        let count = hosts.len();
        *self.hosts.write() = Arc::new(hosts);
        Ok(count)
    }

    /// Names remembered now, expired ones included.
    pub fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all answers (not the hosts file).
    pub fn clear(&self) {
        *self.generations.lock() = Generations::default();
    }

    pub(super) fn hosts_entry(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        self.hosts.read().get(name)
    }

    pub(super) fn hosts_name(&self, ip: IpAddr) -> Option<Arc<str>> {
        self.hosts.read().name(ip)
    }

    /// The answer for `name` (lower case, or a reverse name) if it has not expired.
    pub(super) fn get(&self, name: &str, now: Instant) -> Option<Told> {
        let mut generations = self.generations.lock();
        if let Some(cached) = generations.young.get(name) {
            return (cached.expires > now).then(|| cached.answer.clone());
        }
        let (key, cached) = generations.old.remove_entry(name)?;
        if cached.expires <= now {
            return None;
        }
        let answer = cached.answer.clone();
        generations.put(key, cached, self.generation_max);
        Some(answer)
    }

    pub(super) fn insert(&self, name: &str, answer: Told, expires: Instant) {
        let mut generations = self.generations.lock();
        generations.old.remove(name);
        generations.put(name.into(), Cached { answer, expires }, self.generation_max);
    }
}

impl Generations {
    fn put(&mut self, name: Box<str>, cached: Cached, generation_max: usize) {
        if self.young.len() >= generation_max && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, cached);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::DnsError;
    use super::*;

    #[test]
    fn answers_expire() {
        let cache = NameCache::new(10);
        let now = Instant::now();
        cache.insert("a", Err(DnsError::NoSuchName), now + Duration::from_secs(5));
        assert_eq!(cache.get("a", now), Some(Err(DnsError::NoSuchName)));
        assert_eq!(cache.get("a", now + Duration::from_secs(5)), None);
        assert_eq!(cache.get("b", now), None);
    }

    #[test]
    fn holds_no_more_than_its_capacity_and_keeps_what_is_used() {
        let cache = NameCache::new(100);
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        cache.insert("used", Err(DnsError::Empty), later);
        for n in 0..10_000 {
            cache.insert(&format!("n{n}"), Err(DnsError::NoSuchName), later);
            assert!(cache.get("used", now).is_some(), "forgotten after {n}");
            assert!(cache.len() <= 100);
        }
        assert_eq!(cache.get("n5", now), None);
        cache.clear();
        assert!(cache.is_empty());
    }

    #[test]
    fn a_missing_hosts_file_is_an_error_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        std::fs::write(&path, "10.1.2.3 here\n").unwrap();
        let cache = NameCache::new(10);
        assert_eq!(cache.load_hosts(Some(&path), None).unwrap(), 1);
        assert!(cache.load_hosts(Some(&dir.path().join("none")), None).is_err());
        assert!(cache.hosts_entry("here").is_some());
        std::fs::write(&path, "10.1.2.3 there\n").unwrap();
        cache.load_hosts(Some(&path), None).unwrap();
        assert!(cache.hosts_entry("here").is_none() && cache.hosts_entry("there").is_some());
        assert_eq!(cache.load_hosts(None, None).unwrap(), 0);
    }
}
