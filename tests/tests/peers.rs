//! Which parent gets a request, and what the options of ports and peers do.

use humboldt_tests::{Origin, Proxy, Reply, proxy};
use std::fs;

/// Three servers that answer everything, and a proxy that has them as parents, each with the
/// options of its row.
fn behind(options: [&str; 3]) -> ([Origin; 3], Proxy) {
    let origins = [Origin::new(), Origin::new(), Origin::new()];
    let mut lines = "never_direct allow all\n".to_owned();
    for (n, (origin, options)) in origins.iter().zip(options).enumerate() {
        for path in 0..60 {
            origin.on(&format!("/{path}"), Reply::ok("x").with("Cache-Control", "no-store"));
        }
        let (ip, port) = (origin.address().ip(), origin.address().port());
        lines.push_str(&format!(
            "cache_peer {ip} parent {port} 0 no-query originserver name=p{n} {options}\n"
        ));
    }
    (origins, Proxy::forward(&lines))
}

/// Asks for `count` different URLs; how many each server got.
fn ask(origins: &[Origin; 3], proxy: &Proxy, count: usize) -> [usize; 3] {
    let mut client = proxy.client();
    for path in 0..count {
        let url = format!("http://site.test/{path}");
        let _ = client.request("GET", &url, &[], b"").response().expect(200);
    }
    std::array::from_fn(|n| (0..count).map(|path| origins[n].count(&format!("/{path}"))).sum())
}

#[test]
fn parents_take_turns_as_often_as_their_weight_says() {
    let (origins, proxy) =
        behind(["round-robin weight=3", "round-robin", "weighted-round-robin weight=2"]);
    assert_eq!(ask(&origins, &proxy, 60), [30, 10, 20]);
    assert!(proxy.logged("/1 ").contains("ROUNDROBIN_PARENT"));
}

#[test]
fn with_carp_the_url_decides() {
    let (origins, proxy) = behind(["carp", "carp", "carp"]);
    let first = ask(&origins, &proxy, 60);
    assert!(first.iter().all(|&count| count > 5), "{first:?}");
    let again = ask(&origins, &proxy, 60);
    assert_eq!(again, first.map(|count| 2 * count), "each URL goes where it went before");
    assert!(proxy.logged("/1 ").contains("CARP"));
}

#[test]
fn with_sourcehash_the_client_decides() {
    let (origins, proxy) = behind(["sourcehash", "sourcehash", "sourcehash"]);
    let mut counts = ask(&origins, &proxy, 20);
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 20]);
    assert!(proxy.logged("/1 ").contains("SOURCEHASH_PARENT"));
}

#[test]
fn userhash_is_the_order_of_the_file() {
    let (origins, proxy) = behind(["userhash", "userhash", "userhash"]);
    assert_eq!(ask(&origins, &proxy, 9), [9, 0, 0]);
    assert!(proxy.logged("/1 ").contains("FIRSTUP_PARENT"));
    assert!(proxy.output().contains("`userhash` has no effect"), "{}", proxy.output());
}

#[test]
fn vport_takes_the_place_of_the_port_that_the_client_names() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("x").cachable(60));
    let (ip, port) = (origin.address().ip(), origin.address().port());
    let peer = format!("cache_peer {ip} parent {port} 0 no-query originserver\n");
    let proxy = Proxy::start("accel vport=8080", &peer);
    let mut client = proxy.client();
    for host in ["site.test:99", "site.test", "SITE.test:1"] {
        let _ = client.request("GET", "/a", &[("Host", host)], b"").response().expect(200);
    }
    assert_eq!(origin.count("/a"), 1, "one URL, one object");
    assert!(
        proxy.logged("/a").contains(" http://site.test:8080/a "),
        "{}",
        proxy.text("access.log")
    );
}

#[test]
fn a_port_whose_name_does_not_resolve_does_not_become_every_address() {
    let folder = proxy::open_folder();
    let path = folder.path().join("squid.conf");
    let dir = folder.path().display();
    let lines =
        "http_port no-such-host.invalid:3128\naccess_log none\nhttp_access allow localhost\n";
    fs::write(&path, format!("{lines}pid_filename {dir}/pid\ncache_log {dir}/cache.log\n"))
        .expect("a file");
    let output = proxy::run(&["-N", "-f", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no port that can be opened"), "{said}");
}
