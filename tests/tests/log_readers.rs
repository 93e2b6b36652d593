//! Programs that read logs: jq, goaccess and calamaris accept what is written, whatever clients
//! send.

use humboldt_tests::wait::{start, until};
use humboldt_tests::{Client, Reply, World, skip};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A log for each format, and one with fields of one's own for refusals only.
const LOGS: &str = "logformat_json mine method url user agent=%{User-Agent}>h hour=%{%H h}tl \
                    cookie=%{Cookie:;id}>h server_says=%{Server}<h number port\n\
                    acl refused http_status 403\nacl metrics url_regex /metrics$\n\
                    acl bad url_regex /bad\nhttp_access deny bad\n\
                    strip_query_terms off\n\
                    access_log none metrics\n\
                    access_log stdio:{dir}/json.log json\n\
                    access_log stdio:{dir}/squid.log squid\n\
                    access_log stdio:{dir}/combined.log logformat=combined\n\
                    access_log stdio:{dir}/common.log common\n\
                    access_log stdio:{dir}/mine.log mine refused\n";

/// Heads that are hostile in some way: they are sent as they are, and their connections end.
fn hostile_heads(world: &World) -> Vec<Vec<u8>> {
    let target = world.target("/a");
    let host = world.host();
    let head = |target: &str, fields: &[u8]| {
        let start = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        [start.as_bytes(), fields, b"\r\n\r\n"].concat()
    };
    vec![
        head(&target, b"User-Agent: \"quoted\" \\back\\ {\"a\":1}"),
        head(&target, b"User-Agent: \xff\xfe \xc3\x28 \xed\xa0\x80"),
        head(&target, "User-Agent: é € 😀 \u{9b}31m \u{2028}".as_bytes()),
        head(&target, b"User-Agent: tab\there\r\nReferer: http://x/\"><script>\\"),
        head(&target, b"User-Agent: a\x01b\x7fc"),
        head(&format!("{target}?q=%22%5C%00%0A\"{{}}"), b"Cookie: a=1; id=x\"y; b=2"),
        head(&format!("{target}?\\\"'`<>|^"), b""),
        head(&world.target("/bad?\\\"x"), b"User-Agent: \"a\"\\\xff\r\nCookie: id=\"1\"; b=2"),
        b"GET http://a:8x\"/ HTTP/1.1\r\n\r\n".to_vec(),
        b"G\"T / HTTP/1.1\r\n\r\n".to_vec(),
        b"GET /\xff\x00\x1b[2J HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
        head(&format!("{target}?{}", "x\"".repeat(10_000)), b""),
    ]
}

/// A proxy that has served a mixture, and the number of requests.
fn played() -> (World, usize) {
    let world = World::forward(LOGS);
    world.origin.on("/a", Reply::ok("hello").cachable(60).with("Server", "o\"1\\"));
    for _ in 0..3 {
        let _ = world.get("/a").expect(200);
    }
    let _ = world.get("/bad/2").expect(403);
    let _ = world.get("/nowhere").expect(404);
    let mut client = world.client();
    client.request("CONNECT", &world.host(), &[], b"");
    let _ = client.response_to("CONNECT").expect(200);
    drop(client);
    let heads = hostile_heads(&world);
    let requests = 6 + heads.len();
    for head in heads {
        let mut client = Client::to(world.proxy.address());
        client.send(&head).half_close();
        let _ = client.closes();
    }
    for log in ["json.log", "squid.log", "combined.log", "common.log"] {
        until(&format!("{requests} lines of {log}"), || {
            let text = std::fs::read(world.proxy.path(log)).unwrap_or_default();
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            (lines == requests).then_some(())
        });
    }
    (world, requests)
}

