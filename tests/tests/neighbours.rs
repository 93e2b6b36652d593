//! Rules about the hardware addresses of clients (`arp`).
//!
//! Needs root, `unshare`, `nsenter`, `ip`, `nft` and `bash`; without them it says so and passes.

use humboldt_tests::spaces::{Space, in_a_namespace, ip, set_filter};
use humboldt_tests::wait::until;
use humboldt_tests::{Proxy, Reply, World, proxy};
use std::fs;
use std::process::Stdio;

const CARD: &str = "02:00:00:00:00:07";

/// A client that sends two requests on one connection, the second when it may.
const CLIENT: &str = "exec 3<>/dev/tcp/10.99.0.1/3129
printf 'GET http://ORIGIN/a HTTP/1.1\\r\\nHost: ORIGIN\\r\\n\\r\\n' >&3
while [ ! -e FOLDER/go ]; do sleep 0.02; done
printf 'GET http://ORIGIN/b HTTP/1.1\\r\\nHost: ORIGIN\\r\\n\\r\\n' >&3
sleep 30";

/// Nobody answers the kernel any more when it asks for a hardware address.
const FILTER: &str = "table arp silence {
  chain incoming { type filter hook input priority 0; policy drop; }
}
";

#[test]
fn a_client_keeps_its_hardware_address_when_the_kernel_has_dropped_it() {
    in_a_namespace("expired_entry");
}

#[test]
#[ignore = "a test above runs it in a namespace"]
fn expired_entry() {
    let (client, folder) = (Space::new(), proxy::open_folder());
    ip("link set lo up");
    ip(&format!("link add gate type veth peer name eth0 netns {}", client.0.id()));
    ip("address add 10.99.0.1/24 dev gate");
    ip("link set gate up");
    client.run(&format!("link set eth0 address {CARD}"));
    client.run("link set eth0 up");
    client.run("address add 10.99.0.2/24 dev eth0");
    let lines = format!(
        "http_port 10.99.0.1:3129\nacl card arp {CARD}\nhttp_access allow localhost\n\
         http_access deny !card\n\
         logformat own %>eui %ru\naccess_log stdio:{{dir}}/own.log own\n"
    );
    let world = World::forward(&lines);
    for path in ["/a", "/b"] {
        world.origin.on(path, Reply::ok("x"));
    }
    let origin = world.origin.address().to_string();
    let script =
        CLIENT.replace("ORIGIN", &origin).replace("FOLDER", &folder.path().display().to_string());
    let mut bash = client.command("bash");
    bash.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null());
    let _bash = Space(bash.spawn().unwrap_or_else(|error| panic!("not there: bash: {error}")));
    let logged = |proxy: &Proxy, path: &str| proxy.logged(&format!("{origin}{path} "));
    assert!(logged(&world.proxy, "/a").contains(" 10.99.0.2 TCP_MISS/200 "));
    set_filter(FILTER);
    ip("neighbour del 10.99.0.2 dev gate");
    fs::write(folder.path().join("go"), "").expect("a sign");
    let line = logged(&world.proxy, "/b");
    assert!(line.contains(" 10.99.0.2 TCP_MISS/200 "), "{line}");
    let wanted = format!("{CARD} http://{origin}/b\n");
    until("the address in the log", || world.proxy.text("own.log").contains(&wanted).then_some(()));
}
