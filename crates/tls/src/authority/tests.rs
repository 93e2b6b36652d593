use humboldt_conf::Location;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::ProducesTickets;
use x509_parser::certificate::X509Certificate;

use super::issuer::{LEAVES_PER_CLIENT_S, SLOW_LEAVES_PER_CLIENT_S};
use super::*;
use crate::files::OnDisk;
use crate::testing::InMemory;

/// 2026-01-01.
const NOW_S: i64 = 1_767_225_600;
const DAY_S: i64 = 86_400;

fn port() -> BumpPort {
    BumpPort {
        certificate: Some(CertificateFiles { certificate: "ca".to_owned(), key: None }),
        generates: true,
        leaf_cache_bytes: BumpPort::LEAF_CACHE_BYTES,
        settings: TlsSettings::default(),
        location: Location::default(),
    }
}

/// What an authority says of itself, from 2025 to 2034.
fn authority_wish() -> CertificateParams {
    let mut wish = CertificateParams::default();
    wish.distinguished_name = named(&[(DnType::CommonName, "Test authority")]);
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wish.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (wish.not_before, wish.not_after) = (date_time_ymd(2025, 1, 1), date_time_ymd(2034, 1, 1));
    wish
}

fn named(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), *value);
    }
    name
}

fn of_text(text: String) -> Result<BumpAuthority, String> {
    let made = BumpAuthority::new(&port(), &InMemory(vec![("ca", text)]));
    made.map(|made| made.expect("it has a certificate")).map_err(|error| error.to_string())
}

/// An authority, and its certificate.
fn authority() -> (BumpAuthority, CertificateDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let own = authority_wish().self_signed(&key).expect("a certificate");
    (of_text(own.pem() + &key.serialize_pem()).expect("an authority"), own.der().clone())
}

/// The certificates that a client gets.
fn chain(authority: &BumpAuthority, wish: &LeafWish<'_>) -> Vec<CertificateDer<'static>> {
    let Kind::Makes(maker) = &*authority.kind else { panic!("it makes none") };
    maker.sign(wish, NOW_S).expect("a certificate").0
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> X509Certificate<'a> {
    let (rest, found) = x509_parser::parse_x509_certificate(der).expect("a certificate");
    assert!(rest.is_empty());
    found
}

/// Whether a client that trusts `root` takes a chain for a name.
fn takes(root: &CertificateDer<'_>, chain: &[CertificateDer<'_>], name: &str, at_s: i64) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone().into_owned()).expect("an authority");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.build().expect("a verifier");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at_s as u64));
    verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], time).is_ok()
}

fn has_signed_itself(own: &X509Certificate<'_>) -> bool {
    let (key, signature) = (&own.public_key().subject_public_key.data, &own.signature_value.data);
    let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
    let body = own.tbs_certificate.as_ref();
    algorithms.iter().any(|algorithm| algorithm.verify_signature(key, body, signature).is_ok())
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().expect("once");
    names
        .map(|names| names.value.general_names.iter().map(ToString::to_string).collect())
        .unwrap_or_default()
}

/// A certificate of a server, which an authority of its own has signed.
fn of_server(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
    let key = KeyPair::generate().expect("a key");
    let mut wish =
        CertificateParams::new(["www.a.test".to_owned(), "*.a.test".to_owned()]).expect("names");
    wish.distinguished_name =
        named(&[(DnType::OrganizationName, "Example Ltd"), (DnType::CommonName, "www.a.test")]);
    (wish.not_before, wish.not_after) = (date_time_ymd(2025, 6, 1), date_time_ymd(2026, 6, 1));
    wish.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    change(&mut wish);
    wish.self_signed(&key).expect("a certificate").der().clone()
}

