//! Real clients and servers: curl, apt, pip, Chromium, nginx and Squid.

use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{Server, curl, program, run, succeed};
use humboldt_tests::wait::until;
use humboldt_tests::{Origin, Proxy, Reply, World};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn curl_gets_a_miss_and_then_a_hit_from_nginx() {
    let nginx = Server::nginx("", "add_header Cache-Control max-age=60;");
    nginx.put("a.html", "hello from nginx");
    let proxy = Proxy::forward("");
    let first = succeed(curl(&proxy).arg("--include").arg(nginx.url("/a.html")));
    let second = succeed(curl(&proxy).arg("--include").arg(nginx.url("/a.html")));
    assert!(first.contains("X-Cache: MISS") && first.ends_with("hello from nginx"), "{first}");
    assert!(second.contains("X-Cache: HIT") && second.ends_with("hello from nginx"), "{second}");
    until("nginx to log", || (nginx.count("/a.html") == 1).then_some(()));
}

#[test]
fn curl_speaks_https_through_the_tunnel() {
    let nginx = Server::nginx_tls();
    nginx.put("a.html", "hello from TLS");
    let proxy = Proxy::forward("");
    let url = format!("https://localhost:{}/a.html", nginx.address.port());
    let answer =
        succeed(curl(&proxy).arg("--cacert").arg(nginx.folder.path().join("cert.pem")).arg(url));
    assert_eq!(answer, "hello from TLS");
    assert!(proxy.logged("CONNECT").contains("TCP_TUNNEL/200"));
}

#[test]
fn curl_uploads_downloads_ranges_and_resumes() {
    let world = World::forward("maximum_object_size_in_memory 4 MB\n");
    let body = "0123456789".repeat(100_000);
    world.origin.on("/big", Reply::ok(&body).cachable(60).with("ETag", "\"v1\""));
    world.origin.on("/upload", Reply::ok("thanks"));
    let folder = open_folder();
    let file = folder.path().join("file");
    succeed(curl(&world.proxy).arg("--output").arg(&file).arg(world.target("/big")));
    assert!(fs::read(&file).is_ok_and(|bytes| bytes == body.as_bytes()));
    let part = succeed(curl(&world.proxy).args(["--range", "5-9"]).arg(world.target("/big")));
    assert!(part == "56789", "{} bytes", part.len());
    fs::write(&file, &body[..1_000]).expect("half a file");
    succeed(
        curl(&world.proxy)
            .args(["--continue-at", "-", "--output"])
            .arg(&file)
            .arg(world.target("/big")),
    );
    assert!(fs::read(&file).is_ok_and(|bytes| bytes == body.as_bytes()));
    succeed(curl(&world.proxy).arg("--upload-file").arg(&file).arg(world.target("/upload")));
    assert!(world.origin.last("/upload").body.bytes == body.as_bytes());
}

