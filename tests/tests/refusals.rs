//! Refusals that explain themselves: Proxy-Status, the rule on the page, in JSON and in the log.

use humboldt_tests::proxy::{open_folder, run};
use humboldt_tests::wait::{free_address, until};
use humboldt_tests::{Client, Origin, Proxy, Reply, Response};
use std::net::SocketAddr;

/// The answer to a GET with this Accept.
fn ask(proxy: SocketAddr, url: &str, accept: &str) -> Response {
    let mut client = Client::to(proxy);
    client.request("GET", url, &[("Accept", accept)], b"");
    client.response()
}

const RULES: &str = "acl bad dstdomain bad.test\nacl moved dstdomain moved.test\n\
                     deny_info http://help.test/ moved\nhttp_access deny bad !CONNECT\n\
                     http_access deny moved\nlogformat own %rs://%rd %rule %err_code\n";

#[test]
fn a_refusal_names_its_rule() {
    let proxy = Proxy::forward(&format!("{RULES}access_log stdio:{{dir}}/own.log own\n"));
    let address = proxy.address();
    let file = proxy.configuration();
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let at = 1 + text.lines().position(|line| line.contains("deny bad")).expect("the rule");
    let (place, full) = (format!("squid.conf:{at}"), format!("{file}:{at}"));

    let plain = ask(address, "http://bad.test/", "*/*").expect(403);
    let status = plain.field("Proxy-Status").expect("the field");
    assert!(status.contains("; error=http_request_denied; details=\"refused by"), "{status}");
    assert!(status.contains(&format!("http_access deny bad !CONNECT ({place})")), "{status}");
    assert!(plain.text().contains(&place), "{}", plain.text());

    let json = ask(address, "http://bad.test/", "application/json").expect(403);
    assert_eq!(json.field("Content-Type"), Some("application/problem+json"));
    for part in [
        "\"rule\":{",
        "\"text\":\"http_access deny bad !CONNECT\"",
        &format!("\"line\":{at}"),
        "\"status\":403",
        "\"error\":\"ERR_ACCESS_DENIED\"",
    ] {
        assert!(json.text().contains(part), "{part}: {}", json.text());
    }

    let moved = ask(address, "http://moved.test/", "*/*").expect(302);
    let status = moved.field("Proxy-Status").expect("on redirects too");
    assert!(status.contains("deny moved"), "{status}");
    assert!(!plain.text().contains(&full), "the directory is nothing to clients");
    let wanted = format!("http://bad.test {full} ERR_ACCESS_DENIED");
    until("the log", || proxy.text("own.log").contains(&wanted).then_some(()));
}

#[test]
fn the_public_is_not_told_about_rules_nor_those_who_must_not_know() {
    let origin = Origin::new();
    let lines = "acl bad urlpath_regex ^/bad\nhttp_access deny bad\n";
    let reverse = Proxy::reverse(origin.address(), lines);
    let silent = Proxy::forward(&format!("{lines}explain_refusals off\n"));
    for (proxy, url) in [(&reverse, "/bad"), (&silent, "http://x.test/bad")] {
        for accept in ["*/*", "text/html", "application/json"] {
            let answer = ask(proxy.address(), url, accept).expect(403);
            let status = answer.field("Proxy-Status").expect("the field");
            assert!(status.ends_with("; error=http_request_denied"), "{status}");
            assert!(!answer.text().contains("deny bad"), "{}", answer.text());
        }
    }
}

#[test]
fn the_public_is_not_told_about_servers_behind_the_proxy() {
    let nobody = free_address();
    let proxy = Proxy::reverse(nobody, "");
    let answer = ask(proxy.address(), "/", "*/*").expect(503);
    let status = answer.field("Proxy-Status").expect("the field");
    assert!(status.ends_with("; error=destination_unavailable"), "{status}");
}

#[test]
fn the_name_of_the_proxy_is_a_token_or_a_string_and_details_have_a_bound() {
    let many = "no ".repeat(2000);
    let lines = format!(
        "visible_hostname 9cache.test\nacl no dst 127.0.0.0/8\nacl yes url_regex /\n\
         http_access deny yes {}\n",
        many.replace("no", "yes")
    );
    let proxy = Proxy::forward(&lines);
    let answer = ask(proxy.address(), "http://x.test/", "*/*").expect(403);
    let status = answer.field("Proxy-Status").expect("the field");
    assert!(status.starts_with("\"9cache.test\"; error=") && status.len() < 700, "{status}");
    assert!(answer.field("Cache-Status").is_some_and(|field| field.starts_with('"')));
}

