//! Rules about the certificates of clients.

use humboldt_acl::{AclSet, RuleList, Subject};
use humboldt_base::certificate::{Certificate, Name};
use text::{access_rules, definitions};

#[path = "rules/text.rs"]
mod text;

fn name(common: &str) -> Name {
    let attribute = |name: &str, number: &str, value: &str| {
        (name.to_owned(), number.to_owned(), value.to_owned())
    };
    Name {
        line: format!("/O=Tests/CN={common}"),
        attributes: vec![attribute("O", "2.5.4.10", "Tests"), attribute("CN", "2.5.4.3", common)],
    }
}

#[test]
fn certificates_are_known_by_an_attribute_of_whom_they_are_for_or_who_signed_them() {
    let certificate = Certificate { subject: name("alice"), issuer: name("ca") };
    let with = Subject { certificate: Some(&certificate), ..Subject::default() };
    for (acl, expected) in [
        ("user_cert CN alice bob", true),
        ("user_cert CN bob", false),
        ("user_cert CN Alice", false),
        ("user_cert 2.5.4.10 Tests", true),
        ("user_cert DN /O=Tests/CN=alice", true),
        ("user_cert OU alice", false),
        ("user_cert CN", false),
        ("ca_cert CN ca", true),
        ("ca_cert CN alice", false),
    ] {
        let acls = AclSet::compile(&definitions(&format!("acl x {acl}"))).expect("definitions");
        let list = RuleList::compile(&acls, &access_rules("allow x"), false).expect("rules");
        assert_eq!(list.check(&with).is_allowed(), expected, "{acl}");
        assert!(!list.check(&Subject::default()).is_allowed(), "{acl}");
    }
}