#[test]
fn curl_sees_an_incomplete_answer_as_an_error() {
    let world = World::forward("");
    world.origin.on("/cut", Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"));
    let output = run(curl(&world.proxy).arg(world.target("/cut")));
    // curl's codes for a partial file and for a connection that was reset.
    assert!(matches!(output.status.code(), Some(18 | 56)), "{output:?}");
}

/// A Debian package of a few bytes, and the index that apt wants to see.
fn debian_repository(nginx: &Server) {
    let build = open_folder();
    let tree = build.path().join("tree");
    fs::create_dir_all(tree.join("DEBIAN")).expect("a package tree");
    let control = "Package: humboldt-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\n\
                   Description: a package for a test\n";
    fs::write(tree.join("DEBIAN/control"), control).expect("a control file");
    let package = build.path().join("hello.deb");
    succeed(
        Command::new(program("dpkg-deb"))
            .args(["--root-owner-group", "--build"])
            .arg(&tree)
            .arg(&package),
    );
    let sum = succeed(Command::new("sha256sum").arg(&package));
    let sum = sum.split(' ').next().unwrap_or_default();
    let bytes = fs::read(&package).expect("the package");
    let entry = format!("{control}Filename: hello.deb\nSize: {}\nSHA256: {sum}\n", bytes.len());
    nginx.put("hello.deb", bytes);
    nginx.put("Packages", entry);
}

/// apt with all its state in one directory, so that the machine's own is left alone.
fn apt(root: &Path, proxy: &Proxy) -> Command {
    let mut command = Command::new(program("apt-get"));
    let dir = root.display();
    for option in [
        format!("Dir::Etc::SourceList={dir}/sources.list"),
        format!("Dir::Etc::SourceParts={dir}/none"),
        format!("Dir::State={dir}/state"),
        format!("Dir::State::status={dir}/status"),
        format!("Dir::Cache={dir}/cache"),
        format!("Acquire::http::Proxy=http://{}", proxy.address()),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ] {
        command.arg("-o").arg(option);
    }
    command.current_dir(root);
    command
}

#[test]
fn apt_updates_and_downloads_and_the_second_time_from_the_cache() {
    let nginx = Server::nginx("", "add_header Cache-Control max-age=600;");
    debian_repository(&nginx);
    let proxy = Proxy::forward("");
    for round in 1..=2 {
        let root = open_folder();
        for part in ["state/lists/partial", "cache/archives/partial", "none"] {
            fs::create_dir_all(root.path().join(part)).expect("apt's directories");
        }
        fs::write(root.path().join("status"), "").expect("an empty status");
        let source = format!("deb [trusted=yes] {} ./\n", nginx.url("/"));
        fs::write(root.path().join("sources.list"), source).expect("a source");
        succeed(apt(root.path(), &proxy).arg("update"));
        succeed(apt(root.path(), &proxy).args(["download", "humboldt-hello"]));
        assert!(root.path().join("humboldt-hello_1.0_all.deb").exists(), "round {round}");
    }
    assert!(
        proxy.logged_times("hello.deb", 2).iter().any(|line| line.contains("HIT/200")),
        "{}",
        proxy.text("access.log")
    );
    until("nginx to log", || {
        (nginx.count("/hello.deb") == 1 || nginx.count("/./hello.deb") == 1).then_some(())
    });
}

/// A wheel is a zip file; pip's own Python makes it.
const MAKE_WHEEL: &str = "
import sys, zipfile
name = 'humboldt_hello-1.0.dist-info'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('humboldt_hello.py', 'greeting = \"hello\"\\n')
    wheel.writestr(name + '/METADATA', 'Metadata-Version: 2.1\\nName: humboldt-hello\\nVersion: 1.0\\n')
    wheel.writestr(name + '/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(name + '/RECORD', '')
";

#[test]
fn pip_downloads_and_the_second_time_from_the_cache() {
    let nginx = Server::nginx("", "index index.html; add_header Cache-Control max-age=600;");
    let wheel = "humboldt_hello-1.0-py3-none-any.whl";
    let folder = open_folder();
    succeed(Command::new("python3").args(["-c", MAKE_WHEEL]).arg(folder.path().join(wheel)));
    nginx.put(&format!("files/{wheel}"), fs::read(folder.path().join(wheel)).expect("the wheel"));
    nginx
        .put("simple/humboldt-hello/index.html", format!("<a href=\"/files/{wheel}\">{wheel}</a>"));
    let proxy = Proxy::forward("");
    for round in 1..=2 {
        let target = folder.path().join(round.to_string());
        succeed(
            Command::new("python3")
                .args([
                    "-m",
                    "pip",
                    "--isolated",
                    "download",
                    "--no-deps",
                    "--no-cache-dir",
                    "--trusted-host",
                    "127.0.0.1",
                ])
                .env_remove("PIP_FIND_LINKS")
                .arg("--proxy")
                .arg(format!("http://{}", proxy.address()))
                .arg("--index-url")
                .arg(nginx.url("/simple/"))
                .arg("--dest")
                .arg(&target)
                .arg("humboldt-hello"),
        );
        assert!(target.join(wheel).exists(), "round {round}");
    }
    assert!(
        proxy.logged_times(wheel, 2).iter().any(|line| line.contains("HIT/200")),
        "{}",
        proxy.text("access.log")
    );
}

const PAGE: &str = "<!doctype html><title>Humboldt</title><link rel=stylesheet href=s.css>
<h1>Through the proxy</h1><img src=i.png width=64 height=64><p id=said></p>
<script>fetch('t.txt').then(r => r.text()).then(t => { document.getElementById('said').textContent = t; });</script>";

/// A red dot of one pixel.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0,
    1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, b'I', b'D', b'A', b'T', 8,
    0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0, 0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0, 0, 0, 0, b'I', b'E',
    b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

#[test]
fn chromium_loads_a_page_with_its_parts() {
    let nginx = Server::nginx("", "add_header Cache-Control max-age=600;");
    nginx.put("index.html", PAGE);
    nginx.put("s.css", "h1 { color: darkred }");
    nginx.put("i.png", PNG);
    nginx.put("t.txt", "fetched by a script");
    let proxy = Proxy::forward("");
    let folder = open_folder();
    let shot = folder.path().join("page.png");
    for round in 1..=2 {
        let mut chromium = Command::new(program("chromium"));
        chromium
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--virtual-time-budget=5000",
            ])
            .arg("--proxy-bypass-list=<-loopback>")
            .arg(format!("--proxy-server=http://{}", proxy.address()))
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join(format!("profile{round}")).display()
            ));
        let dom = succeed(
            chromium
                .arg("--dump-dom")
                .arg(format!("--screenshot={}", shot.display()))
                .arg(nginx.url("/index.html")),
        );
        assert!(
            dom.contains("fetched by a script"),
            "round {round}:\n{dom}\n{}",
            proxy.text("access.log")
        );
    }
    for part in ["/index.html", "/s.css", "/i.png", "/t.txt"] {
        let lines = proxy.logged_times(part, 2);
        assert!(lines[1].contains("HIT"), "{part}: {lines:?}");
        assert_eq!(nginx.count(part), 1, "{part}");
    }
}

