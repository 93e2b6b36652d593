//! `cargo xtask testssl`: testssl.sh against an `https_port` with nothing but its certificates, and
//! its findings in docs/tls.md.

use crate::processes::{Running, free_address};
use crate::{Outcome, first_run, marks, packages, workspace};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The page, relative to the root of the checkout.
const PAGE: &str = "docs/tls.md";

/// Complaints that are not about a mistake of the program, each with the reason in words. Most are
/// about the stage: the authority is the test's own, and there is no server behind the port.
const EXCUSED: [(&str, &str); 4] = [
    ("cert_revocation", "the stage: its authority has neither lists nor OCSP"),
    ("HTTP_status_code", "the stage: no server is behind the port"),
    ("HSTS", "a field of the server behind, not of the port"),
    (
        "cipher_order",
        "the client's order counts among ciphers that are all strong, so that telephones without \
         AES in hardware get ChaCha20; `tls-options=CIPHER_SERVER_PREFERENCE` changes that",
    ),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Put the findings into docs/tls.md
    #[arg(long)]
    write: bool,
}

/// One thing that testssl.sh has looked at.
struct Finding {
    id: String,
    severity: String,
    text: String,
}

impl Finding {
    /// Whether testssl.sh complains.
    fn is_complaint(&self) -> bool {
        matches!(&*self.severity, "LOW" | "MEDIUM" | "HIGH" | "CRITICAL" | "WARN" | "FATAL")
    }

    /// Why a complaint is none.
    fn excuse(&self) -> Option<&'static str> {
        let is_of = |id: &str| self.id == id || self.id.starts_with(&format!("{id} "));
        EXCUSED.iter().find(|(id, _)| is_of(id)).map(|(_, why)| *why)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    packages::install_for_testssl()?;
    let root = workspace::root();
    let program = first_run::program(&root)?;
    let findings = look(&program)?;
    let complaints: Vec<&Finding> =
        findings.iter().filter(|one| one.is_complaint() && one.excuse().is_none()).collect();
    let (ours, theirs) = (version(&program)?, version(Path::new("testssl"))?);
    let text = summary(&findings, &format!("Humboldt {ours}"), &format!("testssl.sh {theirs}"));
    println!("{text}\n");
    if arguments.write {
        let path = root.join(PAGE);
        let page = marks::replaced(&fs::read_to_string(&path)?, "testssl", &text)
            .ok_or_else(|| format!("{PAGE} has no marks for `testssl`"))?;
        fs::write(&path, page)?;
        println!("testssl: {PAGE} is written");
    }
    match complaints.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(format!(
            "testssl.sh has {} complaints, the first: {}: {}",
            complaints.len(),
            first.id,
            first.text
        )
        .into()),
    }
}

/// Starts the program as a proxy behind TLS, and has testssl.sh look at it.
fn look(program: &Path) -> Outcome<Vec<Finding>> {
    let folder = TempDir::with_prefix("testssl-")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ca, ca_key) = (path("ca.pem"), path("ca.key"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-nodes", "-days", "90", "-subj", "/CN=testssl", "-keyout", &ca_key]);
    succeed(command.args(["-out", &ca]))?;
    let mut certificates = String::new();
    for (kind, option) in [("ec", "ec_paramgen_curve:P-256"), ("rsa", "rsa_keygen_bits:2048")] {
        let (own, own_key) = (path(&format!("{kind}.pem")), path(&format!("{kind}.key")));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-CA", &ca, "-CAkey", &ca_key, "-newkey", kind]);
        command.args(["-pkeyopt", option, "-nodes", "-days", "90", "-subj", "/CN=localhost"]);
        command.args(["-addext", "subjectAltName=DNS:localhost"]);
        command.args(["-addext", "extendedKeyUsage=serverAuth"]);
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        succeed(command.args(["-keyout", &own_key, "-out", &own]))?;
        certificates += &format!(" tls-cert={own} tls-key={own_key}");
    }
    let address = free_address()?;
    let configuration = path("squid.conf");
    let text = format!(
        "https_port {address} accel defaultsite=localhost{certificates}\nhttp_access allow all\n\
         pid_filename none\ncache_log {}\naccess_log none\n",
        path("cache.log")
    );
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.args(["-N", "-f", &configuration]);
    let mut running = Running::start("humboldt", &mut command, Path::new(&path("output")))?;
    running.wait_ready(address)?;
    let json = path("findings.json");
    let mut command = Command::new("testssl");
    command.args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none"]);
    command.args(["--ip", "127.0.0.1", "--add-ca", &ca, "--jsonfile", &json]);
    command.arg(format!("https://localhost:{}", address.port())).current_dir(folder.path());
    // Its status is the number of its complaints.
    let output = command.output()?;
    let found: Value = serde_json::from_str(&fs::read_to_string(&json).map_err(|error| {
        format!(
            "testssl.sh has written nothing: {error}: {}",
            String::from_utf8_lossy(&output.stdout)
        )
    })?)?;
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let findings: Vec<Finding> = found
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| Finding {
            id: text(one, "id"),
            severity: text(one, "severity"),
            text: text(one, "finding"),
        })
        .collect();
    // It comes last.
    match findings.iter().any(|one| one.id == "scanTime") {
        true => Ok(findings),
        false => Err("testssl.sh has not finished".into()),
    }
}

