//! TLS between users and the laboratory's own servers, and tunnels through a relay.
#![allow(clippy::unwrap_used, reason = "tests end at what they do not expect")]

mod common;

use common::{SEED, first_fault, plan, run_until, workload};
use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_record::FaultKind;
use humboldt_lab_robots::{
    Bang, BangTarget, BangWorld, FarEnd, Robots, Route, TlsWay, Tunnels, UserTls,
};
use humboldt_lab_tls::{Authority, Channel, Got, ServerTls, Trust};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

fn origin(authority: &Authority) -> Origin {
    let mut plan = OriginPlan::new(workload("fixed-1k"), SEED);
    plan.tls = Some(authority.clone());
    Origin::start(plan).unwrap()
}

fn tls(authority: &Authority, way: TlsWay) -> Option<UserTls> {
    Some(UserTls { way, trust: Trust::from_pem(authority.certificate_pem(), true).unwrap() })
}

/// A proxy that knows only CONNECT, and changes bytes of each tunnel if it is told to.
fn relay(is_wrong: bool) -> SocketAddr {
    relay_of(Way::WHOLE, Way { is_wrong, ..Way::WHOLE })
}

/// What a relay does with the bytes of one direction.
#[derive(Clone, Copy)]
struct Way {
    /// The last byte of each piece becomes another.
    is_wrong: bool,
    /// After this many bytes it passes no more.
    bytes_max: usize,
}

impl Way {
    const WHOLE: Self = Self { is_wrong: false, bytes_max: usize::MAX };
}

fn relay_of(up: Way, down: Way) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client, up, down));
        }
    });
    address
}

fn serve(mut client: TcpStream, up: Way, down: Way) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let to = head.strip_prefix("CONNECT ")?.split(' ').next()?;
    let server = TcpStream::connect(to).ok()?;
    client.write_all(b"HTTP/1.1 200 Yes\r\n\r\n").ok()?;
    let (from, into) = (client.try_clone().ok()?, server.try_clone().ok()?);
    thread::spawn(move || pass(from, into, up));
    pass(server, client, down)
}

fn pass(mut from: TcpStream, mut into: TcpStream, way: Way) -> Option<()> {
    let (mut buffer, mut passed) = ([0; 10_000], 0);
    loop {
        if passed >= way.bytes_max {
            thread::park();
        }
        let count = match from.read(&mut buffer) {
            Ok(0) => return into.shutdown(Shutdown::Write).ok(),
            Ok(count) => count,
            // The other end must learn of it although it has nothing more to send.
            Err(_) => return into.shutdown(Shutdown::Both).ok(),
        };
        buffer[count - 1] ^= u8::from(way.is_wrong && count > 100);
        into.write_all(&buffer[..count]).ok()?;
        passed += count;
    }
}

#[test]
fn users_and_servers_understand_each_other() {
    let authority = Authority::new("test").unwrap();
    let origin = origin(&authority);
    let mut plan = plan("fixed-1k", origin.addresses()[0], 300.0);
    plan.tls = tls(&authority, TlsWay::Hop);
    plan.think = false;
    let robots = Robots::start(plan).unwrap();
    let tally = run_until(&robots, |tally| tally.answers() > 500);
    assert_eq!(tally.faults_total(), 0, "{:?}", tally.fault_samples);
    assert!(tally.handshakes.full > 0, "{:?}", tally.handshakes);
    drop(robots);
    let seen = origin.stop().handshakes;
    assert!(seen.full >= tally.handshakes.full && seen.failed == 0, "{seen:?}");
}

#[test]
fn users_ask_through_tunnels_and_notice_a_changed_byte() {
    let authority = Authority::new("test").unwrap();
    let origin = origin(&authority);
    let plan_through = |proxy| {
        let mut plan = plan("fixed-1k", origin.addresses()[0], 100.0);
        plan.route = Route::Forward { proxies: vec![proxy] };
        plan.tls = tls(&authority, TlsWay::Tunnel);
        plan
    };
    let robots = Robots::start(plan_through(relay(false))).unwrap();
    let tally = run_until(&robots, |tally| tally.answers() > 100);
    assert_eq!(tally.faults_total(), 0, "{:?}", tally.fault_samples);
    assert!(tally.answers() == tally.misses.answers && tally.handshakes.full > 0);
    drop(robots);
    let fault = first_fault(plan_through(relay(true)), FaultKind::Handshake);
    assert!(fault.url.starts_with("https://127.0.0.1:"), "{fault:?}");
}