#[test]
fn squid_can_stand_behind_as_a_parent() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("hello").cachable(60));
    let squid = Server::squid("");
    let peer = format!(
        "cache_peer {} parent {} 0 no-query default\nnever_direct allow all\n",
        squid.address.ip(),
        squid.address.port()
    );
    let proxy = Proxy::forward(&peer);
    let mut client = proxy.client();
    assert_eq!(
        client.request("GET", &origin.url("/a"), &[], b"").response().expect(200).text(),
        "hello"
    );
    until("Squid to log", || squid.text("access.log").contains("/a").then_some(()));
    assert!(proxy.logged("/a").contains("PARENT"), "{}", proxy.text("access.log"));
    let answer = client.request("GET", &origin.url("/a"), &[], b"").response().expect(200);
    assert_eq!(answer.text(), "hello");
    assert_eq!(origin.count("/a"), 1);
}

#[test]
fn squid_can_stand_in_front_as_a_child() {
    let origin = Origin::new();
    origin.on("/a", Reply::ok("hello").cachable(60));
    let proxy = Proxy::forward("");
    let address = proxy.address();
    let peer = format!(
        "cache_peer {} parent {} 0 no-query default\nnever_direct allow all\n",
        address.ip(),
        address.port()
    );
    let squid = Server::squid(&format!("{peer}cache deny all\n"));
    for _ in 0..2 {
        let answer = succeed(
            Command::new(program("curl"))
                .args(["--silent", "--max-time", "20", "--noproxy", "", "--proxy"])
                .arg(format!("http://{}", squid.address))
                .arg(origin.url("/a")),
        );
        assert_eq!(answer, "hello");
    }
    assert!(
        proxy.logged_times("/a", 2).iter().any(|line| line.contains("MEM_HIT")),
        "{}",
        proxy.text("access.log")
    );
    assert_eq!(origin.count("/a"), 1);
}

#[test]
fn an_accelerator_in_front_of_nginx_keeps_the_load_away() {
    let nginx = Server::nginx("", "add_header Cache-Control max-age=60;");
    nginx.put("a.html", "hello from nginx");
    let proxy = Proxy::reverse(nginx.address, "");
    let url = format!("http://{}/a.html", proxy.address());
    succeed(
        Command::new(program("curl"))
            .args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--parallel"])
            .args((0..50).flat_map(|_| [url.as_str(), "-o", "/dev/null"])),
    );
    until("nginx to log", || (nginx.count("/a.html") >= 1).then_some(()));
    assert_eq!(nginx.count("/a.html"), 1);
}