#[test]
fn clients_that_trust_the_authority_take_its_certificates_for_their_names_only() {
    let (authority, root) = authority();
    let wish = LeafWish { names: &["www.a.test", "b.test", "192.0.2.1"], ..Default::default() };
    let chain = chain(&authority, &wish);
    assert_eq!(chain.len(), 1, "the client has the root");
    for name in ["www.a.test", "b.test", "192.0.2.1"] {
        assert!(takes(&root, &chain, name, NOW_S), "{name}");
    }
    for name in ["a.test", "x.b.test", "192.0.2.2", "x.www.a.test"] {
        assert!(!takes(&root, &chain, name, NOW_S), "{name}");
    }
    let own = parse(&chain[0]);
    assert_eq!(own.subject().to_string(), "CN=www.a.test");
    assert_eq!(own.issuer(), parse(&root).subject());
    assert!(!own.is_ca());
    let usage = own.key_usage().expect("once").expect("a usage");
    assert!(usage.critical && usage.value.digital_signature() && usage.value.flags == 1);
    let purposes = own.extended_key_usage().expect("once").expect("a purpose");
    assert!(purposes.value.server_auth && !purposes.value.any);
    // The other authority is a stranger, and so is a certificate that has signed itself.
    for sign in [SignAs::Untrusted, SignAs::SelfSigned] {
        let other = super::tests::chain(&authority, &LeafWish { sign, ..wish });
        assert!(!takes(&root, &other, "www.a.test", NOW_S), "{sign:?}");
        let other = parse(&other[0]);
        match sign {
            SignAs::SelfSigned => {
                assert_eq!(other.issuer(), other.subject());
                assert!(has_signed_itself(&other));
            }
            _ => assert_eq!(other.issuer().to_string(), "CN=Not trusted by \"Test authority\""),
        }
    }
}

#[test]
fn certificates_without_a_model_live_three_months_at_most() {
    let (authority, root) = authority();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    for days in 0..40 {
        let now_s = NOW_S + days * DAY_S;
        let Kind::Makes(maker) = &*authority.kind else { panic!("it makes none") };
        let draft = Draft::of(&wish, &maker.trusted, now_s).expect("contents");
        assert!(draft.begins_s <= now_s - DAY_S, "clocks may be slow");
        assert!((now_s + 59 * DAY_S..=now_s + 90 * DAY_S).contains(&draft.ends_s));
    }
    // Never longer than the authority, nor before it.
    let chain = chain(&authority, &wish);
    assert!(takes(&root, &chain, "a.test", NOW_S));
    let Kind::Makes(maker) = &*authority.kind else { panic!("it makes none") };
    let late_s = maker.trusted.ends_s - DAY_S;
    let draft = Draft::of(&wish, &maker.trusted, late_s).expect("contents");
    assert_eq!(draft.ends_s, maker.trusted.ends_s);
    let draft = Draft::of(&wish, &maker.trusted, maker.trusted.begins_s).expect("contents");
    assert_eq!(draft.begins_s, maker.trusted.begins_s);
    assert_eq!(authority.ends_s(), Some(maker.trusted.ends_s));
}

#[test]
fn the_certificate_of_a_server_is_the_model() {
    let (authority, root) = authority();
    let real = of_server(|wish| {
        wish.subject_alt_names.push(SanType::IpAddress([192, 0, 2, 7].into()));
        wish.subject_alt_names.push(SanType::Rfc822Name("me@a.test".try_into().expect("text")));
    });
    let wish = LeafWish { mimic: Some(&real), ..LeafWish::default() };
    let chain = chain(&authority, &wish);
    let (own, real) = (parse(&chain[0]), parse(&real));
    assert_eq!(own.subject().as_raw(), real.subject().as_raw());
    assert_eq!(own.validity(), real.validity());
    assert_eq!(
        names(&own),
        ["DNSName(www.a.test)", "DNSName(*.a.test)", "IPAddress(c0:00:02:07)"],
        "hosts and addresses"
    );
    for name in ["www.a.test", "other.a.test", "192.0.2.7"] {
        assert!(takes(&root, &chain, name, NOW_S), "{name}");
    }
    assert!(!takes(&root, &chain, "b.test", NOW_S));
    // The key is another one.
    assert_ne!(own.public_key(), real.public_key());
}

