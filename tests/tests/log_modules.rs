//! The modules of `access_log`: files, programs with Squid's protocol, syslog, and receivers in the
//! network.

use humboldt_tests::wait::{free_address, free_listener, until};
use humboldt_tests::{Client, Reply, Scripts, World, proxy};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// Squid's own program for files.
const SQUIDS: &str = "/usr/lib/squid/log_file_daemon";

const FORMAT: &str = "logformat mine %rm %ru\n";

fn world(lines: &str) -> World {
    let world = World::forward(&format!("{FORMAT}{lines}"));
    for number in 0..10 {
        world.origin.on(&format!("/{number}"), Reply::ok("x"));
    }
    world
}

/// The line of a request.
fn line(world: &World, path: &str) -> String {
    format!("GET {}", world.target(path))
}

/// Waits until a file has these lines.
fn wait_lines(path: &Path, wanted: &[String]) {
    until(&format!("{} to have {} lines", path.display(), wanted.len()), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        (text.lines().collect::<Vec<_>>() == wanted).then_some(())
    });
}

#[test]
fn squids_program_writes_and_rotates_the_file() {
    assert!(Path::new(SQUIDS).is_file(), "squid is installed");
    let mut world = world(&format!(
        "logfile_daemon {SQUIDS}\naccess_log daemon:{{dir}}/d.log mine\nlogfile_rotate 2\n"
    ));
    let (one, two) = (line(&world, "/1"), line(&world, "/2"));
    let log = world.proxy.path("d.log");
    let _ = world.get("/1").expect(200);
    wait_lines(&log, std::slice::from_ref(&one));
    world.proxy.signal(Signal::USR1);
    wait_lines(&world.proxy.path("d.log.0"), &[one]);
    let _ = world.get("/2").expect(200);
    wait_lines(&log, std::slice::from_ref(&two));
    // The last line is written at the end, and the program ends too.
    let three = line(&world, "/3");
    let _ = world.get("/3").expect(200);
    assert!(world.proxy.stop().success());
    wait_lines(&log, &[two, three]);
}

#[test]
fn a_program_that_ends_is_started_again_and_gets_the_lines_meanwhile() {
    let scripts = Scripts::new();
    let log = scripts.path("log");
    // It ends after each batch.
    let text = format!(
        "#!/bin/sh\nwhile IFS= read -r line; do echo \"$1 $line\" >> {0}; \
         case $line in F) exit 0;; esac; done\n",
        log.display()
    );
    let program = scripts.write("daemon", &text);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it can be run");
    let world = world(&format!(
        "logfile_daemon {}\nbuffered_logs on\nlogfile_rotate 7\naccess_log daemon:place mine\n",
        program.display()
    ));
    for path in ["/1", "/2", "/3"] {
        let _ = world.get(path).expect(200);
        let wanted = format!("place L{}", line(&world, path));
        until("the line", || {
            fs::read_to_string(&log).unwrap_or_default().contains(&wanted).then_some(())
        });
    }
    let said = fs::read_to_string(&log).expect("the log");
    let starts = said.matches("place r7\nplace b1\n").count();
    assert!(starts >= 3, "{said}");
    assert_eq!(said.matches("place LGET").count(), 3, "no line twice: {said}");
}

