use std::slice::from_ref;
use std::time::Duration;

use humboldt_conf::TlsOutgoing;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

use super::*;
use crate::error::SetupProblem;
use crate::intermediates::Completing;
use crate::provider::provider;
use crate::testing::InMemory;
use crate::verify::Verifier;

/// 2026-01-01.
const NOW_S: u64 = 1_767_225_600;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority_wish(name: &str) -> CertificateParams {
    let mut wish = CertificateParams::default();
    wish.distinguished_name.push(DnType::CommonName, name);
    wish.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wish.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (wish.not_before, wish.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2030, 1, 1));
    wish
}

fn root(change: impl FnOnce(&mut CertificateParams)) -> Authority {
    let mut wish = authority_wish("Root");
    change(&mut wish);
    Authority::self_signed(wish, KeyPair::generate().expect("a key")).expect("a root")
}

/// An authority of another name.
fn stranger() -> Authority {
    root(|wish| wish.distinguished_name.push(DnType::CommonName, "Stranger"))
}

fn below(root: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Authority {
    let mut wish = authority_wish("Intermediate");
    change(&mut wish);
    Authority::signed_by(wish, KeyPair::generate().expect("a key"), root).expect("an intermediate")
}

fn server_wish() -> CertificateParams {
    let mut wish = CertificateParams::new(["www.a.test".to_owned()]).expect("names");
    wish.distinguished_name.push(DnType::CommonName, "www.a.test");
    (wish.not_before, wish.not_after) = (date_time_ymd(2025, 6, 1), date_time_ymd(2026, 6, 1));
    wish.serial_number = Some(SerialNumber::from(7));
    wish
}

fn server(
    issuer: &Authority,
    change: impl FnOnce(&mut CertificateParams),
) -> CertificateDer<'static> {
    let mut wish = server_wish();
    change(&mut wish);
    let key = KeyPair::generate().expect("a key");
    wish.signed_by(&key, issuer).expect("a certificate").der().clone()
}

fn der(authority: &Authority) -> CertificateDer<'static> {
    authority.der().clone()
}

/// Settings that trust what is in a file.
fn options() -> TlsOutgoing {
    let authorities = vec!["trusted".to_owned()];
    TlsOutgoing { authorities, trusts_system: false, ..TlsOutgoing::default() }
}

fn judged_by(
    options: &TlsOutgoing,
    files: &InMemory,
    chain: &[CertificateDer<'_>],
    name: &str,
) -> Identified {
    let provider = provider(&options.settings);
    let verifier = Verifier::new(options, &provider, files).expect("settings");
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW_S));
    identify(&verifier, options.verification, chain, &name, now)
}