#[test]
fn errors_of_servers_are_told_from_those_of_the_proxy() {
    let origin = Origin::new();
    origin.on("/", Reply::status("403 Forbidden", "no"));
    let proxy = Proxy::forward("");
    let theirs = ask(proxy.address(), &origin.url("/"), "*/*").expect(403);
    assert_eq!(theirs.field("Proxy-Status"), None);
    let nobody = free_address();
    let ours = ask(proxy.address(), &format!("http://{nobody}/"), "*/*").expect(503);
    let status = ours.field("Proxy-Status").expect("the field");
    assert!(status.contains("; error=destination_unavailable; details="), "{status}");
}

/// `-k explain` with these arguments: its exit status and what it prints.
fn explain(lines: &str, arguments: &[&str]) -> (i32, String) {
    let folder = open_folder();
    let file = folder.path().join("squid.conf");
    std::fs::write(&file, format!("http_port 3128\n{lines}")).expect("a configuration");
    let file = file.display().to_string();
    let output = run(&[&["-f", &file, "-k", "explain"], arguments].concat());
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).replace(&file, "squid.conf");
    (output.status.code().unwrap_or(-1), text)
}

const GATE: &str = "acl lan src 10.0.0.0/8\nacl good dstdomain .good.test\nacl post method POST\n\
                    acl meta dst 169.254.0.0/16\nacl known proxy_auth anna\nacl ua browser -i curl\n\
                    auth_param basic program /usr/lib/squid/basic_ncsa_auth /dev/null\n\
                    http_access deny meta\nhttp_access deny post !good\n\
                    http_access allow lan good ua\nhttp_access allow known\nhttp_access deny all\n";

