//! Servers with bad certificates, in every way to a server: nothing is sent to them, and no client
//! is shown a good certificate in place of theirs. Each way is tried with each fault.

use humboldt_tests::authority::{Authority, Certificate, Key, openssl, self_signed};
use humboldt_tests::proxy::open_folder;
use humboldt_tests::servers::{Server, curl, run};
use humboldt_tests::wait::until;
use humboldt_tests::{Proxy, Response};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use tempfile::TempDir;

/// What is wrong with a server.
struct Fault {
    /// Its host.
    host: &'static str,
    /// The name of the fault in logs.
    name: &'static str,
    /// Makes its certificate.
    make: fn(&Stage, &str) -> Certificate,
}

impl Fault {
    const fn new(
        host: &'static str,
        name: &'static str,
        make: fn(&Stage, &str) -> Certificate,
    ) -> Self {
        Self { host, name, make }
    }
}

const FAULTS: [Fault; 9] = [
    Fault::new("self.test", "X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT", |stage, host| {
        self_signed(&stage.folder, &format!("/CN={host}"), &format!("DNS:{host}"))
    }),
    Fault::new("unknown.test", "X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY", |stage, host| {
        stage.unknown.issue("own", Key::Ecdsa, "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("expired.test", "X509_V_ERR_CERT_HAS_EXPIRED", |stage, host| {
        stage.servers.issue_expired("expired", "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("early.test", "X509_V_ERR_CERT_NOT_YET_VALID", |stage, host| {
        stage.servers.issue_early("early", "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("wrong.test", "SQUID_X509_V_ERR_DOMAIN_MISMATCH", |stage, _| {
        stage.servers.issue("wrong", Key::Ecdsa, "/CN=x", "DNS:elsewhere.test")
    }),
    Fault::new("revoked.test", "X509_V_ERR_CERT_REVOKED", |stage, host| {
        stage.servers.issue("revoked", Key::Ecdsa, "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("short.test", "X509_V_ERR_EE_KEY_TOO_SMALL", |stage, host| {
        stage.servers.issue("short", Key::Short, "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("weak.test", "X509_V_ERR_CA_MD_TOO_WEAK", |stage, host| {
        stage.servers.issue_weakly("weak", "/CN=x", &format!("DNS:{host}"))
    }),
    Fault::new("narrow.test", "X509_V_ERR_PERMITTED_VIOLATION", |stage, host| {
        stage.narrow.issue("own", Key::Ecdsa, "/CN=x", &format!("DNS:{host}"))
    }),
];

/// A server without a fault, so that a way is one.
const GOOD: &str = "good.test";

/// The authorities, and a server that has all hosts.
struct Stage {
    folder: TempDir,
    /// Trusted.
    servers: Authority,
    /// Trusted, for names of another domain only.
    narrow: Authority,
    /// Not trusted.
    unknown: Authority,
    /// That of certificates that are made, which clients trust.
    bump: Authority,
}

impl Stage {
    fn new() -> Self {
        Self {
            folder: open_folder(),
            servers: Authority::new("servers"),
            narrow: Authority::for_domain("narrow", "elsewhere.test"),
            unknown: Authority::new("unknown"),
            bump: Authority::new("bump"),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    /// One server; the name that a client asks for in TLS chooses the certificate. Also writes the
    /// files of names, authorities and revocations.
    fn serve(&self) -> (Server, Vec<Certificate>) {
        let good = self.servers.issue("good", Key::Ecdsa, "/CN=x", &format!("DNS:{GOOD}"));
        let faulty = FAULTS.iter().map(|fault| (fault.make)(self, fault.host));
        let certificates: Vec<Certificate> = faulty.collect();
        let revoked = FAULTS.iter().position(|fault| fault.host == "revoked.test");
        let lists =
            [self.servers.revoke(revoked.map(|at| &certificates[at])), self.narrow.revoke(None)];
        let joined = |files: [std::path::PathBuf; 2]| {
            files.map(|file| fs::read_to_string(file).expect("a file")).concat()
        };
        self.write("trusted.pem", &joined([self.servers.ca(), self.narrow.ca()]));
        self.write("revoked.pem", &joined(lists));
        let names = FAULTS.iter().map(|fault| fault.host).chain([GOOD]);
        let names: Vec<String> = names.map(|host| format!("127.0.0.1 {host}\n")).collect();
        self.write("hosts", &names.concat());
        // nginx takes weak ones at a lower level of OpenSSL's only.
        let of = |own: &Certificate| {
            format!(
                "ssl_certificate {}; ssl_certificate_key {}; ssl_ciphers DEFAULT:@SECLEVEL=0;",
                own.file.display(),
                own.key.display()
            )
        };
        let address = humboldt_tests::wait::free_address();
        let others = FAULTS.iter().zip(&certificates).map(|(fault, own)| {
            let host = fault.host;
            format!(
                " }} server {{ listen {address} ssl; server_name {host}; root {{dir}}/site; {}",
                of(own)
            )
        });
        let others: String = others.collect();
        let lines = format!("listen {address} ssl; server_name {GOOD}; {}{others}", of(&good));
        let mut server = Server::nginx("", &lines);
        server.address = address;
        server.put("a", "hello");
        (server, certificates)
    }

    /// A proxy that is reached with these options of its port.
    fn proxy(&self, options: &str, lines: &str) -> Proxy {
        let log = "logformat own %ru %err_code %err_detail\naccess_log stdio:{dir}/own.log own\n";
        let hosts = self.path("hosts");
        Proxy::start(options, &format!("{log}hosts_file {hosts}\nworkers 1\n{lines}\n"))
    }

    /// The options of TLS towards servers, with this prefix.
    fn trust(&self, prefix: &str) -> String {
        let (trusted, revoked) = (self.path("trusted.pem"), self.path("revoked.pem"));
        format!("{prefix}cafile={trusted} {prefix}crlfile={revoked}")
    }

    /// A proxy whose parents are the hosts: as servers (`originserver`), or as proxies.
    fn with_peers(&self, options: &str, kind: &str, server: &Server) -> Proxy {
        let port = server.address.port();
        let lines = FAULTS.iter().map(|fault| fault.host).chain([GOOD]).map(|host| {
            format!(
                "cache_peer 127.0.0.1 parent {port} 0 no-query {kind} name={host} tls \
                 tls-domain={host} {}\nacl {host} dstdomain {host}\n\
                 cache_peer_access {host} allow {host}\ncache_peer_access {host} deny all\n",
                self.trust("tls-")
            )
        });
        let lines: String = lines.collect();
        self.proxy(options, &format!("{lines}never_direct allow all"))
    }

    /// A proxy that asks servers itself, and whose port intercepts TLS by these rules.
    fn bumping(&self, rules: &str) -> Proxy {
        let key = self.bump.path("ca.key");
        fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("readable for all");
        let (authority, key) = (self.bump.ca(), key);
        let options =
            format!("ssl-bump tls-cert={} tls-key={}", authority.display(), key.display());
        self.proxy(&options, &format!("tls_outgoing_options {}\n{rules}", self.trust("")))
    }
}

/// The line of the log about this host.
fn logged(proxy: &Proxy, part: &str, name: &str) -> String {
    until(&format!("a line about {part} with {name}"), || {
        let text = proxy.text("own.log");
        let mut lines = text.lines().filter(|line| line.contains(part));
        lines.find(|line| line.contains(name)).map(str::to_owned)
    })
}

/// What a client without interception gets.
fn ask(proxy: &Proxy, target: &str, host: &str) -> Response {
    let mut client = proxy.client();
    client.request("GET", target, &[("Host", host)], b"");
    client.response()
}

/// The answer is a page that names the fault, and so does the log.
fn is_refused(proxy: &Proxy, target: &str, fault: &Fault, way: &str) {
    let answer = ask(proxy, target, fault.host).expect(503);
    let page = answer.field("X-Squid-Error");
    assert_eq!(page, Some("ERR_SECURE_CONNECT_FAIL 0"), "{way}, {}", fault.host);
    assert!(answer.text().contains(fault.name), "{way}, {}: {}", fault.host, answer.text());
    let line = logged(proxy, fault.host, fault.name);
    assert!(line.contains(" ERR_SECURE_CONNECT_FAIL "), "{way}: {line}");
}

#[test]
fn they_are_refused_by_urls_accelerators_and_parents() {
    let stage = Stage::new();
    let (server, _) = stage.serve();
    let port = server.address.port();
    let url = |host: &str| format!("https://{host}:{port}/a");
    let forward = stage.proxy("", &format!("tls_outgoing_options {}", stage.trust("")));
    assert_eq!(ask(&forward, &url(GOOD), GOOD).expect(200).text(), "hello");
    let accelerator = stage.with_peers("accel vhost", "originserver", &server);
    assert_eq!(ask(&accelerator, "/a", GOOD).expect(200).text(), "hello");
    let child = stage.with_peers("", "", &server);
    let good = ask(&child, &format!("http://{GOOD}/a"), GOOD).expect(200);
    assert_eq!(good.text(), "hello", "nginx takes the request of a proxy too");
    until("the server's log", || {
        (server.count("/a") + server.count("http://good.test/a") >= 3).then_some(())
    });
    let before = server.text("access.log");
    for fault in &FAULTS {
        is_refused(&forward, &url(fault.host), fault, "a URL");
        is_refused(&accelerator, "/a", fault, "an accelerator");
        is_refused(&child, &format!("http://{}/a", fault.host), fault, "a parent");
    }
    assert_eq!(server.text("access.log"), before, "nothing was sent");
}

/// The ways in which a connection is decrypted.
const DECRYPTING: [&str; 3] = [
    "ssl_bump client-first all",
    "acl step1 at_step SslBump1\nssl_bump peek step1\nssl_bump bump all",
    "ssl_bump stare all\nssl_bump bump all",
];

#[test]
fn a_client_that_is_decrypted_sees_a_page() {
    let stage = Stage::new();
    let (server, _) = stage.serve();
    let port = server.address.port();
    for (round, rules) in DECRYPTING.into_iter().enumerate() {
        let proxy = stage.bumping(rules);
        let fetch = |host: &str| {
            let mut command = curl(&proxy);
            command.arg("--cacert").arg(stage.bump.ca());
            command.args(["-w", "\n%{http_code}", &format!("https://{host}:{port}/a")]);
            String::from_utf8_lossy(&run(&mut command).stdout).into_owned()
        };
        assert_eq!(fetch(GOOD), "hello\n200", "{rules}");
        // nginx writes its line after the client has the answer.
        until("the server's log", || (server.count("/a") > round).then_some(()));
        let before = server.text("access.log");
        for fault in &FAULTS {
            let page = fetch(fault.host);
            assert!(page.ends_with("\n503"), "{rules}, {}: {page}", fault.host);
            assert!(page.contains("ERR_SECURE_CONNECT_FAIL"), "{rules}, {}: {page}", fault.host);
            logged(&proxy, &format!("https://{}:", fault.host), fault.name);
        }
        assert_eq!(server.text("access.log"), before, "nothing was sent");
    }
}

#[test]
fn a_client_is_never_shown_a_good_certificate_for_a_fault_that_is_forgiven() {
    let stage = Stage::new();
    let (server, _) = stage.serve();
    let port = server.address.port();
    for rules in DECRYPTING {
        let proxy = stage.bumping(&format!("sslproxy_cert_error allow all\n{rules}"));
        for fault in &FAULTS {
            let mut command = curl(&proxy);
            command.arg("--cacert").arg(stage.bump.ca());
            command.args(["-w", "\n%{http_code}", &format!("https://{}:{port}/a", fault.host)]);
            let output = run(&mut command);
            let text = String::from_utf8_lossy(&output.stdout);
            // Its certificate fails, or it is a page.
            assert!(!text.contains("hello"), "{rules}, {}", fault.host);
            match output.status.success() {
                true => assert!(text.ends_with("\n503"), "{rules}, {}: {text}", fault.host),
                false => {
                    let why = String::from_utf8_lossy(&output.stderr);
                    assert!(why.contains("certificate"), "{rules}, {}: {why}", fault.host);
                }
            }
            // A key that is too short proves nothing: that is never forgiven.
            assert_eq!(output.status.success(), fault.host == "short.test", "{}", fault.host);
        }
        // Nothing of it is a matter of chance: the good one has a good one.
        let mut command = curl(&proxy);
        command.arg("--cacert").arg(stage.bump.ca()).arg(format!("https://{GOOD}:{port}/a"));
        assert_eq!(String::from_utf8_lossy(&run(&mut command).stdout), "hello", "{rules}");
    }
}

#[test]
fn a_client_that_is_not_decrypted_sees_the_servers_own_certificate() {
    let stage = Stage::new();
    let (server, certificates) = stage.serve();
    let port = server.address.port();
    for rules in ["ssl_bump splice all", "ssl_bump peek all\nssl_bump splice all"] {
        let proxy = stage.bumping(rules);
        let fetch = |host: &str| {
            let mut command = curl(&proxy);
            command.args(["--cacert", &stage.path("trusted.pem")]);
            command.args(["--crlfile", &stage.path("revoked.pem")]);
            run(command.arg(format!("https://{host}:{port}/a")))
        };
        assert_eq!(String::from_utf8_lossy(&fetch(GOOD).stdout), "hello", "{rules}");
        for (fault, own) in FAULTS.iter().zip(&certificates) {
            let output = fetch(fault.host);
            assert!(!output.status.success(), "{rules}, {}", fault.host);
            let mut command = openssl("s_client");
            command.args(["-proxy", &proxy.address().to_string(), "-servername", fault.host]);
            command.args(["-connect", &format!("{}:{port}", fault.host)]);
            command.args(["-cipher", "DEFAULT@SECLEVEL=0"]).stdin(Stdio::null());
            let shown = String::from_utf8_lossy(&run(&mut command).stdout).into_owned();
            let pem = fs::read_to_string(&own.file).expect("a certificate");
            let body = pem.lines().find(|line| line.starts_with("MII")).expect("a certificate");
            assert!(shown.contains(body), "{rules}, {}: {shown}", fault.host);
        }
    }
}