/// The faults of a chain, if this root is trusted.
fn faults(root: &Authority, chain: &[CertificateDer<'_>], name: &str) -> Vec<CertificateFault> {
    let files = InMemory(vec![("trusted", root.pem())]);
    let found = judged_by(&options(), &files, chain, name);
    let names: Vec<_> = found.faults.iter().map(CertificateFault::name).collect();
    assert_eq!(names, found.identity.faults);
    found.faults
}

use CertificateFault::{
    BadSignature, Expired, Invalid, Missing, NotPermitted, NotYetValid, Revoked, SelfSigned,
    UnknownIssuer, UnknownRevocation, WrongName, WrongPurpose,
};

fn wrong_name() -> CertificateFault {
    WrongName(vec!["www.a.test".to_owned()])
}

#[test]
fn a_good_server_has_no_fault_and_is_known_by_its_names() {
    let root = root(|_| {});
    let own = server(&root, |wish| {
        wish.subject_alt_names = vec![
            SanType::DnsName("Www.A.test".try_into().expect("a name")),
            SanType::DnsName("*.b.test".try_into().expect("a name")),
            SanType::IpAddress([192, 0, 2, 1].into()),
            SanType::IpAddress(std::net::Ipv6Addr::LOCALHOST.into()),
        ];
    });
    let files = InMemory(vec![("trusted", root.pem())]);
    for name in ["www.a.test", "x.b.test", "192.0.2.1", "::1"] {
        let found = judged_by(&options(), &files, from_ref(&own), name);
        assert!(found.faults.is_empty(), "{name}: {:?}", found.faults);
        let identity = found.identity;
        assert_eq!(identity.names, ["www.a.test", "*.b.test", "192.0.2.1", "::1"]);
        assert_eq!(&*identity.der, own.as_ref());
        assert_eq!(identity.sha1[..], Sha1::digest(&own)[..]);
        let certificate = identity.certificate.expect("facts");
        assert_eq!(certificate.subject.value("CN"), Some("www.a.test"));
        assert_eq!(certificate.issuer.value("CN"), Some("Root"));
    }
    // The common name counts where the extension names nothing, and only there.
    let only_address = [SanType::IpAddress([192, 0, 2, 1].into())];
    for (alternative, names) in [(&[][..], ["www.a.test"]), (&only_address, ["192.0.2.1"])] {
        let own = server(&root, |wish| wish.subject_alt_names = alternative.to_vec());
        let found = judged_by(&options(), &files, &[own], "192.0.2.1");
        assert_eq!(found.identity.names, names);
    }
}

#[test]
fn each_fault_is_told() {
    let root = root(|_| {});
    let own = server(&root, |_| {});
    assert_eq!(faults(&root, from_ref(&own), "www.b.test"), [wrong_name()]);
    assert_eq!(faults(&root, &[], "www.a.test"), [Missing]);
    let old = server(&root, |wish| wish.not_after = date_time_ymd(2025, 12, 31));
    assert_eq!(faults(&root, &[old], "www.a.test"), [Expired]);
    let new = server(&root, |wish| wish.not_before = date_time_ymd(2026, 1, 2));
    assert_eq!(faults(&root, &[new], "www.a.test"), [NotYetValid]);
    assert_eq!(faults(&stranger(), from_ref(&own), "www.a.test"), [UnknownIssuer]);
    // An authority of that name, with another key; and a signature that is no more one.
    assert_eq!(
        faults(&super::tests::root(|_| {}), from_ref(&own), "www.a.test"),
        [BadSignature, UnknownIssuer]
    );
    let mut forged = own.to_vec();
    *forged.last_mut().expect("a byte") ^= 1;
    let forged = faults(&root, &[forged.into()], "www.a.test");
    assert_eq!(forged, [BadSignature, UnknownIssuer]);
    let own = server_wish().self_signed(&KeyPair::generate().expect("a key"));
    let own = own.expect("a certificate").der().clone();
    let own_bytes = own.to_vec();
    assert_eq!(faults(&root, &[own], "www.a.test"), [SelfSigned]);
    let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own = server(&root, |wish| wish.extended_key_usages = purposes);
    assert_eq!(faults(&root, &[own], "www.a.test"), [WrongPurpose, UnknownIssuer]);
    assert_eq!(
        faults(&root, &[CertificateDer::from(&b"no DER"[..])], "www.a.test"),
        [Invalid, UnknownIssuer, WrongName(vec![])]
    );
    // One that only says that it is signed by itself.
    let mut forged = own_bytes;
    *forged.last_mut().expect("a byte") ^= 1;
    assert_eq!(faults(&root, &[forged.into()], "www.a.test"), [UnknownIssuer]);
}

#[test]
fn names_that_an_authority_may_not_sign_for_are_refused() {
    let root = root(|_| {});
    let permitted = NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("b.test".to_owned())],
        excluded_subtrees: Vec::new(),
    };
    let small = below(&root, |wish| wish.name_constraints = Some(permitted));
    let own = server(&small, |_| {});
    assert_eq!(faults(&root, &[own, der(&small)], "www.a.test"), [NotPermitted, UnknownIssuer]);
}

