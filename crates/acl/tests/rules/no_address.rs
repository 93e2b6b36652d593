//! Clients on Unix sockets, which have no address.

use humboldt_acl::Subject;

use crate::{ip, list, subject};

/// A client on a Unix socket: what needs its address never allows, also behind `!`, and a `deny`
/// refuses.
#[test]
fn nothing_about_the_address_of_a_client_without_one_allows() {
    let unix = Subject { client_ip: ip("0.0.0.0"), local_ip: ip("0.0.0.0"), ..subject() };
    let acls = "acl all src all\nacl bad src 192.0.2.0/24\nacl low src 0.0.0.0/8\nacl old src ipv4\n\
                acl two src ipv4 ipv6\nacl any src 0.0.0.0/0\nacl sockets src none\n\
                acl here localip 0.0.0.0\nacl name srcdomain .example.com\nacl get method GET\n\
                acl post method POST\nacl group any-of bad post\nacl wide any-of bad get\n";
    for (rules, is_allowed) in [
        ("allow bad", false),
        ("allow !bad", false),
        ("allow low", false),
        ("allow !low", false),
        ("allow old", false),
        ("allow two", false),
        ("allow here", false),
        ("allow !here", false),
        ("allow name", false),
        ("allow !name", false),
        ("allow !group", false),
        ("allow any", true),
        ("allow sockets", true),
        ("allow !sockets", false),
        ("allow wide", true),
        ("allow bad\nallow get", true),
        ("deny bad\nallow all", false),
        ("deny !bad\nallow all", false),
        ("deny name\nallow all", false),
        ("deny group\nallow all", false),
        // No client with another method is meant.
        ("deny bad post\nallow all", true),
        ("deny bad get\nallow all", false),
        ("deny sockets\nallow all", false),
        ("deny bad", false),
    ] {
        let list = list(acls, rules);
        assert_eq!(list.check(&unix).is_allowed(), is_allowed, "{rules}");
    }
}