#[test]
fn faults_of_the_server_are_in_the_certificate_too() {
    let (authority, root) = authority();
    let end = |real: &CertificateDer<'_>| {
        let chain = chain(&authority, &LeafWish { mimic: Some(real), ..LeafWish::default() });
        (takes(&root, &chain, "www.a.test", NOW_S), chain)
    };
    let (is_taken, _) = end(&of_server(|_| {}));
    assert!(is_taken);
    let (is_taken, _) = end(&of_server(|wish| wish.not_after = date_time_ymd(2025, 12, 31)));
    assert!(!is_taken, "expired");
    let (is_taken, _) = end(&of_server(|wish| wish.not_before = date_time_ymd(2026, 1, 2)));
    assert!(!is_taken, "not yet valid");
    let other = [SanType::DnsName("b.test".try_into().expect("a name"))];
    let (is_taken, _) = end(&of_server(|wish| wish.subject_alt_names = other.to_vec()));
    assert!(!is_taken, "another name");
    let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let (is_taken, _) = end(&of_server(|wish| wish.extended_key_usages = purposes));
    assert!(!is_taken, "another purpose");
    let (is_taken, _) = end(&of_server(|wish| wish.extended_key_usages.clear()));
    assert!(is_taken, "without purposes, it is for servers");
    // Clients of today refuse a server without an extension of names.
    let (is_taken, chain) = end(&of_server(|wish| wish.subject_alt_names.clear()));
    assert!(!is_taken);
    assert!(parse(&chain[0]).subject_alternative_name().expect("once").is_none());
    // An authority above the server whose time is over.
    let over = Some((NOW_S - 300 * DAY_S, NOW_S - DAY_S));
    let real = of_server(|_| {});
    let wish = LeafWish { mimic: Some(&real), within_s: over, ..LeafWish::default() };
    assert!(!takes(&root, &super::tests::chain(&authority, &wish), "www.a.test", NOW_S));
    assert!(takes(&root, &super::tests::chain(&authority, &wish), "www.a.test", NOW_S - 2 * DAY_S));
    // It does not outlive its authority.
    let (_, chain) = end(&of_server(|wish| wish.not_after = date_time_ymd(2050, 1, 1)));
    assert_eq!(parse(&chain[0]).validity().not_after, parse(&root).validity().not_after);
    let fault = authority.leaf(&LeafWish { mimic: Some(b"no DER"), ..Default::default() }, NOW_S);
    assert_eq!(fault.map(drop), Err(LeafFault::Unreadable));
}

#[test]
fn changes_are_made_one_by_one() {
    let (authority, root) = authority();
    let real = of_server(|wish| wish.not_after = date_time_ymd(2025, 12, 31));
    let made = |changes| {
        let wish = LeafWish { mimic: Some(&real), changes, ..LeafWish::default() };
        chain(&authority, &wish).remove(0)
    };
    let plain = LeafChanges::default();
    let (root_times, real_times) = (parse(&root).validity.clone(), parse(&real).validity.clone());
    let own = made(LeafChanges { ends_with_authority: true, ..plain });
    let times = parse(&own).validity.clone();
    assert_eq!((times.not_before, times.not_after), (real_times.not_before, root_times.not_after));
    let own = made(LeafChanges { begins_with_authority: true, ..plain });
    let times = parse(&own).validity.clone();
    assert_eq!((times.not_before, times.not_after), (root_times.not_before, real_times.not_after));
    let own = made(LeafChanges { common_name: Some("c.test"), ..plain });
    let own = parse(&own);
    assert_eq!(own.subject().to_string(), "O=Example Ltd, CN=c.test");
    assert_eq!(names(&own), ["DNSName(c.test)"]);
}