#[test]
fn receivers_in_the_network_get_lines_also_after_they_were_away() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    udp.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let tcp = free_address();
    let world = world(&format!(
        "access_log udp://{} mine\naccess_log tcp://{tcp} logformat=mine\n\
         acl quiet urlpath_regex ^/2\naccess_log none quiet\naccess_log stdio:{{dir}}/last.log mine\n",
        udp.local_addr().expect("an address")
    ));
    let lines = ["/1", "/2", "/3"].map(|path| line(&world, path));
    for path in ["/1", "/2"] {
        let _ = world.get(path).expect(200);
    }
    let mut datagram = [0; 2000];
    let mut received = [(); 2].map(|()| {
        let len = udp.recv(&mut datagram).expect("a datagram");
        String::from_utf8_lossy(&datagram[..len]).into_owned()
    });
    // Lines of two cores have no order.
    received.sort();
    assert_eq!(received, [format!("{}\n", lines[0]), format!("{}\n", lines[1])]);
    until("a report", || {
        world
            .proxy
            .text("cache.log")
            .contains(&format!("cannot reach log tcp://{tcp}"))
            .then_some(())
    });
    // The receiver comes, goes, and comes again.
    let listener = std::net::TcpListener::bind(tcp).expect("the port is free");
    let (stream, _) = listener.accept().expect("a connection");
    let mut reader = BufReader::new(stream);
    let read = |reader: &mut BufReader<_>| {
        let mut text = String::new();
        reader.read_line(&mut text).expect("a line");
        text.trim_end().to_owned()
    };
    let mut received = [read(&mut reader), read(&mut reader)];
    received.sort();
    assert_eq!(received, lines[..2]);
    drop(reader);
    let _ = world.get("/3").expect(200);
    // The kernel may have taken this line before it knew.
    let _ = world.get("/4").expect(200);
    let (stream, _) = {
        let mut number = 5;
        listener.set_nonblocking(true).expect("set");
        until("a new connection", || {
            let _ = world.get(&format!("/{number}")).expect(200);
            number = 5 + (number - 4) % 5;
            listener.accept().ok()
        })
    };
    stream.set_nonblocking(false).expect("set");
    assert!(read(&mut BufReader::new(stream)).starts_with("GET http://"));
    // What is kept out of the logs after `none` is in those before it only.
    let has = |path: usize| world.proxy.text("last.log").contains(&lines[path]);
    until("the lines of the last log", || (has(0) && has(2)).then_some(()));
    assert!(!has(1));
}

#[test]
fn syslog_gets_lines_with_their_facility() {
    let socket = Path::new("/dev/log");
    if socket.exists() {
        return humboldt_tests::skip("/dev/log is there already");
    }
    let Ok(syslog) = UnixDatagram::bind(socket) else {
        return humboldt_tests::skip("/dev/log cannot be made");
    };
    let _gone = Removed(socket);
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).expect("for all users");
    syslog.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let world = world("access_log syslog:local4.notice mine\n");
    let _ = world.get("/1").expect(200);
    let mut message = [0; 2000];
    let wanted = format!(" humboldt[{}]: {}", world.proxy.id(), line(&world, "/1"));
    // Other programs of this machine may use it too.
    let text = until("a message", || {
        let len = syslog.recv(&mut message).expect("a message");
        let text = String::from_utf8_lossy(&message[..len]).into_owned();
        text.contains(" humboldt[").then_some(text)
    });
    assert!(text.starts_with("<165>"), "{text}");
    assert!(text.ends_with(&wanted), "{text}");
}

struct Removed(&'static Path);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

#[test]
fn a_lost_line_ends_the_program_if_it_is_to() {
    let mut dying = world("access_log stdio:/dev/full logformat=mine on-error=die\n");
    let _ = dying.get("/1").expect(200);
    let status = dying.proxy.wait_end();
    assert_eq!(status.code(), Some(1));
    let log = dying.proxy.text("cache.log");
    assert!(log.contains("cannot write to log /dev/full") && log.contains("on-error=die"), "{log}");

    let living = world("access_log stdio:/dev/full logformat=mine on-error=drop\n");
    let _ = living.get("/1").expect(200);
    until("a report", || {
        living.proxy.text("cache.log").contains("cannot write to log /dev/full").then_some(())
    });
    let _ = living.get("/2").expect(200);

    // It cannot be opened at all.
    let folder = proxy::open_folder();
    let text = format!(
        "http_port {}\npid_filename none\ncache_log {1}/cache.log\nhttp_access allow all\n\
         access_log stdio:{1}/missing/a.log logformat=squid on-error=die\n",
        free_address(),
        folder.path().display()
    );
    let file = folder.path().join("squid.conf");
    fs::write(&file, text).expect("a configuration");
    let ended = proxy::run(&["-N", "-f", &file.display().to_string()]);
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
fn what_waits_for_a_receiver_has_a_bound() {
    let listener = free_listener();
    let address = listener.local_addr().expect("an address");
    let long = "x".repeat(3000);
    let mut world = world(&format!(
        "access_log tcp://{address} logformat=mine buffer-size=16KB on-error=die\n"
    ));
    // The receiver is away: nobody listens.
    drop(listener);
    let path = format!("/{long}");
    world.origin.on(&path, Reply::ok("x"));
    // It goes on until nobody accepts connections any more, with far more than fits.
    for _ in 0..1000 {
        let Some(mut client) = Client::try_to(world.proxy.address()) else { break };
        client.request("GET", &world.target(&path), &[], b"");
        let _ = client.try_response_to("GET");
    }
    assert_eq!(world.proxy.wait_end().code(), Some(1));
}
