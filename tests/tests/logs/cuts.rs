//! Cuts that need more than a server or a client that leaves.

use super::*;

/// Longer than any limit of the program that is waited for here.
const PATIENCE: Duration = Duration::from_secs(60);

/// In a tunnel in which nothing moves for 10 s after the client's FIN.
#[test]
fn a_tunnel_that_nobody_uses_any_more_has_one_line_and_is_counted() {
    let mut played = Played::new("");
    let (listener, address) = listener();
    let mut client = TcpStream::connect(played.world.proxy.address()).expect("the proxy");
    client.set_read_timeout(Some(PATIENCE)).expect("a socket");
    write!(client, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let (_server, _) = listener.accept().expect("the proxy");
    client.shutdown(std::net::Shutdown::Write).expect("a connection");
    let mut got = Vec::new();
    let ended = client.read_to_end(&mut got).err().map(|error| error.kind());
    assert!(matches!(ended, None | Some(ErrorKind::ConnectionReset)), "{ended:?}");
    assert_eq!(got, b"HTTP/1.1 200 Connection established\r\n\r\n");
    let error = "ERR_READ_TIMEOUT tunnel_idle";
    played.logs_cut(
        "tunnel_idle",
        &format!("TCP_TUNNEL_TIMEDOUT/200 CONNECT {address} HIER_DIRECT/127.0.0.1 {error}"),
    );
    played.ends();
}

/// Address space of the program, in KiB.
fn address_space_kib(played: &Played) -> u64 {
    let path = format!("/proc/{}/status", played.world.proxy.id());
    let status = std::fs::read_to_string(path).expect("its status");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its size");
    size.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn an_answer_for_which_the_system_gives_no_memory_has_one_line_and_is_counted() {
    let mut played =
        Played::new("workers 1\ncache_mem 256 MB\nmaximum_object_size_in_memory 64 MB\n");
    played.world.origin.on("/small", Reply::ok("x").cachable(60));
    played.world.origin.on("/large", Reply::ok(vec![b'x'; 60 << 20]).cachable(60));
    let (small, large) = (played.world.target("/small"), played.world.target("/large"));
    let direct = "HIER_DIRECT/127.0.0.1";
    let mut limit_kib = 4 << 20;
    for _ in 0..2 {
        played.world.proxy.stop();
        played.world.proxy.launch_within(limit_kib);
        assert_eq!(played.ask("GET", &small), 200);
        played.logs(&format!("TCP_MISS/200 GET {small} {direct} - -"));
        // Room for threads that start when there is work, and not for the large answer.
        limit_kib = address_space_kib(&played) + (32 << 10);
    }
    assert!(!played.world.get("/large").expect(200).is_complete);
    let error = "ERR_INTERNAL no_memory";
    played.logs_cut("no_memory", &format!("TCP_MISS_ABORTED/200 GET {large} {direct} {error}"));
    assert_eq!(played.ask("GET", &small), 200);
    played.logs(&format!("TCP_MEM_HIT/200 GET {small} HIER_NONE/- - -"));
    played.ends();
}