/// The output of a program that gets a log on its standard input; `None` if it is not installed.
fn read_by(program: &str, arguments: &[&str], log: &[u8]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match start(&mut command) {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&format!("{program} is not installed"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let mut input = child.stdin.take().expect("its input");
    let log = log.to_vec();
    // It may write before it has read all.
    let writing = std::thread::spawn(move || input.write_all(&log));
    let output = child.wait_with_output().expect("its end");
    let _ = writing.join();
    Some(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What jq makes of a log.
fn jq(filter: &str, path: &Path) -> Option<String> {
    let log = std::fs::read(path).expect("the log");
    assert!(std::str::from_utf8(&log).is_ok(), "the log is UTF-8");
    let output = read_by("jq", &["-r", "-s", filter], &log)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text(&output).trim_end().to_owned())
}

#[test]
fn jq_reads_every_line_of_every_request() {
    let (world, requests) = played();
    let path = world.proxy.path("json.log");
    for line in std::fs::read(&path).expect("the log").split(|byte| *byte == b'\n') {
        assert!(line.iter().all(|byte| *byte >= 0x20 && *byte != 0x7f), "{line:?}");
    }
    let Some(count) = jq("length", &path) else { return };
    assert_eq!(count, requests.to_string());
    let is = |filter: &str, wanted: &str| {
        assert_eq!(
            jq(filter, &path).as_deref(),
            Some(wanted),
            "{filter}: {}",
            world.proxy.text("json.log")
        );
    };
    is("[.[] | keys_unsorted | length] | unique | length", "1");
    is(
        "[.[] | .status, .bytes, .elapsed_ms, .client_port, .server_status | type] | unique | join(\" \")",
        "null number",
    );
    is("[.[] | .generation] | unique | join(\" \")", "1");
    is("[.[] | select(.result == \"TCP_MEM_HIT\")] | length > 1", "true");
    is("[.[] | select(.method == \"CONNECT\")] | .[0].result", "TCP_TUNNEL");
    is("[.[] | select(.status == 403) | .rule | test(\"squid.conf:[0-9]+$\")] | all", "true");
    is("map(select(.user_agent == \"\\\"quoted\\\" \\\\back\\\\ {\\\"a\\\":1}\")) | length", "1");
    is(
        "map(select(.user_agent // \"\" | startswith(\"\u{fffd}\u{fffd} \u{fffd}(\"))) | length",
        "1",
    );
    is("map(select(.user_agent // \"\" | startswith(\"é € 😀 \\u009b31m\"))) | length", "1");
    is("[.[] | .time | sub(\"\\\\.[0-9]{3}Z$\"; \"Z\") | fromdate > 1700000000] | all", "true");
    is("map(select(.url | length > 20000)) | length", "1");

    // Only refusals, with fields of one's own.
    let path = world.proxy.path("mine.log");
    until("its lines", || (world.proxy.text("mine.log").lines().count() == 2).then_some(()));
    let is = |filter: &str, wanted: &str| assert_eq!(jq(filter, &path).as_deref(), Some(wanted));
    is("length", "2");
    is(
        "map(keys_unsorted | join(\" \")) | unique | .[0]",
        "method url user agent hour cookie server_says number port",
    );
    is("map(.cookie) | sort | .[1]", "\"1\"");
    is("map(.number | type) | unique | .[0]", "number");
    is("map(.hour | test(\"^[0-9]{2} h$\")) | all", "true");
}

#[test]
fn a_line_for_a_receiver_that_cuts_lines_is_still_json() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    udp.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("set");
    let world = World::forward(&format!(
        "strip_query_terms off\nrequest_header_max_size 256 KB\n\
         logformat_json mine method url a=%{{User-Agent}}>h b=%{{User-Agent}}>h status\n\
         access_log udp://{} mine\n",
        udp.local_addr().expect("an address")
    ));
    world.origin.on("/a", Reply::ok("x"));
    let agent = "\"\u{e9}".repeat(15_000);
    let _ = world.ask("GET", "/a", &[("User-Agent", &agent)]);
    let mut datagram = vec![0; 70_000];
    let len = udp.recv(&mut datagram).expect("a datagram");
    let line = &datagram[..len];
    assert!(len > 30_000 && line.ends_with(b"}\n"), "{len}");
    let Some(output) = read_by("jq", &["-r", ".status, (.a | endswith(\"…\"))"], line) else {
        return;
    };
    assert_eq!(text(&output), "200\ntrue\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// The requests that goaccess understands, and those that it does not.
fn goaccess(log: &[u8], arguments: &[&str]) -> Option<(u64, u64)> {
    let fixed = ["--no-global-config", "-o", "json", "-"];
    let output = read_by("goaccess", &[arguments, &fixed].concat(), log)?;
    let report = text(&output);
    let number = |name: &str| {
        let at = report
            .find(&format!("\"{name}\""))
            .unwrap_or_else(|| panic!("{report}\n{}", String::from_utf8_lossy(&output.stderr)));
        let digits: String = report[at + name.len() + 2..]
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<u64>().expect("a number")
    };
    Some((number("valid_requests"), number("failed_requests")))
}

#[test]
fn goaccess_reads_squids_formats_and_json() {
    let (world, requests) = played();
    for (name, arguments) in GOACCESS {
        let log = std::fs::read(world.proxy.path(name)).expect("the log");
        let lines = log.split_inclusive(|byte| *byte == b'\n');
        let lines: Vec<&[u8]> = lines.filter(|line| line.len() < GOACCESS_LINE_BYTES).collect();
        assert_eq!(lines.len(), requests - 1, "all but a very long one");
        let Some((valid, failed)) = goaccess(&lines.concat(), arguments) else { return };
        assert_eq!(valid + failed, lines.len() as u64, "{name}");
        // It knows no method `G"T`, and none of a TLS greeting.
        assert!(failed <= GOACCESS_FAILED_MAX, "{name}: {valid} of {requests}");
    }
}

/// The formats as goaccess wants them told. Its own `SQUID` is for lines behind the head of a
/// syslog message.
const GOACCESS: [(&str, &[&str]); 4] = [
    (
        "squid.log",
        &[
            "--log-format=%x.%^ %~%L %h %^/%s %b %m %U %^",
            "--datetime-format=%s",
            "--date-format=%s",
            "--time-format=%s",
        ],
    ),
    ("combined.log", &["--log-format=COMBINED"]),
    ("common.log", &["--log-format=COMMON"]),
    (
        "json.log",
        &[
            "--log-format={\"time\":\"%dT%t.%^\",\"client_ip\":\"%h\",\"method\":\"%m\",\
             \"url\":\"%U\",\"status\":\"%s\",\"bytes\":\"%b\",\"elapsed_ms\":\"%L\",\
             \"referer\":\"%R\",\"user_agent\":\"%u\"}",
            "--date-format=%Y-%m-%d",
            "--time-format=%H:%M:%S",
        ],
    ),
];

/// It takes the rest of a longer line for another one.
const GOACCESS_LINE_BYTES: usize = 4095;

/// Requests of the mixture without a method.
const GOACCESS_FAILED_MAX: u64 = 5;

#[test]
fn calamaris_reads_squids_format() {
    let (world, requests) = played();
    let log = std::fs::read(world.proxy.path("squid.log")).expect("the log");
    let Some(output) = read_by("calamaris", &["-a"], &log) else { return };
    let report = text(&output);
    let line = report.lines().find(|line| line.starts_with("Total amount")).unwrap_or_default();
    assert!(line.contains(&requests.to_string()), "{report}");
}
