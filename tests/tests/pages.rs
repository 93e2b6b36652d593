//! Error pages from templates: Squid's own ones beside Squid, custom pages, languages, and values
//! that are no HTML.
//!
//! Comparisons need Debian's packages `squid` and `squid-langpack`.

use humboldt_tests::servers::Server;
use humboldt_tests::wait::until;
use humboldt_tests::{Client, Proxy, Reply, World};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// Squid's templates.
const TEMPLATES: &str = "/usr/share/squid/errors/templates";

/// Every code of which both programs know the same.
const CODES: &str = "a:%a A:%A B:%B c:%c D:%D e:%e E:%E f:%f F:%F g:%g h:%h H:%H i:%i I:%I \
                     L:%L m:%m M:%M o:%o O:%O p:%p P:%P s:%s S:%S t:%t T:%T u:%u U:%U w:%w W:%W \
                     x:%x z:%z Z:%Z %%:%% odd:%y 100%; @Squid{%>a} %l";

/// The answer to a GET with these fields.
fn ask(proxy: SocketAddr, url: &str, fields: &[(&str, &str)]) -> humboldt_tests::Response {
    let mut client = Client::to(proxy);
    client.request("GET", url, fields, b"");
    client.response()
}

/// A page without what differs between two programs on one machine: the time and the names.
fn normal(page: &str, proxy: SocketAddr) -> String {
    let ours = format!("Humboldt/{}", env!("CARGO_PKG_VERSION"));
    let port = proxy.port().to_string();
    let mut text = page.replace('\r', "");
    for (name, instead) in
        [("squid.test", "HOST"), ("proxy.test", "HOST"), (&*ours, "PROGRAM"), (&*port, "PORT")]
    {
        text = text.replace(name, instead);
    }
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    while let Some(at) = text.find("squid/5") {
        let rest = text.split_off(at);
        text += "PROGRAM";
        text += rest["squid/".len()..].trim_start_matches(is_version);
    }
    let mut out = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        let is_time = word.contains(':') && digits >= 6 && !word.contains("://");
        out.push_str(if is_time { "TIME " } else { word });
    }
    out
}

/// A directory with all of Squid's templates, and one of our own.
fn templates(folder: &Path) -> Vec<String> {
    fs::write(folder.join("ERR_CODES"), CODES).expect("a template");
    let mut names = vec!["ERR_CODES".to_owned()];
    for entry in fs::read_dir(TEMPLATES).expect("squid-langpack is installed") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        if name.starts_with("ERR_") {
            fs::copy(Path::new(TEMPLATES).join(&name), folder.join(&name)).expect("a copy");
            names.push(name);
        }
    }
    names
}

#[test]
fn templates_become_the_pages_that_squid_makes_of_them() {
    let folder = humboldt_tests::proxy::open_folder();
    let names = templates(folder.path());
    let mut lines = format!("error_directory {}\ncache_mgr ops@x.test\n", folder.path().display());
    for name in &names {
        writeln!(lines, "acl {name} urlpath_regex ^/{name}[?]").expect("memory");
        writeln!(lines, "deny_info {name} {name}\nhttp_access deny {name}").expect("memory");
    }
    let (squid, ours) = (Server::squid(&lines), Proxy::forward(&lines));
    for name in &names {
        let url = format!("http://site.test:81/{name}?a=<b>&c='d'");
        let fields = [("User-Agent", "<b>\"one\"</b>")];
        let theirs = ask(squid.address, &url, &fields).expect(403);
        let answer = ask(ours.address(), &url, &fields).expect(403);
        assert_eq!(answer.field("X-Squid-Error"), theirs.field("X-Squid-Error"), "{name}");
        let text = normal(&theirs.text(), squid.address);
        // What Squid repeats of the request's head has another form.
        if !fs::read_to_string(folder.path().join(name)).expect("it").contains("%R") {
            assert_eq!(normal(&answer.text(), ours.address()), text, "{name}");
        }
        assert!(!answer.text().contains("<b>\"one\""), "{name}");
    }
    assert!(names.len() > 30, "{names:?}");
}

#[test]
fn a_browser_gets_the_page_in_its_language_as_from_squid() {
    let lines = "acl no urlpath_regex ^/no\nhttp_access deny no\n";
    let (squid, ours) = (Server::squid(lines), Proxy::forward(lines));
    let html = ("Accept", "text/html");
    for (wanted, language) in [
        ("de-CH, fr;q=0.5", "de-ch"),
        ("xx, pt-br;q=0.9", "pt-br"),
        ("zh-TW", "zh-tw"),
        ("fa", "fa"),
    ] {
        let fields = [html, ("Accept-Language", wanted)];
        let theirs = ask(squid.address, "http://site.test/no?x", &fields).expect(403);
        let answer = ask(ours.address(), "http://site.test/no?x", &fields).expect(403);
        assert_eq!(answer.field("Content-Language"), Some(language));
        assert_eq!(theirs.field("Content-Language"), Some(language));
        assert_eq!(answer.field("Vary"), Some("Accept-Language"));
        let text = normal(&theirs.text(), squid.address);
        assert_eq!(normal(&answer.text(), ours.address()), text, "{wanted}");
    }
    // English is built in, and programs get plain text.
    let fields = [html, ("Accept-Language", "en-GB, de;q=0.5")];
    let answer = ask(ours.address(), "http://site.test/no", &fields).expect(403);
    assert!(answer.text().contains("<h1>Access denied</h1>"), "{}", answer.text());
    let answer = ask(ours.address(), "http://site.test/no", &[("Accept-Language", "de")]);
    assert!(answer.text().starts_with("Access denied (ERR_ACCESS_DENIED)"), "{}", answer.text());
}