#[test]
fn a_number_belongs_to_one_certificate() {
    let (authority, _) = authority();
    let serial = |wish: &LeafWish<'_>| parse(&chain(&authority, wish)[0]).raw_serial().to_vec();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let first = serial(&wish);
    assert!(first.len() == 20 && first[0] & 0x80 == 0);
    let others = [
        serial(&LeafWish { names: &["b.test"], ..wish }),
        serial(&LeafWish { sign: SignAs::Untrusted, ..wish }),
        serial(&LeafWish { mimic: Some(&of_server(|_| {})), ..wish }),
        // Another key.
        parse(&chain(&super::tests::authority().0, &wish)[0]).raw_serial().to_vec(),
    ];
    assert!(others.iter().all(|other| *other != first));
    // One that is made again has other bytes.
    let Kind::Makes(maker) = &*authority.kind else { panic!("it makes none") };
    let draft = Draft::of(&wish, &maker.trusted, NOW_S).expect("contents");
    let make = || write::certificate(&draft, &maker.leaf_key, Some(&maker.trusted)).expect("made");
    let ((one, contents), (other, same)) = (make(), make());
    assert_ne!(parse(&one).raw_serial(), parse(&other).raw_serial());
    assert_eq!(contents, same, "sessions go on");
}

#[test]
fn certificates_that_sign_themselves_have_keys_of_their_own() {
    let (authority, _) = authority();
    let key = |name: &str, sign| {
        let chain = chain(&authority, &LeafWish { names: &[name], sign, ..Default::default() });
        parse(&chain[0]).public_key().raw.to_vec()
    };
    assert_ne!(key("a.test", SignAs::SelfSigned), key("b.test", SignAs::SelfSigned));
    assert_ne!(key("a.test", SignAs::SelfSigned), key("a.test", SignAs::Trusted));
}

#[test]
fn people_are_told_of_authorities_that_end() {
    let (authority, _) = authority();
    let ends_s = authority.ends_s().expect("it makes some");
    let files = InMemory(Vec::new());
    assert_eq!(authority.warnings(NOW_S, &files), Vec::<String>::new());
    for (now_s, word) in [
        (ends_s - 20 * DAY_S, "ends in 20 days"),
        (ends_s + DAY_S, "has ended"),
        (NOW_S - 9000 * DAY_S, "not valid yet"),
    ] {
        let told = authority.warnings(now_s, &files);
        assert!(told.len() == 1 && told[0].contains(word), "{told:?}");
    }
}

#[test]
fn people_are_told_of_a_key_that_every_user_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let key = KeyPair::generate().expect("a key");
    let own = authority_wish().self_signed(&key).expect("a certificate");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, own.pem() + &key.serialize_pem()).expect("written");
    let path = file.path().to_str().expect("a name").to_owned();
    let pair = CertificateFiles { certificate: path.clone(), key: None };
    let (port, files) = (BumpPort { certificate: Some(pair), ..port() }, OnDisk::default());
    let told = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, permissions).expect("permissions");
        let authority = BumpAuthority::new(&port, &files).expect("files").expect("an authority");
        authority.warnings(NOW_S, &files)
    };
    assert_eq!(told(0o640), Vec::<String>::new());
    assert!(told(0o644)[0].contains(&format!("chmod o= {path}")));
}

#[test]
fn names_that_are_none_get_no_certificate() {
    let (authority, _) = authority();
    for name in
        ["", "a b", "a..b", "*", "*.", "*.test", "a.*.test", "https://a.test", "a.test:443", "\0"]
    {
        let fault = authority.leaf(&LeafWish { names: &[name], ..Default::default() }, NOW_S);
        assert_eq!(fault.map(drop), Err(LeafFault::NoName(name.to_owned())));
    }
    let none = authority.leaf(&LeafWish::default(), NOW_S);
    assert_eq!(none.map(drop), Err(LeafFault::NoName(String::new())));
    // Hosts of URLs.
    for (host, name) in [("[2001:db8::1]", "2001:db8::1"), ("A.Test.", "a.test")] {
        let (authority, root) = super::tests::authority();
        let chain = chain(&authority, &LeafWish { names: &[host], ..LeafWish::default() });
        assert!(takes(&root, &chain, name, NOW_S), "{host}");
    }
    // One that is too long for a common name is a name nevertheless.
    let long = format!("{}.{}.test", "a".repeat(60), "b".repeat(60));
    let chain = chain(&authority, &LeafWish { names: &[&long], ..LeafWish::default() });
    let own = parse(&chain[0]);
    assert_eq!(
        (own.subject().to_string(), names(&own)),
        (String::new(), vec![format!("DNSName({long})")])
    );
    assert!(own.subject_alternative_name().expect("once").expect("names").critical);
}