/// The table for the page.
fn summary(findings: &[Finding], program: &str, testssl: &str) -> String {
    let told = |id: &str| findings.iter().find(|one| one.id == id).map(|one| one.text.as_str());
    let mut text = format!("{program}, looked at by {testssl}:\n\nlooked at | found\n--- | ---\n");
    for (id, words) in [
        ("SSLv2", "SSL 2"),
        ("SSLv3", "SSL 3"),
        ("TLS1", "TLS 1.0"),
        ("TLS1_1", "TLS 1.1"),
        ("TLS1_2", "TLS 1.2"),
        ("TLS1_3", "TLS 1.3"),
        ("ALPN", "protocols (ALPN)"),
        ("PFS", "forward secrecy"),
        ("PFS_ECDHE_curves", "curves"),
        ("cipherlist_3DES_IDEA", "3DES, IDEA"),
        ("cipherlist_AVERAGE", "ciphers without AEAD"),
        ("cipherlist_STRONG", "ciphers with AEAD and forward secrecy"),
        ("TLS_session_ticket", "tickets of sessions"),
        ("secure_renego", "secure renegotiation"),
        ("secure_client_renego", "renegotiation by clients"),
        ("fallback_SCSV", "downgrade"),
        ("heartbleed", "Heartbleed"),
        ("CCS", "CCS injection"),
        ("ticketbleed", "Ticketbleed"),
        ("ROBOT", "ROBOT"),
        ("CRIME_TLS", "CRIME"),
        ("POODLE_SSL", "POODLE"),
        ("SWEET32", "SWEET32"),
        ("FREAK", "FREAK"),
        ("DROWN", "DROWN"),
        ("LOGJAM", "LOGJAM"),
        ("BEAST", "BEAST"),
        ("LUCKY13", "LUCKY13"),
        ("RC4", "RC4"),
    ] {
        if let Some(found) = told(id) {
            let _ = writeln!(text, "{words} | {}", found.trim_end_matches(','));
        }
    }
    let count = |severity: &str| findings.iter().filter(|one| one.severity == severity).count();
    let _ = writeln!(
        text,
        "\nOf {} findings {} are `OK`, {} are for information.",
        findings.len(),
        count("OK"),
        count("INFO")
    );
    let complaints: Vec<&Finding> = findings.iter().filter(|one| one.is_complaint()).collect();
    if !complaints.is_empty() {
        text.push_str("\ncomplaint | why it is none here\n--- | ---\n");
        for one in complaints {
            let why = one.excuse().unwrap_or("**it is one**");
            let _ = writeln!(text, "`{}`: {} | {why}", one.id, one.text);
        }
    }
    text
}

/// The version that a program says it has: the first word with digits and points.
fn version(program: &Path) -> Outcome<String> {
    let output = Command::new(program).arg("-v").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_one =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    let word = text.split_whitespace().find(is_one);
    word.map(str::to_owned).ok_or_else(|| format!("{} says no version", program.display()).into())
}

fn succeed(command: &mut Command) -> Outcome {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_without_an_excuse_is_one() {
        let finding = |id: &str, severity: &str| Finding {
            id: id.to_owned(),
            severity: severity.to_owned(),
            text: String::new(),
        };
        let of_stage = finding("cert_revocation <cert#2>", "HIGH");
        assert!(of_stage.is_complaint() && of_stage.excuse().is_some());
        let of_program = finding("SSLv3", "HIGH");
        assert!(of_program.is_complaint() && of_program.excuse().is_none());
        assert!(!finding("TLS1_3", "OK").is_complaint());
        let text = summary(&[of_stage, of_program], "Humboldt 1", "testssl.sh 3");
        assert!(text.contains("`SSLv3`:  | **it is one**"), "{text}");
        assert!(text.contains("`cert_revocation <cert#2>`:  | the stage: its"), "{text}");
    }
}