#[test]
fn one_fault_does_not_hide_another_one() {
    let (root, stranger) = (root(|_| {}), stranger());
    let expired = |wish: &mut CertificateParams| wish.not_after = date_time_ymd(2025, 12, 31);
    let own = server(&root, expired);
    assert_eq!(faults(&root, &[own], "www.b.test"), [Expired, wrong_name()]);
    let own = server(&stranger, expired);
    assert_eq!(faults(&root, &[own], "www.b.test"), [UnknownIssuer, Expired, wrong_name()]);
    let mut wish = server_wish();
    wish.not_before = date_time_ymd(2026, 1, 2);
    let own = wish.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
    let all = [SelfSigned, NotYetValid, wrong_name()];
    assert_eq!(faults(&root, &[own.der().clone()], "www.b.test"), all);
    let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own = server(&root, |wish| {
        expired(wish);
        wish.extended_key_usages = purposes;
    });
    assert_eq!(faults(&root, &[own], "www.a.test"), [WrongPurpose, UnknownIssuer, Expired]);
}

/// Somebody who forgives certificates whose time is over must not get those of a stranger, who can
/// give any of his certificates any time.
#[test]
fn an_authority_out_of_its_time_hides_nothing_behind_it() {
    let (root, stranger) = (root(|_| {}), stranger());
    let over = |wish: &mut CertificateParams| wish.not_after = date_time_ymd(2025, 12, 1);
    let (middle, strange) = (below(&root, over), below(&stranger, over));
    let chain = [server(&middle, |_| {}), der(&middle)];
    assert_eq!(faults(&root, &chain, "www.a.test"), [Expired]);
    assert_eq!(faults(&root, &chain, "www.b.test"), [Expired, wrong_name()]);
    let chain = [server(&strange, |_| {}), der(&strange)];
    let found = faults(&root, &chain, "www.a.test");
    assert!(found.contains(&UnknownIssuer) && found.contains(&Expired), "{found:?}");
    // Certificates that were never valid together.
    let new = below(&root, |wish| wish.not_before = date_time_ymd(2025, 12, 1));
    let own = server(&new, |wish| wish.not_after = date_time_ymd(2025, 11, 1));
    let found = faults(&root, &[own, der(&new)], "www.a.test");
    assert!(found.contains(&UnknownIssuer) && found.contains(&Expired), "{found:?}");
    // And one whose own time never was.
    let never = server(&stranger, |wish| {
        wish.not_before = date_time_ymd(2026, 3, 1);
        wish.not_after = date_time_ymd(2025, 3, 1);
    });
    let found = faults(&root, &[never], "www.a.test");
    assert!(found.contains(&UnknownIssuer), "{found:?}");
}

#[test]
fn revocations_are_looked_up_also_for_certificates_out_of_their_time() {
    let root = root(|_| {});
    let list = |ends: i32| {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(7),
            revocation_time: date_time_ymd(2025, 12, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 12, 1),
            next_update: date_time_ymd(ends, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&root).expect("a list").pem().expect("text")
    };
    let options = TlsOutgoing { revocations: vec!["list".to_owned()], ..options() };
    let judge = |list: String, own: CertificateDer<'static>| {
        let files = InMemory(vec![("trusted", root.pem()), ("list", list)]);
        judged_by(&options, &files, &[own], "www.a.test").faults
    };
    assert_eq!(judge(list(2027), server(&root, |_| {})), [Revoked]);
    let other = server(&root, |wish| wish.serial_number = Some(SerialNumber::from(8)));
    assert_eq!(judge(list(2027), other.clone()), []);
    assert_eq!(judge(list(2025), other), [UnknownRevocation]);
    let expired = |wish: &mut CertificateParams| wish.not_after = date_time_ymd(2025, 12, 31);
    assert_eq!(judge(list(2027), server(&root, expired)), [Revoked, Expired]);
    // A list is of today, whenever the certificate was valid or will be.
    let with = |begins: i32, ends: i32| {
        server(&root, |wish| {
            wish.serial_number = Some(SerialNumber::from(8));
            wish.not_before = date_time_ymd(begins, 1, 1);
            wish.not_after = date_time_ymd(ends, 12, 31);
        })
    };
    assert_eq!(judge(list(2027), with(2028, 2029)), [NotYetValid]);
    assert_eq!(judge(list(2027), with(2024, 2024)), [Expired]);
    assert_eq!(judge(list(2025), with(2024, 2024)), [UnknownRevocation, Expired]);
}