#[test]
fn the_default_language_is_for_browsers_that_name_no_other() {
    let proxy = Proxy::forward("error_default_language de\nhttp_access deny all\n");
    let ask =
        |fields: &[(&str, &str)]| ask(proxy.address(), "http://site.test/", fields).expect(403);
    let html = ("Accept", "text/html");
    assert_eq!(ask(&[html]).field("Content-Language"), Some("de"));
    let french = ask(&[html, ("Accept-Language", "fr-fr")]);
    assert_eq!(french.field("Content-Language"), Some("fr-fr"));
    assert_eq!(ask(&[html, ("Accept-Language", "*")]).field("Content-Language"), Some("de"));
}

#[test]
fn nothing_that_a_client_sends_becomes_html() {
    let codes = "<html><a href=\"%U\"><a href='%u'>%a %A %H %P %R %U %M %o %w %W %z %E @Squid{%>ha} @Squid{%{X-Evil}>h}\n";
    let lines = "error_directory {dir}/pages\nemail_err_data on\ncache_mgr a@b.test\n\
                 acl evil urlpath_regex evil\ndeny_info 404:ERR_EVIL evil\nhttp_access deny evil\n";
    let folder = humboldt_tests::proxy::open_folder();
    let lines = lines.replace("{dir}/pages", &folder.path().display().to_string());
    for name in ["ERR_EVIL", "ERR_INVALID_URL", "ERR_UNSUP_PROTO", "ERR_INVALID_REQ"] {
        fs::write(folder.path().join(name), codes).expect("a template");
    }
    let proxy = Proxy::forward(&lines);
    let evil = "<script>alert(1)</script>\"'";
    for target in [
        "http://site.test/evil<script>alert(1)</script>",
        "http://<script>alert(1)</script>/",
        "javascript:alert(1)",
        "javascript://x.test/%0aalert(1)",
        "/<script>",
        "<script>",
    ] {
        let mut client = proxy.client();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: site.test\r\nX-Evil: {evil}\r\nUser-Agent: {evil}\r\n\
             Authorization: Basic c2VjcmV0\r\nAccept: text/html\r\n\r\n"
        ));
        let answer = client.response();
        let text = answer.text();
        assert!(answer.status() >= 400 && text.starts_with("<html>"), "{target}: {text}");
        assert!(!text.contains("<script") && !text.contains("c2VjcmV0"), "{target}: {text}");
        let is_link = |quote: char| text.contains(&format!("href={quote}javascript:"));
        assert!(!is_link('"') && !is_link('\''), "{target}: {text}");
    }
}

#[test]
fn custom_pages_have_their_status_and_are_read_again() {
    let folder = humboldt_tests::proxy::open_folder();
    fs::write(folder.path().join("ERR_OWN"), "our own page for %U\n").expect("a template");
    fs::write(folder.path().join("proxy.pac"), "function FindProxyForURL() {}\n").expect("a file");
    let lines = "error_directory {folder}\nacl own urlpath_regex ^/own\nacl pac urlpath_regex ^/pac\n\
                 acl lost urlpath_regex ^/lost\ndeny_info 451:ERR_OWN own\n\
                 deny_info 200:proxy.pac pac\ndeny_info ERR_LOST lost\n\
                 http_access deny own\nhttp_access deny pac\nhttp_access deny lost\n";
    let world = World::forward(&lines.replace("{folder}", &folder.path().display().to_string()));
    world.origin.on("/a", Reply::ok("x"));
    let answer = world.get("/own?a=b").expect(451);
    assert_eq!(answer.text(), format!("our own page for {}\n", world.target("/own?")));
    assert_eq!(answer.field("X-Squid-Error"), Some("ERR_OWN 0"));
    assert_eq!(world.get("/pac").expect(200).text(), "function FindProxyForURL() {}\n");
    assert!(world.get("/lost").expect(403).text().contains("ERR_ACCESS_DENIED"));
    let log = world.proxy.text("cache.log");
    let warned = world.proxy.output() + &log;
    assert!(warned.contains("ERR_LOST") && warned.contains("the page ERR_ACCESS_DENIED is shown"));
    assert!(world.proxy.logged("/own").contains("TCP_DENIED/451"));
    // A page without a template is the built-in one.
    let answer = ask(world.proxy.address(), "http://no-such-name.invalid/", &[]).text();
    assert!(answer.contains("ERR_DNS_FAIL"), "{answer}");

    fs::write(folder.path().join("ERR_OWN"), "another page\n").expect("a template");
    fs::write(folder.path().join("ERR_DNS_FAIL"), "no name: %z\n").expect("a template");
    world.proxy.signal(Signal::HUP);
    until("the new page", || (world.get("/own").text() == "another page\n").then_some(()));
    world.proxy.wait_for_reconfigurations(1);
    assert!(
        ask(world.proxy.address(), "http://no-such-name.invalid/", &[])
            .text()
            .starts_with("no name: ")
    );
    fs::remove_file(folder.path().join("ERR_OWN")).expect("it was there");
    world.proxy.signal(Signal::HUP);
    until("the usual page", || {
        world.get("/own").text().contains("ERR_ACCESS_DENIED").then_some(())
    });
}
