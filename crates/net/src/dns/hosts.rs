//! The hosts file (`hosts_file`): lines of an address and its names.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Most bytes of a hosts file that are read; the rest is ignored.
pub(super) const HOSTS_BYTES_MAX: u64 = 16 << 20;

/// Names and their addresses, in the file's order; addresses and their names.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    addresses: HashMap<Box<str>, Arc<[IpAddr]>>,
    names: HashMap<IpAddr, Arc<str>>,
}

impl Hosts {
    /// Reads hosts(5) text. Lines that do not begin with an address are skipped, as the C library
    /// does.
    pub(super) fn parse(text: &str, append_domain: Option<&str>) -> Self {
        let mut lists: HashMap<Box<str>, Vec<IpAddr>> = HashMap::new();
        let mut names: HashMap<IpAddr, Arc<str>> = HashMap::new();
        for line in text.lines() {
            let content = line.split('#').next().unwrap_or_default();
            let mut words = content.split_ascii_whitespace();
            let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
            let mut first: Option<Arc<str>> = None;
            for name in words {
                let mut name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
                if let (Some(domain), false) = (append_domain, name.contains('.')) {
                    add(&mut lists, name.clone().into(), ip);
                    name.push_str(domain);
                }
                first.get_or_insert_with(|| name.as_str().into());
                add(&mut lists, name.into(), ip);
            }
            names.extend(first.map(|name| (ip.to_canonical(), name)));
        }
        let addresses = lists.into_iter().map(|(name, ips)| (name, ips.into())).collect();
        Self { addresses, names }
    }

    /// The name of `ip`. As in Squid the last line about an address counts, and its first name.
    pub(super) fn name(&self, ip: IpAddr) -> Option<Arc<str>> {
        self.names.get(&ip).cloned()
    }

    /// The addresses of `name`, which may be in any case.
    pub(super) fn get(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        if self.addresses.is_empty() {
            return None;
        }
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.addresses.get(name.to_ascii_lowercase().as_str()).cloned();
        }
        self.addresses.get(name).cloned()
    }

    /// Names known.
    pub(super) fn len(&self) -> usize {
        self.addresses.len()
    }
}

fn add(lists: &mut HashMap<Box<str>, Vec<IpAddr>>, name: Box<str>, ip: IpAddr) {
    let ips = lists.entry(name).or_default();
    if !ips.contains(&ip) {
        ips.push(ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_comments_and_both_families() {
        let text = "127.0.0.1 localhost\n\
                    10.0.0.1\tBig.example  big # the big one\n\
                    # 10.0.0.2 hidden\n\
                    not-an-address foo\n\
                    fd00::1 big\r\n\
                    10.0.0.1 big\n";
        let hosts = Hosts::parse(text, Some(".lan"));
        let ips = |name| hosts.get(name).map(|ips| ips.to_vec());
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(ips("BIG"), Some(vec![v4, v6]));
        assert_eq!(ips("big.lan"), Some(vec![v4, v6]));
        assert_eq!(ips("big.example"), Some(vec![v4]));
        assert_eq!((ips("hidden"), ips("foo")), (None, None));
        assert_eq!(hosts.name(v4).as_deref(), Some("big.lan"), "the last line about it");
        assert_eq!(hosts.name(v6).as_deref(), Some("big.lan"));
        assert_eq!(hosts.name("127.0.0.1".parse().unwrap()).as_deref(), Some("localhost.lan"));
        assert_eq!(hosts.name("10.0.0.2".parse().unwrap()), None);
    }
}