#[test]
fn settings_that_verify_less_find_fewer_faults() {
    let root = root(|_| {});
    let files = InMemory(vec![("trusted", root.pem())]);
    let own = server(&root, |wish| wish.not_after = date_time_ymd(2025, 12, 31));
    for (verification, faults) in [
        (ServerVerification::Full, vec![Expired, wrong_name()]),
        (ServerVerification::ChainOnly, vec![Expired]),
        (ServerVerification::None, vec![]),
    ] {
        let options = TlsOutgoing { verification, ..options() };
        let found = judged_by(&options, &files, from_ref(&own), "www.b.test");
        assert_eq!(found.faults, faults);
        assert_eq!(found.identity.names, ["www.a.test"]);
    }
}

/// A server's own certificate in `cafile=` is trusted as it is.
#[test]
fn certificates_that_are_trusted_as_they_are_have_no_fault() {
    let key = KeyPair::generate().expect("a key");
    let pem = |wish: CertificateParams| {
        let own = wish.self_signed(&key).expect("a certificate");
        (own.pem(), own.der().clone())
    };
    let (text, own) = pem(server_wish());
    let files = InMemory(vec![("trusted", text)]);
    let found = |name| judged_by(&options(), &files, from_ref(&own), name).faults;
    assert_eq!(found("www.a.test"), []);
    assert_eq!(found("www.b.test"), [wrong_name()]);
    let mut wish = server_wish();
    wish.not_after = date_time_ymd(2025, 12, 31);
    let (text, own) = pem(wish);
    let files = InMemory(vec![("trusted", text)]);
    assert_eq!(judged_by(&options(), &files, &[own], "www.b.test").faults, [Expired, wrong_name()]);
}

/// Certificates that the server should have sent fill the gaps, and nobody is trusted for them.
#[test]
fn certificates_that_servers_fail_to_send_are_found_in_a_file() {
    let (root, stranger) = (root(|_| {}), stranger());
    let middle = below(&root, |_| {});
    let low =
        |wish: &mut CertificateParams| wish.distinguished_name.push(DnType::CommonName, "Low");
    let low = below(&middle, low);
    let strange = below(&stranger, |_| {});
    let files = InMemory(vec![("trusted", root.pem())]);
    let verifier = Verifier::new(&options(), &provider(&options().settings), &files);
    let known = vec![der(&low), der(&middle), der(&strange), der(&stranger)];
    let verifier = Completing::new(Arc::new(verifier.expect("settings")), known);
    let name = ServerName::try_from("www.a.test").expect("a name");
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW_S));
    let judge = |chain: &[CertificateDer<'_>]| {
        identify(&verifier, ServerVerification::Full, chain, &name, now).faults
    };
    let own = server(&low, |_| {});
    assert_eq!(faults(&root, from_ref(&own), "www.a.test"), [UnknownIssuer]);
    assert_eq!(judge(from_ref(&own)), []);
    assert_eq!(judge(&[own.clone(), der(&low)]), []);
    assert_eq!(judge(&[own.clone(), der(&low), der(&middle)]), []);
    let expired = server(&low, |wish| wish.not_after = date_time_ymd(2025, 12, 31));
    assert_eq!(judge(&[expired]), [Expired]);
    assert_ne!(judge(&[server(&stranger, |_| {})]), []);
    assert_ne!(judge(&[server(&strange, |_| {})]), []);
}