#[test]
fn explain_names_every_rule_on_the_way_and_the_one_that_decides() {
    let ask = |arguments: &[&str]| explain(GATE, arguments);
    let dst = ["--dst", "192.0.2.1"];
    let curl = ["--src", "10.0.0.7", "--header", "User-Agent: curl/8"];
    let (code, text) = ask(&[&["GET", "http://www.good.test/"], &dst[..], &curl].concat());
    assert_eq!(code, 0, "{text}");
    for part in [
        "squid.conf:9: deny meta: `meta` does not match",
        "squid.conf:10: deny post !good: `post` does not match",
        "squid.conf:11: allow lan good ua: applies",
        "The request is let in.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text) = ask(&[&["POST", "http://bad.test/"], &dst[..], &curl].concat());
    assert!(code == 3 && text.contains("squid.conf:10: deny post !good: applies"), "{text}");
    let (code, text) = ask(&["GET", "http://bad.test/", "--dst", "169.254.169.254"]);
    assert!(code == 3 && text.contains("squid.conf:9: deny meta: applies"), "{text}");
    let (code, text) = ask(&[&["GET", "http://bad.test/", "--user", "anna"], &dst[..]].concat());
    assert!(code == 0 && text.contains("squid.conf:12: allow known: applies"), "{text}");
    let (code, text) = ask(&[&["GET", "http://bad.test/"], &dst[..]].concat());
    assert!(code == 3 && text.contains("`known` needs a login"), "{text}");
    let (code, text) = ask(&["GET", "http://no-such-name.invalid/"]);
    assert!(code == 4 && text.contains("`meta` needs the addresses"), "{text}");
    for wrong in [&["GET"][..], &["GET", "nonsense"], &["CONNECT", "a.test"]] {
        assert_eq!(ask(wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn a_log_is_replayed_against_a_changed_file() {
    let folder = open_folder();
    let log = folder.path().join("access.log");
    let line = |code: &str, method: &str, url: &str, user: &str| {
        format!("1066036250.129 5 10.0.0.7 {code} 38 {method} {url} {user} NONE/- -\n")
    };
    let text = line("TCP_MISS/200", "GET", "http://www.good.test/a", "-")
        + &line("TCP_MISS/200", "POST", "http://bad.test/", "-").repeat(3)
        + &line("TCP_DENIED/403", "GET", "http://ok.test/", "anna")
        + "nonsense\n";
    std::fs::write(&log, text).expect("a log");
    let rules = "acl good dstdomain .good.test\nacl post method POST\n\
                 http_access deny post !good\nhttp_access allow all\n";
    let (code, text) = explain(rules, &["--against-log", &log.display().to_string()]);
    assert_eq!(code, 3, "{text}");
    for part in [
        "6 lines: 1 as before, 4 would change, 0 depend",
        "1 are no requests",
        "3 would be refused by http_access deny post !good (squid.conf:4)",
        "1 would be let in by http_access allow all (squid.conf:5)",
        "such as POST http://bad.test/ from 10.0.0.7",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn refusals_that_are_only_reported_change_nothing_in_a_replay() {
    let folder = open_folder();
    let log = folder.path().join("access.log");
    let line = |code: &str, url: &str| {
        format!("1066036250.129 5 10.0.0.7 {code} 38 POST {url} - NONE/- -\n")
    };
    let text = line("TCP_MISS/200", "http://bad.test/") + &line("TCP_DENIED/403", "http://x.test/");
    std::fs::write(&log, text).expect("a log");
    let rules = "acl post method POST\nacl pilot src 10.0.0.0/8\nacl other src 10.9.0.0/16\n\
                 http_access deny post\nhttp_access allow all\n";
    let replay = |more: &str| {
        explain(&format!("{rules}{more}"), &["--against-log", &log.display().to_string()])
    };
    let (code, text) = replay("report_only deny other\nreport_only allow pilot\n");
    assert!(code == 3 && text.contains("2 lines: 1 as before, 1 would change"), "{text}");
    let reason = "report_only, although refused by http_access deny post (squid.conf:5)";
    assert!(text.contains(&format!("1 would be let in by {reason}")), "{text}");
    let (code, text) = replay("report_only allow other\n");
    let refused = "1 would be refused by http_access deny post (squid.conf:5)";
    assert!(code == 3 && text.contains(refused), "{text}");
}

#[test]
fn what_only_the_running_proxy_knows_is_not_explained_away() {
    let metrics = "http://127.0.0.1:3128/metrics";
    let (code, text) =
        explain("http_access deny manager\nhttp_access allow all\n", &["GET", metrics]);
    assert!(code == 3 && text.contains("deny manager: applies"), "{text}");
    let (code, text) = explain("http_access allow all\n", &["PURGE", "http://x.test/"]);
    assert!(code == 3 && text.contains("no ACL names it"), "{text}");
    for acl in ["tag vip", "random 1/2", "localip 192.0.2.1", "maxconn 3", "any-of all"] {
        let rules = format!("acl x {acl}\nhttp_access deny x\nhttp_access allow all\n");
        let (code, text) = explain(&rules, &["GET", "http://x.test/"]);
        let wanted = if acl.starts_with("any-of") { 3 } else { 4 };
        assert_eq!(code, wanted, "{acl}: {text}");
    }
    let ports = "http_port 3129 name=two\nacl two myportname two\nhttp_access deny two\n\
                 http_access allow all\n";
    assert_eq!(explain(ports, &["GET", "http://x.test/"]).0, 0);
    assert_eq!(explain(ports, &["GET", "http://x.test/", "--port", "two"]).0, 3);
    assert_eq!(explain(ports, &["GET", "http://x.test/", "--port", "four"]).0, 2);
    let stray = run(&["-f", "/dev/null", "reconfigure"]);
    assert_eq!(stray.status.code(), Some(2), "a forgotten -k starts no proxy");
}

#[test]
fn explain_knows_the_names_of_the_proxy_as_the_proxy_does() {
    let rules = "hostname_aliases other.test\nhttp_access deny manager\nhttp_access allow all\n";
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for (host, wanted) in [
        ("other.test", 3),
        ("OTHER.test", 3),
        ("localhost", 3),
        (machine.trim(), 3),
        ("foreign.test", 0),
    ] {
        let url = format!("http://{host}:3128/metrics");
        let (code, text) = explain(rules, &["GET", &url]);
        assert_eq!(code, wanted, "{host}: {text}");
    }
    // To the site behind an accelerator, its own name is not the proxy's.
    let accel = "http_port 3129 accel defaultsite=other.test name=site\n";
    let ask = |host: &str| {
        let url = format!("http://{host}:3129/metrics");
        explain(&format!("{accel}{rules}"), &["GET", &url, "--port", "site"]).0
    };
    assert_eq!((ask("other.test"), ask("127.0.0.1"), ask("localhost")), (0, 0, 0));
}

#[test]
fn a_log_that_does_not_tell_enough_changes_nothing() {
    let folder = open_folder();
    let log = folder.path().join("access.log");
    let line =
        |code: &str, url: &str| format!("1066036250.1 5 10.0.0.7 {code} 38 GET {url} - NONE/- -\n");
    let text = line("TCP_DENIED_REPLY/403", "http://a.test/")
        + &line("TCP_DENIED/403", "http://bot.test/")
        + &line("TCP_DENIED/403", "http://q.test/x?");
    std::fs::write(&log, text).expect("a log");
    let rules = "acl bot browser evil\nacl some dstdomain bot.test\nacl secret url_regex secret\n\
                 http_access deny some bot\nhttp_access deny secret\nhttp_access allow all\n";
    let (code, text) = explain(rules, &["--against-log", &log.display().to_string()]);
    assert!(code == 0 && text.contains("3 lines: 1 as before, 0 would change, 2 depend"), "{text}");
}