#[test]
fn a_wrong_authority_is_a_fault_of_its_own() {
    let (own, other) = (Authority::new("own").unwrap(), Authority::new("other").unwrap());
    let origin = origin(&own);
    let mut plan = plan("fixed-1k", origin.addresses()[0], 100.0);
    plan.tls = tls(&other, TlsWay::Hop);
    let fault = first_fault(plan, FaultKind::Handshake);
    assert!(fault.fault.got.contains("UnknownIssuer"), "{fault:?}");
    let start = std::time::Instant::now();
    while origin.sample().handshakes.failed == 0 {
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "the server knows nothing");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn the_banger_resumes_the_sessions_of_its_connections() {
    let authority = Authority::new("test").unwrap();
    let origin = origin(&authority);
    let address = origin.addresses()[0];
    let world = BangWorld { workload: workload("fixed-1k"), seed: SEED, origins: vec![address] };
    let mut stream = humboldt_lab_workload::Stream::new(workload("fixed-1k"), SEED, 0, 1, 1_000);
    let mut asks = Vec::new();
    while asks.len() < 200 {
        stream.next_visit(&mut asks);
    }
    asks.truncate(200);
    for (proxy, way) in [(None, TlsWay::Hop), (Some(relay(false)), TlsWay::Tunnel)] {
        let route = proxy.map_or(Route::Direct, |proxy| Route::Forward { proxies: vec![proxy] });
        let mut bang = Bang { world: Some(world.clone()), ..Bang::new(route) };
        bang.tls = tls(&authority, way);
        bang.connections_max = 5;
        let targets = asks.iter().map(|ask| BangTarget::Ask(*ask));
        let report = bang.run(targets, &mut |_| true).unwrap();
        assert_eq!(report.verified, 200, "{:?}", report.fault_samples);
        let (full, resumed) = (report.handshakes.full, report.handshakes.resumed);
        assert_eq!(full + resumed, 200);
        assert!((1..=5).contains(&full), "{full} full handshakes of 5 connections");
        let http = BangTarget::Url(format!("http://{address}/"));
        let report = bang.run([http].into_iter(), &mut |_| true).unwrap();
        assert_eq!(report.unusable, 1);
    }
}

/// Serves one connection: an answer until close, and then the end of TLS or only that of TCP.
fn half_an_answer(listener: &TcpListener, tls: &ServerTls, in_order: bool) {
    let (stream, _) = listener.accept().unwrap();
    // Its socket waits, unlike those of servers.
    let mut channel = Channel::plain(stream.into());
    channel.begin_server(tls).unwrap();
    let (mut request, mut buffer) = (Vec::new(), [0; 1000]);
    while !request.ends_with(b"\r\n\r\n") {
        match channel.receive(&mut buffer).unwrap() {
            Got::Bytes(count) => request.extend_from_slice(&buffer[..count]),
            other => panic!("{other:?}"),
        }
    }
    channel.send(b"HTTP/1.1 200 Yes\r\nConnection: close\r\n\r\nhalf").unwrap();
    if in_order {
        channel.shut().unwrap();
    }
}

#[test]
fn an_answer_until_close_is_whole_only_with_the_end_of_tls() {
    let authority = Authority::new("test").unwrap();
    let server_tls = authority.issue(&["127.0.0.1".to_owned()]).unwrap().server().unwrap();
    for in_order in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = BangTarget::Url(format!("https://{}/", listener.local_addr().unwrap()));
        let server_tls = server_tls.clone();
        let server = thread::spawn(move || half_an_answer(&listener, &server_tls, in_order));
        let mut bang = Bang::new(Route::Direct);
        bang.tls = tls(&authority, TlsWay::Hop);
        let report = bang.run([url].into_iter(), &mut |_| true).unwrap();
        server.join().unwrap();
        let truncated = report.faults.get(&FaultKind::Truncated).copied().unwrap_or_default();
        assert_eq!((report.answers, truncated), if in_order { (1, 0) } else { (0, 1) });
    }
}

fn tunnels(proxy: SocketAddr) -> Tunnels {
    Tunnels {
        proxy,
        tunnels: 4,
        up_bytes: 3_000_000,
        down_bytes: 2_000_000,
        renews: false,
        time_max_s: 60.0,
        timeout_s: 30.0,
    }
}

#[test]
fn tunnels_carry_every_byte_in_both_directions() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let far = FarEnd::start(any, None).unwrap();
    let report = tunnels(relay(false)).run(&far, &mut |_| true).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.fault_samples);
    assert_eq!((report.begun, report.done, report.opened.count()), (4, 4, 4));
    assert_eq!((report.up_bytes, report.down_bytes), (12_000_000, 8_000_000));
    let wrong = tunnels(relay(true)).run(&far, &mut |_| true).unwrap();
    assert_eq!((wrong.done, wrong.faults.get(&FaultKind::WrongByte)), (0, Some(&4)));
    // Those of the other direction are counted once each too, and not as lost connections.
    let wrong_up = relay_of(Way { is_wrong: true, ..Way::WHOLE }, Way::WHOLE);
    let wrong = tunnels(wrong_up).run(&far, &mut |_| true).unwrap();
    assert_eq!((wrong.done, wrong.faults), (0, [(FaultKind::WrongByte, 4)].into()));
}

#[test]
fn set_ups_follow_one_another_until_they_are_ended() {
    let far = FarEnd::start(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
    let plan = Tunnels { up_bytes: 0, down_bytes: 1, renews: true, ..tunnels(relay(false)) };
    let report = plan.run(&far, &mut |tick| tick.done < 30).unwrap();
    assert!(report.done >= 30 && report.faults.is_empty(), "{report:?}");
    // Nobody listens there: a hundred attempts are enough.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let nobody = Tunnels { proxy: closed.unwrap(), ..plan };
    let report = nobody.run(&far, &mut |_| true).unwrap();
    assert_eq!(report.done, 0);
    assert!(report.faults.contains_key(&FaultKind::Refused), "{report:?}");
}

#[test]
fn an_upload_that_takes_too_long_was_open_all_the_same() {
    let far = FarEnd::start(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
    let plan = |bytes_max| Tunnels {
        up_bytes: 1 << 40,
        down_bytes: 2,
        timeout_s: 1.0,
        time_max_s: 2.0,
        ..tunnels(relay_of(Way { bytes_max, ..Way::WHOLE }, Way::WHOLE))
    };
    for bytes_max in [100_000, usize::MAX] {
        let report = plan(bytes_max).run(&far, &mut |_| true).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.fault_samples);
        assert_eq!((report.done, report.down_bytes, report.opened.count()), (0, 4, 4));
        assert!(report.up_bytes > 100_000, "{report:?}");
    }
    let refused = Tunnels { down_bytes: 1, ..plan(1) }.run(&far, &mut |_| true);
    assert!(refused.unwrap_err().to_string().contains("at least 2"));
}