#[test]
fn settings_with_bad_files_are_told() {
    let missing = Verifier::new(&options(), &provider(&options().settings), &InMemory(vec![]));
    assert!(matches!(missing, Err(SetupProblem::Unreadable { .. })));
}

/// Whoever forgives a list that is missing must not get a forged server with it: the lists are
/// looked at before the signature of the server's certificate.
#[test]
fn a_missing_list_hides_nothing_below_it() {
    let root = root(|_| {});
    let middle = below(&root, |_| {});
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 12, 1),
        next_update: date_time_ymd(2027, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(7),
            revocation_time: date_time_ymd(2025, 12, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&middle).expect("a list").pem().expect("text");
    let files = InMemory(vec![("trusted", root.pem()), ("list", list)]);
    let options =
        TlsOutgoing { revocations: vec!["list".to_owned()], checks_whole_chain: true, ..options() };
    let judge = |own: &CertificateDer<'static>| {
        judged_by(&options, &files, &[own.clone(), der(&middle)], "www.a.test").faults
    };
    let good = server(&middle, |wish| wish.serial_number = Some(SerialNumber::from(8)));
    assert_eq!(judge(&good), [UnknownRevocation]);
    let mut forged = good.to_vec();
    *forged.last_mut().expect("a byte") ^= 1;
    let found = judge(&forged.into());
    for fault in [UnknownRevocation, BadSignature, UnknownIssuer] {
        assert!(found.contains(&fault), "{found:?}");
    }
    let found = judge(&server(&middle, |_| {}));
    assert!(found.contains(&Revoked) && found.contains(&UnknownRevocation), "{found:?}");
}

#[test]
fn an_authority_out_of_its_time_shortens_the_time_of_the_chain() {
    let root = root(|_| {});
    let over = |wish: &mut CertificateParams| wish.not_after = date_time_ymd(2025, 12, 1);
    let middle = below(&root, over);
    let files = InMemory(vec![("trusted", root.pem())]);
    let judge = |chain: &[CertificateDer<'_>]| {
        judged_by(&options(), &files, chain, "www.a.test").identity.chain_time_s
    };
    let end = date_time_ymd(2025, 12, 1).unix_timestamp();
    let begin = date_time_ymd(2025, 6, 1).unix_timestamp();
    assert_eq!(judge(&[server(&middle, |_| {}), der(&middle)]), Some((begin, end)));
    let middle = below(&root, |_| {});
    assert_eq!(judge(&[server(&middle, |_| {}), der(&middle)]), None);
    // One that was sent and is not needed says nothing about the chain.
    let (other, chain) = (below(&stranger(), over), server(&root, |_| {}));
    assert_eq!(judge(&[chain.clone(), der(&other)]), None);
    assert_eq!(faults(&root, &[chain, der(&other)], "www.a.test"), []);
    // One that was not sent is seen by the fault alone.
    let (begins, ends) = (begin, begin + (NOW_S as i64 - begin) * 2);
    let times = Times { own: (begins, ends), common: (begins, ends), others: Vec::new() };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW_S));
    assert_eq!(times.of_chain(now, &[Expired]), Some((begins, NOW_S as i64 - 1)));
    assert_eq!(times.of_chain(now, &[WrongName(Vec::new())]), None);
    // Both faults are told where the two are different ones.
    let middle = below(&root, over);
    let own = server(&middle, |wish| wish.not_before = date_time_ymd(2026, 1, 2));
    let found = faults(&root, &[own, der(&middle)], "www.a.test");
    assert!(found.contains(&Expired) && found.contains(&NotYetValid), "{found:?}");
}

#[test]
fn long_chains_are_not_followed() {
    let root = root(|_| {});
    let own = server(&root, |_| {});
    let chain = |length| vec![own.clone(); length];
    assert_eq!(faults(&root, &chain(CHAIN_MAX), "www.a.test"), []);
    let found = faults(&root, &chain(CHAIN_MAX + 1), "www.a.test");
    assert_eq!(found, [Invalid, UnknownIssuer]);
}