#[test]
fn authorities_of_every_kind_sign_also_below_others() {
    use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256};
    let root_key = KeyPair::generate().expect("a key");
    let root_wish = authority_wish();
    let root = root_wish.self_signed(&root_key).expect("a certificate");
    let issuer = rcgen::Issuer::from_params(&root_wish, &root_key);
    for (kind, per_s) in [
        (&PKCS_ECDSA_P256_SHA256, LEAVES_PER_CLIENT_S),
        (&PKCS_ECDSA_P384_SHA384, SLOW_LEAVES_PER_CLIENT_S),
        (&PKCS_ED25519, LEAVES_PER_CLIENT_S),
        (&PKCS_RSA_SHA256, SLOW_LEAVES_PER_CLIENT_S),
    ] {
        let key = KeyPair::generate_for(kind).expect("a key");
        let mut wish = authority_wish();
        wish.distinguished_name = named(&[(DnType::CommonName, "Intermediate")]);
        let own = wish.signed_by(&key, &issuer).expect("a certificate");
        let text = own.pem() + &root.pem() + &key.serialize_pem();
        let authority = of_text(text).expect("an authority");
        let chain = chain(&authority, &LeafWish { names: &["a.test"], ..Default::default() });
        assert_eq!(chain.len(), 2, "the root is not sent");
        assert!(takes(root.der(), &chain, "a.test", NOW_S), "{kind:?}");
        assert_eq!(authority.leaves_per_client_s(), per_s, "{kind:?}");
    }
}

