//! TLS between users, real caches and servers, and tunnels. What is not installed is skipped, and
//! says so.

use crate::support::{Lab, SHORT, folder, lab, run_in, shared, until, write};
use humboldt_lab_record::{BangRun, Tally};
use humboldt_lab_subjects::SubjectFile;
use humboldt_lab_tls::Authority;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Whether a subject is installed here.
fn is_installed(name: &str) -> bool {
    let file = SubjectFile::builtin(name).expect("a family").expect("a right file");
    file.find().map_err(|error| eprintln!("skipped {name}: {error}")).is_ok()
}

/// A bang of a few hundred URLs; its result.
fn bang(words: &[&str]) -> BangRun {
    let out = folder();
    let path = out.path().join("out");
    let path_text = path.to_str().expect("a plain name");
    let mut all = vec!["bang", "--generate", "300", "--passes", "1", "--connections", "8"];
    all.extend(["--cache-size", "40MB", "--time-max", "50s", "--out", path_text]);
    all.extend(words);
    lab(all).with(0);
    humboldt_lab_report::read_bang(&path).expect("a report that can be read")
}

/// Every answer came and was right, and handshakes were resumed where there was something to
/// resume.
fn assert_right(run: &BangRun) {
    assert!(run.faults.is_empty(), "{:?} {:#?}", run.faults, run.fault_samples);
    assert_eq!((run.requests, run.verified), (300, 300));
    let made = run.handshakes.full + run.handshakes.resumed;
    assert_eq!(made, 300, "one for each connection: {:?}", run.handshakes);
}

#[test]
fn an_accelerator_ends_tls() {
    if !is_installed("nginx") {
        return;
    }
    let _machine = shared();
    let run = bang(&["--subject", "nginx", "--tls", "accelerator"]);
    assert_right(&run);
    assert!(run.handshakes.resumed > run.handshakes.full, "{:?}", run.handshakes);
    let full = bang(&["--subject", "nginx", "--tls", "accelerator", "--no-resumption"]);
    assert_right(&full);
    assert_eq!(full.handshakes.resumed, 0);
}

#[test]
fn tls_goes_through_tunnels() {
    let _machine = shared();
    let run = bang(&["--subject", "humboldt:null", "--tls", "tunnel"]);
    assert_right(&run);
    assert_eq!(run.hits, 0, "a proxy cannot store what it cannot read");
    assert!(run.handshakes.resumed > run.handshakes.full, "{:?}", run.handshakes);
}

#[test]
fn without_a_cache_the_laboratory_asks_its_own_servers() {
    let _machine = shared();
    let out = folder();
    let path = out.path().join("out");
    let words = ["bang", "--generate", "200", "--tls", "accelerator", "--out"];
    lab(words.iter().copied().chain([path.to_str().expect("a plain name")])).with(0);
    let run = humboldt_lab_report::read_bang(&path).expect("a report that can be read");
    assert_eq!((run.verified, run.handshakes.full + run.handshakes.resumed), (200, 200));
}