/// A name with several attributes of a kind, as Active Directory's authorities have it, is kept to
/// the last bit. rcgen makes none.
#[test]
fn the_name_of_the_authority_is_kept_to_the_last_bit() {
    let folder = tempfile::tempdir().expect("a directory");
    let (certificate, key) = (folder.path().join("ca.pem"), folder.path().join("ca.key"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-utf8"])
        .args(["-subj", "/DC=test/DC=example/OU=one/OU=two/CN=\u{dc}ber+UID=7", "-multivalue-rdn"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output();
    let made = made.is_ok_and(|made| made.status.success());
    let read = |path| std::fs::read_to_string(path).expect("a file");
    let text = made.then(|| read(&certificate) + &read(&key));
    let Some(text) = text else { return eprintln!("there is no openssl: nothing is tested") };
    use rustls::pki_types::pem::PemObject;
    let root = CertificateDer::from_pem_slice(text.as_bytes()).expect("a certificate");
    let authority = of_text(text).expect("an authority");
    let chain = chain(&authority, &LeafWish { names: &["a.test"], ..LeafWish::default() });
    assert_eq!(parse(&chain[0]).issuer().as_raw(), parse(&root).subject().as_raw());
    let now_s = UnixTime::now().as_secs() as i64;
    let Kind::Makes(maker) = &*authority.kind else { panic!("it makes none") };
    assert!(maker.trusted.ends_s > now_s);
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let draft = Draft::of(&wish, &maker.trusted, now_s).expect("contents");
    let own = write::certificate(&draft, &maker.leaf_key, Some(&maker.trusted)).expect("made").0;
    assert!(takes(&root, &[own], "a.test", now_s + 60));
}

#[test]
fn files_that_cannot_sign_are_told_in_one_line() {
    let key = KeyPair::generate().expect("a key");
    let other = KeyPair::generate().expect("a key").serialize_pem();
    let pem = |change: &dyn Fn(&mut CertificateParams)| {
        let mut wish = authority_wish();
        change(&mut wish);
        wish.self_signed(&key).expect("a certificate").pem()
    };
    let own = key.serialize_pem();
    for (text, words) in [
        (pem(&|wish| wish.is_ca = IsCa::NoCa) + &own, "not the certificate of an authority"),
        (pem(&|wish| wish.is_ca = IsCa::ExplicitNoCa) + &own, "`CA:TRUE`"),
        (
            pem(&|wish| wish.key_usages = vec![KeyUsagePurpose::CrlSign]) + &own,
            "its key may not sign certificates",
        ),
        (pem(&|_| {}) + &other, "does not belong to the certificate"),
        (pem(&|_| {}), "has no private key"),
        (own.clone(), "has no certificate"),
        ("nothing".to_owned(), "has no certificate"),
    ] {
        let error = of_text(text).expect_err("it cannot sign");
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    assert!(of_text(pem(&|wish| wish.key_usages.clear()) + &own).is_ok());
    let missing = BumpAuthority::new(&port(), &InMemory(Vec::new())).expect_err("no file");
    assert_eq!(missing.to_string(), "ca cannot be read: No such file");
    // Ciphers that clients could not verify its keys with.
    let ciphers = Some(vec![Cipher::RsaAes128]);
    let settings = TlsSettings { ciphers, ..TlsSettings::default() };
    let files = InMemory(vec![("ca", pem(&|_| {}) + &own)]);
    let error = BumpAuthority::new(&BumpPort { settings, ..port() }, &files).expect_err("RSA");
    assert!(error.to_string().contains("ECDHE-ECDSA-"), "{error}");
}

#[test]
fn a_port_may_have_no_authority_or_one_certificate_for_all() {
    let none = BumpPort { certificate: None, ..port() };
    assert!(BumpAuthority::new(&none, &InMemory(Vec::new())).expect("nothing to read").is_none());
    let own = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let files = InMemory(vec![("ca", own.cert.pem() + &own.signing_key.serialize_pem())]);
    assert!(BumpAuthority::new(&port(), &files).is_err(), "it is no authority");
    let fixed = BumpAuthority::new(&BumpPort { generates: false, ..port() }, &files);
    let fixed = fixed.expect("settings").expect("a certificate");
    let leaf = fixed.leaf(&LeafWish { names: &["b.test"], ..LeafWish::default() }, NOW_S);
    assert!(!leaf.expect("the one of the file").was_made);
    assert_eq!(fixed.ends_s(), None);
}

#[test]
fn certificates_are_found_again() {
    let (authority, _) = authority();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let [first, second] = [(); 2].map(|()| authority.leaf(&wish, NOW_S).expect("a certificate"));
    assert_eq!((first.was_made, second.was_made), (true, false));
    assert!(Arc::ptr_eq(&first.side.config(), &second.side.config()));
    let other = LeafWish { sign: SignAs::Untrusted, ..wish };
    assert!(authority.leaf(&other, NOW_S).expect("a certificate").was_made);
}

#[test]
fn what_is_there_is_found_without_making_it() {
    let (authority, _) = authority();
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    assert!(authority.find(&wish, NOW_S).expect("no fault").is_none());
    let made = authority.leaf(&wish, NOW_S).expect("a certificate").side;
    let found = authority.find(&wish, NOW_S).expect("no fault").expect("it is there");
    assert!(Arc::ptr_eq(&made.config(), &found.config()));
}

#[test]
fn an_authority_goes_on_where_line_and_files_are_the_same() {
    let text = || {
        let key = KeyPair::generate().expect("a key");
        let own = authority_wish().self_signed(&key).expect("a certificate");
        (own.pem(), key.serialize_pem())
    };
    let ((own, key), wish) = (text(), LeafWish { names: &["a.test"], ..LeafWish::default() });
    let files = InMemory(vec![("ca", own.clone() + &key)]);
    let first = BumpAuthority::new(&port(), &files).expect("files").expect("an authority");
    assert!(first.leaf(&wish, NOW_S).expect("a certificate").was_made);
    let goes_on = |port: &BumpPort, files: &InMemory| {
        let after = BumpAuthority::after(Some(&first), port, files);
        let after = after.expect("files").expect("an authority");
        !after.leaf(&wish, NOW_S).expect("a certificate").was_made
    };
    // The line has moved in its file.
    let moved = BumpPort { location: Location { line: 7, ..Location::default() }, ..port() };
    assert!(goes_on(&moved, &files));
    let (other_own, other_key) = text();
    assert!(!goes_on(&port(), &InMemory(vec![("ca", other_own + &other_key)])));
    // The same certificate and key, and another file.
    assert!(!goes_on(&port(), &InMemory(vec![("ca", own + "\n" + &key)])));
    assert!(!goes_on(&BumpPort { leaf_cache_bytes: 7, ..port() }, &files));
    let settings = TlsSettings { resumes: false, ..TlsSettings::default() };
    assert!(!goes_on(&BumpPort { settings, ..port() }, &files));
}

#[test]
fn a_ticket_is_good_for_its_certificate_only() {
    let all = aws_lc_rs::Ticketer::new().expect("tickets");
    let [a, b] = [1, 2].map(|n| LeafTickets::new(Arc::clone(&all), [n; 32]));
    let ticket = a.encrypt(b"session").expect("a ticket");
    assert_eq!(a.decrypt(&ticket).as_deref(), Some(b"session" as &[u8]));
    assert_eq!(b.decrypt(&ticket), None);
    assert_eq!(a.decrypt(b"nothing"), None);
    assert!(a.enabled() && a.lifetime() > 0);
    // The ports without any give none.
    let settings = TlsSettings { resumes: false, ..TlsSettings::default() };
    let key = KeyPair::generate().expect("a key");
    let own = authority_wish().self_signed(&key).expect("a certificate");
    let files = InMemory(vec![("ca", own.pem() + &key.serialize_pem())]);
    let authority = BumpAuthority::new(&BumpPort { settings, ..port() }, &files);
    let authority = authority.expect("settings").expect("an authority");
    let wish = LeafWish { names: &["a.test"], ..LeafWish::default() };
    let config = authority.leaf(&wish, NOW_S).expect("a certificate").side.config();
    assert!(!config.ticketer.enabled() && config.send_tls13_tickets == 0);
}

#[test]
fn an_authority_that_is_made_signs_and_says_how_long() {
    let made = make_authority("Office \u{fc}ber all", 3650, NOW_S).expect("an authority");
    use rustls::pki_types::pem::PemObject;
    let root = CertificateDer::from_pem_slice(made.certificate.as_bytes()).expect("a certificate");
    let own = parse(&root);
    assert_eq!(own.subject().to_string(), "CN=Office \u{fc}ber all");
    assert!(own.is_ca() && own.validity().not_before.timestamp() == NOW_S - DAY_S);
    assert_eq!(own.validity().not_after.timestamp(), NOW_S + 3650 * DAY_S);
    assert_eq!(made.last_day, (2035, 12, 30));
    assert_eq!(made.fingerprint.len(), 32 * 3 - 1);
    let authority = of_text(made.certificate.clone() + &made.key).expect("an authority");
    let chain = chain(&authority, &LeafWish { names: &["a.test"], ..LeafWish::default() });
    assert!(takes(&root, &chain, "a.test", NOW_S));
    // Two of them have nothing in common.
    let other = make_authority("Office \u{fc}ber all", 3650, NOW_S).expect("an authority");
    assert!(other.fingerprint != made.fingerprint && *other.key != *made.key);
    for bad in ["", "a\nb", &"a".repeat(65)] {
        assert!(make_authority(bad, 3650, NOW_S).is_err());
    }
}