/// An nginx of the test's own, which ends with it.
struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn a_running_accelerator_is_attached_to_by_https() {
    if !is_installed("nginx") {
        return;
    }
    let _machine = shared();
    let (place, out) = (folder(), folder());
    let authority = Authority::new("a site's own").expect("a key");
    let own = authority.issue(&["127.0.0.1".to_owned()]).expect("a certificate");
    let pem = write(place.path(), "site.pem", authority.certificate_pem());
    write(place.path(), "certificate.pem", &own.certificate_pem);
    write(place.path(), "key.pem", &own.key_pem);
    let (port, behind) = (free_port(), free_port());
    let conf = format!(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path body; proxy_temp_path temp;\n\
         server {{ listen 127.0.0.1:{port} ssl;\n\
         ssl_certificate certificate.pem; ssl_certificate_key key.pem;\n\
         location / {{ proxy_pass http://127.0.0.1:{behind}; proxy_http_version 1.1; }} }} }}\n"
    );
    write(place.path(), "nginx.conf", &conf);
    let folder_text = place.path().to_str().expect("a plain name");
    let words = ["-p", folder_text, "-c", "nginx.conf", "-e", "error.log"];
    let program = SubjectFile::builtin("nginx").expect("a family").expect("right").find();
    let mut command = Command::new(program.expect("it is installed"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _nginx = Nginx(command.spawn().expect("it starts"));
    until("nginx", || TcpStream::connect(("127.0.0.1", port)).ok());
    let (url, origin) = (format!("https://127.0.0.1:{port}"), format!("127.0.0.1:{behind}"));
    let mut words = vec!["peak", "--attach", &url, "--accelerator", "--origin", &origin];
    words.extend(["--tls", "accelerator", "--authority", &pem, "--workload", "fixed-1k"]);
    words.extend(["--load", "100", "--time-max", "4s", "--cache-size", "40MB"]);
    words.extend(SHORT);
    words.extend(["--out", out.path().to_str().expect("a plain name")]);
    lab(words).with(0);
    let total = run_in(out.path()).total;
    assert_eq!(total.faults_total(), 0, "{:#?}", total.fault_samples);
    assert!(total.answers() > 50 && total.handshakes.full > 0, "{:?}", total.handshakes);
}

/// Squid with OpenSSL: that of the system, or below `SQUID_OPENSSL` a copy of the package's files.
fn squid_with_openssl() -> Option<(String, String)> {
    let root = std::env::var("SQUID_OPENSSL").unwrap_or_default();
    let program = format!("{root}/usr/sbin/squid");
    let certgen = format!("{root}/usr/lib/squid/security_file_certgen");
    let says = Command::new(&program).arg("-v").output().ok();
    let is_one = says.is_some_and(|out| String::from_utf8_lossy(&out.stdout).contains("openssl"));
    if !is_one || !Path::new(&certgen).exists() {
        eprintln!("skipped: {program} is no Squid with OpenSSL (package squid-openssl)");
        return None;
    }
    Some((program, certgen))
}

#[test]
fn a_proxy_that_opens_tunnels_is_proved_to_be_in_the_middle() {
    let Some((program, certgen)) = squid_with_openssl() else { return };
    let _machine = shared();
    let set = format!("certgen={certgen}");
    let subject = ["--subject", "squid-bump", "--program", &program, "--set", &set];
    let set_small = ["--set", "l1_l2=4 16", "--keep-alive"];
    let run = |urls: &str, more: &[&str]| {
        let words = [&subject[..], &set_small, &["--tls"], more].concat();
        let mut all = vec!["bang", "--generate", urls, "--cache-size", "40MB"];
        all.extend(["--connections", "8", "--timeout", "10s", "--time-max", "40s"]);
        all.extend(words);
        Lab::start(all).end()
    };
    let done = run("200", &["intercept"]).with(0);
    assert!(done.out.contains("TLS handshakes"), "{}", done.out);
    assert!(done.out.contains("cache full"), "two passes: {}", done.out);
    let hits = done.out.lines().filter(|line| line.starts_with("hits ")).nth(1);
    assert!(hits.is_some_and(|line| !line.contains(" 0 of")), "the second pass hits: {}", done.out);
    // The laboratory's servers are not at the other end of these tunnels.
    let (place, other) = (folder(), "other.pem");
    let path = place.path().join(other);
    lab(["bang", "--generate", "1", "--tls", "accelerator", "--origin-authority"]
        .iter()
        .map(std::ffi::OsString::from)
        .chain([path.clone().into_os_string()]))
    .with(0);
    let refused =
        run("10", &["intercept", "--authority", path.to_str().expect("a plain name")]).with(1);
    assert!(refused.err.contains("TLS handshake failed"), "{refused:#?}");
    assert!(refused.err.contains("UnknownIssuer"), "{refused:#?}");
}

#[test]
fn a_wrong_authority_is_refused() {
    if !is_installed("nginx") {
        return;
    }
    let _machine = shared();
    let place = folder();
    let path = place.path().join("other.pem");
    let path = path.to_str().expect("a plain name");
    // A laboratory's own authority, which has signed nothing here.
    lab(["bang", "--generate", "1", "--tls", "accelerator", "--origin-authority", path]).with(0);
    let words = ["bang", "--generate", "20", "--subject", "nginx", "--cache-size", "40MB"];
    let done = lab(words.iter().chain(&["--tls", "accelerator", "--authority", path])).with(1);
    done.says(&["TLS handshake failed", "UnknownIssuer"]);
}

#[test]
fn what_cannot_be_is_said_before_anything_starts() {
    let place = folder();
    let no_pem = write(place.path(), "no.pem", "no certificate");
    let attach = "https://127.0.0.1:9";
    for (words, says) in [
        (vec!["bang", "--subject", "humboldt:null", "--tls", "accelerator"], "--tls tunnel"),
        (vec!["bang", "--subject", "nginx", "--tls", "tunnel"], "--tls accelerator"),
        (vec!["bang", "--subject", "humboldt:null", "--tls", "intercept"], "[when.intercept]"),
        (vec!["bang", "--generate", "1", "--tls", "tunnel"], "no proxy"),
        (vec!["bang", "--proxy", "127.0.0.1:9", "--tls", "intercept"], "--authority FILE"),
        (
            vec!["bang", "--generate", "1", "--tls", "accelerator", "--authority", &no_pem],
            "BEGIN CERTIFICATE",
        ),
        (vec!["peak", "--attach", attach, "--quick"], "--accelerator"),
        (vec!["peak", "--attach", attach, "--accelerator"], "--tls accelerator"),
        (vec!["tunnel", "--subject", "nginx"], "makes no tunnels"),
        (vec!["tunnel", "--attach", "http://127.0.0.1:9"], "start the cache first"),
        (vec!["tunnel", "--attach", "http://127.0.0.1:9", "--fs", "ext4"], "--subject"),
    ] {
        lab(words).with(2).says(&[says]);
    }
}

#[test]
fn tunnels_are_measured_byte_for_byte() {
    let _machine = shared();
    for subject in ["humboldt:null", "squid:null"] {
        if !is_installed(subject) {
            continue;
        }
        let words = ["--bytes", "6MB", "--seconds", "10s", "--tunnels", "3", "--json"];
        let first = ["tunnel", "--subject", subject, "--cache-size", "40MB"];
        let done = lab(first.iter().chain(&words)).with(0);
        let results: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
        let parts = results["parts"].as_array().expect("parts");
        let names: Vec<_> = parts.iter().filter_map(|part| part["name"].as_str()).collect();
        assert_eq!(names, ["set-ups", "download", "upload"]);
        assert!(parts[0]["tunnels_done"].as_u64().unwrap() > 10, "{subject}: {parts:#?}");
        for (part, direction) in [(1, "down_bytes"), (2, "up_bytes")] {
            let bytes = parts[part][direction].as_u64().unwrap();
            assert_eq!(bytes, 3 * ((6 << 20) / 3), "{subject}: {parts:#?}");
            // So few bytes may take less than what the kernel's ticks can tell.
            assert!(parts[part]["subject_cpu_s"].is_f64(), "{subject}: {parts:#?}");
        }
        for part in parts {
            assert_eq!(part["faults"], serde_json::json!({}), "{subject}: {parts:#?}");
        }
    }
}

/// `load` for three seconds; its counts.
fn load(words: &[&str]) -> Tally {
    let all = ["load", "200", "--workload", "fixed-1k", "--time", "3s", "--warm-up", "0.1s"];
    let done = lab(all.iter().chain(words).chain(&["--json"])).with(0);
    serde_json::from_str(&done.out).expect("a tally")
}

#[test]
fn servers_and_users_by_themselves_speak_tls() {
    let _machine = shared();
    let place = folder();
    let path = place.path().join("own.pem");
    let path = path.to_str().expect("a plain name");
    let words = ["origin", "--workload", "fixed-1k", "--no-think", "--origin-authority", path];
    let mut origin = Lab::start(words);
    let line = origin.until_says("serving fixed-1k over TLS on ");
    let address = line.rsplit(' ').next().expect("an address").to_owned();
    let there = ["--origins", &address, "--tls", "accelerator"];
    for known_by in ["--authority", "--origin-authority"] {
        let tally = load(&[&there[..], &[known_by, path]].concat());
        assert_eq!(tally.faults_total(), 0, "{known_by}: {:#?}", tally.fault_samples);
        assert!(tally.answers() > 100 && tally.handshakes.full > 0, "{:?}", tally.handshakes);
    }
    lab(["load", "200"].iter().chain(&there)).with(2).says(&["--authority FILE"]);
    let plain = load(&there[..2]);
    assert!(plain.answers() == 0 && plain.faults_total() > 100, "plain HTTP is no TLS: {plain:?}");
    origin.signal(rustix::process::Signal::INT);
    origin.end().with(0);
    // A server of its own needs no file.
    let tally = load(&["--tls", "accelerator"]);
    assert!(tally.faults_total() == 0 && tally.handshakes.full > 0, "{:#?}", tally.fault_samples);
}
