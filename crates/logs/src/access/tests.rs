use std::cell::RefCell;

use humboldt_base::clock::UnixMillis;
use humboldt_base::notes::Notes;
use humboldt_http::{FieldName, Fields, Version};

use super::*;

fn record<'a>() -> AccessRecord<'a> {
    AccessRecord {
        elapsed_ms: 57,
        tag: Tag::Miss.into(),
        status: 200,
        bytes_out: 4242,
        method: b"GET",
        url: b"http://www.example.com:8080/a?b=c",
        version: Some(Version::Http11),
        hierarchy: Hierarchy::Direct,
        peer: Peer::Ip("192.0.2.80".parse().unwrap()),
        content_type: Some(b"text/html; charset=utf-8"),
        ..AccessRecord::new(UnixMillis(1_700_000_000_007), "192.0.2.1:50123".parse().unwrap())
    }
}

fn line(format: &AccessFormat, record: &AccessRecord<'_>, strip: bool) -> String {
    let mut out = Vec::new();
    format.write(&mut out, record, strip);
    assert_eq!(out.pop(), Some(b'\n'));
    String::from_utf8(out).unwrap()
}

fn with(template: &str, record: &AccessRecord<'_>) -> String {
    line(&AccessFormat::Template(LogFormat::compile(template).unwrap()), record, false)
}

#[test]
fn the_native_format() {
    let expected = "1700000000.007     57 192.0.2.1 TCP_MISS/200 4242 GET http://www.example.com:8080/a? \
                    - HIER_DIRECT/192.0.2.80 text/html";
    assert_eq!(line(&AccessFormat::Squid, &record(), true), expected);
    assert!(line(&AccessFormat::Squid, &record(), false).contains("/a?b=c "));
    let bare = AccessRecord::new(UnixMillis(5), "[::1]:1".parse().unwrap());
    assert_eq!(
        line(&AccessFormat::Squid, &bare, true),
        "0.005      0 ::1 NONE_NONE/000 0 - - - HIER_NONE/- -"
    );
}

#[test]
fn the_native_format_written_by_hand_is_the_one_of_the_documentation() {
    let template = "%ts.%03tu %6tr %>a %Ss/%03>Hs %<st %rm %ru %[un %Sh/%<a %mt";
    let mut records = vec![record(), AccessRecord::new(UnixMillis(5), "[::1]:1".parse().unwrap())];
    records.push(AccessRecord { peer: Peer::Name(b"parent-1"), ..record() });
    for record in records {
        assert_eq!(with(template, &record), line(&AccessFormat::Squid, &record, false));
    }
}

#[test]
fn notes_are_joined_by_a_separator_that_can_be_chosen() {
    let mut notes = Notes::NONE;
    for (name, value) in [("team", "red"), ("why", "a b\n"), ("team", "blue")] {
        notes.add(name, value.as_bytes());
    }
    let notes = RefCell::new(notes);
    let noted = AccessRecord { notes: Some(&notes), ..record() };
    let all = "team:%20red%0D%0Awhy:%20a%20b%0A%0D%0Ateam:%20blue%0D%0A";
    for (format, wanted) in [
        ("%{team}note", "red,blue"),
        ("%note{team}", "red,blue"),
        ("%{team:;}note", "red;blue"),
        ("%{why}note|%{Team}note", "a%20b%0A|-"),
        ("%note", all),
    ] {
        assert_eq!(with(format, &noted), wanted, "{format}");
    }
    assert_eq!(with("%note %{team}note", &record()), "- -");
}

#[test]
fn nothing_in_a_request_can_make_a_second_line_or_word() {
    let evil = b"/x\r\n1700000000.007 57 192.0.2.9 TCP_MISS/200\x00\x1b[2J \"\\";
    let mut fields = Fields::new();
    fields.push(FieldName::UserAgent, b"evil agent \"quoted\" \\");
    let record = AccessRecord {
        method: b"GE\nT",
        url: evil,
        peer: Peer::Name(b"p\r\n"),
        content_type: Some(b"a/b\nc"),
        request: Some(&fields),
        ..record()
    };
    let native = line(&AccessFormat::Squid, &record, false);
    assert_eq!(native.split(' ').count(), record_words(), "{native}");
    let everything =
        "%rm %ru %un %<a %mt %{User-Agent}>h %\"ru %[ru %#ru %'ru %>h %rp %>rd %>rs %>rP";
    for text in [native, with(everything, &record)] {
        assert!(text.bytes().all(|byte| byte >= 0x20 && byte != 0x7f), "{text:?}");
    }
    let combined = line(&AccessFormat::predefined("combined").unwrap(), &record, false);
    assert!(combined.contains("\"evil%20agent%20%22quoted%22%20%5C\""), "{combined}");
}

/// Words of a native line, padding included.
fn record_words() -> usize {
    line(&AccessFormat::Squid, &record(), false).split(' ').count()
}

#[test]
fn common_and_combined() {
    let mut fields = Fields::new();
    fields.push(FieldName::Referer, b"http://a/");
    let record = AccessRecord { request: Some(&fields), ..record() };
    let common = line(&AccessFormat::predefined("common").unwrap(), &record, true);
    assert!(common.starts_with("192.0.2.1 - - ["), "{common}");
    let tail = "] \"GET http://www.example.com:8080/a? HTTP/1.1\" 200 4242 TCP_MISS:HIER_DIRECT";
    assert!(common.ends_with(tail), "{common}");
    let combined = AccessFormat::predefined("combined").unwrap();
    assert!(combined.needs_fields());
    assert!(line(&combined, &record, true).contains(" \"http://a/\" \"-\" TCP_MISS:"));
    assert!(AccessFormat::predefined("nonsense").is_none());
    assert!(
        ["squid", "referrer", "useragent"].iter().all(|n| AccessFormat::predefined(n).is_some())
    );
}

#[test]
fn members_of_lists_fields_of_answers_and_quoting_for_shells() {
    let mut fields = Fields::new();
    fields.push_named(b"Cookie", b"a=1; session=x y\"z; b=2");
    fields.push_named(b"Prefer", b"wait=5, return=minimal");
    let head = b"HTTP/1.1 200 OK\r\nServer: one\r\nX-A: 1\r\nx-a: 2, k=v\r\n";
    let record = AccessRecord { request: Some(&fields), response: Some(head), ..record() };
    for (format, wanted) in [
        ("%{Cookie:;session}>h|%'{cookie:;b}>h|%{Cookie:;none}>h", "x%20y%22z|2|-"),
        ("%{Prefer:return}>h %{Prefer:,wait}>ha", "minimal 5"),
        ("%{Server}<h|%{X-A}<h|%{X-A:k}<h|%{Nothing}<h", "one|1,%202,%20k=v|v|-"),
        ("%<h", "Server:%20one%0D%0AX-A:%201%0D%0Ax-a:%202,%20k=v%0D%0A"),
        ("%/{Cookie:;session}>h %/rm", "\"x y\\\"z\" GET"),
        ("%/.3{Cookie:;session}>h %/.4{Cookie:;session}>h", "\"x y\" \"x y\""),
        ("%<rm %<rd %<rP %<rp", "GET www.example.com 8080 /a?b=c"),
        ("%iso_time %sn %master_xaction %dt %>eui", "2023-11-14T22:13:20.007Z 0 0 - -"),
    ] {
        assert_eq!(with(format, &record), wanted, "{format}");
    }
    let (client_name, server_name) = (Some("pc.test"), &b"parent 1"[..]);
    let named = AccessRecord { client_name, server_name, ..record };
    assert_eq!(with("%>A %<A", &named), "pc.test parent%201");
    assert_eq!(with("%>A %<A", &record), "192.0.2.1 -");
    let local = AccessRecord { peer: Peer::None, ..record };
    assert_eq!(with("%<rm %<ru %<rd %<rP", &local), "- - - -");
    let hardware = Some([0, 0x1a, 0x2b, 0x3c, 0x4d, 0xfe]);
    let known = AccessRecord { hardware, dns_ms: Some(3), number: 7, ..record };
    assert_eq!(with("%>eui %dt %sn", &known), "00:1a:2b:3c:4d:fe 3 7");
}

#[test]
fn queries_in_fields_go_with_those_of_urls_and_steps_of_handshakes_are_no_text() {
    let mut fields = Fields::new();
    fields.push(FieldName::Referer, b"http://a.test/x?token=secret");
    let head = b"HTTP/1.1 302 Found\r\nlocation: http://b.test/?code=secret\r\n\
                 WWW-Authenticate: Negotiate c2VjcmV0\r\nProxy-Authenticate: Basic realm=\"r\"\r\n";
    let record = AccessRecord { request: Some(&fields), response: Some(head), ..record() };
    let text = AccessFormat::Template(
        LogFormat::compile(
            "%{Referer}>h %{Location}<h %{www-authenticate}<h %{Proxy-Authenticate}<h %>h %<h",
        )
        .unwrap(),
    );
    let stripped = line(&text, &record, true);
    let start = "http://a.test/x? http://b.test/? Negotiate Basic%20realm=%22r%22 ";
    assert!(stripped.starts_with(start), "{stripped}");
    assert!(!stripped.contains("secret") && !stripped.contains("c2Vj"), "{stripped}");
    let whole = line(&text, &record, false);
    assert!(whole.starts_with("http://a.test/x?token=secret http://b.test/?code=secret "));
    assert!(!whole.contains("c2Vj"), "{whole}");
    let built_in = line(&AccessFormat::predefined("json").unwrap(), &record, true);
    assert!(built_in.contains("\"referer\":\"http://a.test/x?\""), "{built_in}");
}

fn json(fields: &str, record: &AccessRecord<'_>) -> String {
    line(&AccessFormat::Json(JsonFormat::compile(fields).unwrap()), record, false)
}

#[test]
fn a_line_in_json_has_strings_numbers_and_null() {
    let built_in = AccessFormat::predefined("json").unwrap();
    assert!(built_in.needs_fields());
    assert_eq!(
        line(&built_in, &record(), false),
        "{\"time\":\"2023-11-14T22:13:20.007Z\",\"elapsed_ms\":57,\"client_ip\":\"192.0.2.1\",\
         \"client_port\":50123,\"local_ip\":null,\"local_port\":null,\"method\":\"GET\",\
         \"url\":\"http://www.example.com:8080/a?b=c\",\"version\":\"1.1\",\"status\":200,\
         \"result\":\"TCP_MISS\",\"bytes\":4242,\"user\":null,\"hierarchy\":\"HIER_DIRECT\",\
         \"server\":\"192.0.2.80\",\"server_port\":null,\"server_status\":null,\
         \"media_type\":\"text/html\",\"referer\":null,\"user_agent\":null,\"error\":null,\
         \"error_detail\":null,\"rule\":null,\"reported_rule\":null,\"generation\":0}"
    );
    let bare = AccessRecord::new(UnixMillis(5), "[::1]:1".parse().unwrap());
    let fields = "status version media_type url when=%{%F}tg port started_s x=%ui annotations";
    assert_eq!(
        json(fields, &bare),
        "{\"status\":null,\"version\":null,\"media_type\":null,\"url\":null,\
         \"when\":\"1970-01-01\",\"port\":null,\"started_s\":0.005,\"x\":null,\"annotations\":null}"
    );
}

#[test]
fn an_object_whose_names_alone_are_too_long_has_its_first_fields() {
    let fields: Vec<String> = (0..90).map(|n| format!("{}{n}=%rm", "n".repeat(60))).collect();
    let format = AccessFormat::Json(JsonFormat::compile(&fields.join(" ")).unwrap());
    let written = |bytes_max| {
        let mut out = b"before ".to_vec();
        format.write_within(&mut out, &record(), false, bytes_max);
        String::from_utf8(out).unwrap()
    };
    let line = written(1000);
    assert!(line.len() <= 1008 && line.len() > 800, "{line}");
    assert!(line.starts_with("before {\"nnn") && line.ends_with(":\"GET\"}\n"), "{line}");
    assert_eq!(written(50), "before {}\n");
}

#[test]
fn nothing_in_a_request_can_break_a_line_in_json() {
    let all: Vec<u8> = (0..=255).collect();
    let mut fields = Fields::new();
    fields.push(FieldName::UserAgent, b"a\"b\\c\xff\x01");
    fields.push(FieldName::UserAgent, "é\u{9b}1;31m".as_bytes());
    let (error, error_detail) = (Some("ERR_\"X\""), Some("a\nb"));
    let record = AccessRecord {
        url: &all,
        method: b"G\"T",
        user: Some("anna\"\\"),
        ext_log: Some(b"\x00"),
        content_type: Some(b"a/\"b; c"),
        peer: Peer::Name(b"p\r\n"),
        request: Some(&fields),
        rule: Some(("/etc/\"x\".conf", 7)),
        error,
        error_detail,
        ..record()
    };
    assert_eq!(
        json(
            "method user_agent user helper_log media_type server error error_detail rule",
            &record
        ),
        "{\"method\":\"G\\\"T\",\"user_agent\":\"a\\\"b\\\\c\u{fffd} , é\\u009b1;31m\",\
         \"user\":\"anna\\\"\\\\\",\"helper_log\":\"\\u0000\",\"media_type\":\"a/\\\"b\",\
         \"server\":\"p\\r\\n\",\"error\":\"ERR_\\\"X\\\"\",\"error_detail\":\"a\\nb\",\
         \"rule\":\"/etc/\\\"x\\\".conf:7\"}"
    );
    let whole = json("url url2=%ru url3=%>ru a=%>rP b=%rd c=%rp notes=%note h=%>h", &record);
    assert!(whole.bytes().all(|byte| byte >= 0x20 && byte != 0x7f), "{whole:?}");
    for (url, port) in
        [("http://a:080/", "80"), ("http://a:99999/", "null"), ("http://a:8x/", "null")]
    {
        let record = AccessRecord { url: url.as_bytes(), ..record };
        assert_eq!(json("port", &record), format!("{{\"port\":{port}}}"), "{url}");
    }
}

#[test]
fn reported_rules_and_generations() {
    let format = "%reported_rule %generation";
    assert_eq!(with(format, &record()), "- 0");
    let reported = Some(Some(("/etc/a b", 3)));
    let noted = AccessRecord { reported, generation: 2, ..record() };
    assert_eq!(with(format, &noted), "/etc/a%20b:3 2");
    let unanswered = AccessRecord { reported: Some(None), ..record() };
    assert_eq!(json("reported_rule", &unanswered), "{\"reported_rule\":\"unanswered\"}");
}

#[test]
fn a_line_in_json_that_must_be_short_stays_an_object() {
    let url = ["http://a/", &"é\"".repeat(30_000)].concat();
    let record = AccessRecord { url: url.as_bytes(), ..record() };
    let format = AccessFormat::Json(JsonFormat::compile("method url status").unwrap());
    let mut out = b"before".to_vec();
    format.write_within(&mut out, &record, false, 8 << 10);
    let line = String::from_utf8(out).unwrap();
    assert!(line.len() < 8 << 10 && line.len() > 3 << 10, "{}", line.len());
    assert!(line.starts_with("before{\"method\":\"GET\",\"url\":\"http://a/é\\\"é"), "{line}");
    assert!(line.ends_with("…\",\"status\":200}\n"), "{line}");
}

#[test]
fn widths_arguments_and_parts_of_the_url() {
    let mut fields = Fields::new();
    fields.push(FieldName::Via, b"1.1 a");
    fields.push(FieldName::Via, b"1.1 b");
    let (error, error_detail) = (Some("ERR_DNS_FAIL"), Some("no such name"));
    let mut record = AccessRecord { request: Some(&fields), error, error_detail, ..record() };
    assert_eq!(with("[%6tr|%-6tr|%06tr|%.2rm|%%]", &record), "[    57|57    |000057|GE|%]");
    assert_eq!(with("%tS %{%Y}tg %tg{%H:%M}", &record), "1699999999.950 2023 22:13");
    assert_eq!(with("%>rs %>rd %>rP %rp", &record), "http www.example.com 8080 /a?b=c");
    assert_eq!(with("%'{Via}>h|%{X-None}>h|%err_code", &record), "1.1 a, 1.1 b|-|ERR_DNS_FAIL");
    assert_eq!(with("%err_detail %'err_detail", &record), "no%20such%20name no such name");
    assert_eq!(with("%st %>st %>p %>la %<p %dt %5sn|", &record), "- - 50123 - - -     0|");
    record.url = b"[2001:db8::1]:443";
    assert_eq!(with("%>rs %>rd %>rP %rp", &record), "- [2001:db8::1] 443 -");
    record.url = b"https://[2001:db8::1]/";
    assert_eq!(with("%>rd %>rP %rp", &record), "[2001:db8::1] 443 /");
}

#[test]
fn the_interception_of_tls_has_codes() {
    use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ClientHello, ServerIdentity};
    use humboldt_base::certificate::{Certificate, Name};

    let name = |line: &str| Name { line: line.to_owned(), attributes: Vec::new() };
    let hello = ClientHello {
        sni: Some("www.example.com".into()),
        record_version: 0x0301,
        newest_version: 0x0304,
        ..ClientHello::default()
    };
    let server = ServerIdentity {
        certificate: Some(Certificate { subject: name("/CN=a b"), issuer: name("/CN=\"ca\"") }),
        faults: vec!["X509_V_ERR_CERT_HAS_EXPIRED", "SQUID_X509_V_ERR_DOMAIN_MISMATCH"],
        der: (0..60).collect(),
        version: 0x0304,
        cipher: Some("TLS_AES_128_GCM_SHA256"),
        ..ServerIdentity::default()
    };
    let mut facts = BumpFacts {
        step: BumpStep::Three,
        action: Some(BumpAction::Bump),
        hello: Some(hello),
        server: Some(std::rc::Rc::new(server)),
        ..BumpFacts::new("192.0.2.1")
    };
    let all = "%ssl::>sni %ssl::bump_mode %ssl::>received_hello_version \
               %ssl::>received_supported_version %ssl::<cert_subject %ssl::<cert_issuer \
               %ssl::<negotiated_version %ssl::<negotiated_cipher %ssl::<received_hello_version \
               %ssl::<received_supported_version";
    let seen = AccessRecord { bump: Some(&facts), ..record() };
    assert_eq!(
        with(all, &seen),
        "www.example.com bump TLS/1.0 TLS/1.3 /CN=a%20b /CN=%22ca%22 TLS/1.3 \
         TLS_AES_128_GCM_SHA256 TLS/1.2 TLS/1.3"
    );
    assert_eq!(
        with("%ssl::<cert_errors %ssl::<cert_errors{,}", &seen),
        "X509_V_ERR_CERT_HAS_EXPIRED:SQUID_X509_V_ERR_DOMAIN_MISMATCH \
         X509_V_ERR_CERT_HAS_EXPIRED,SQUID_X509_V_ERR_DOMAIN_MISMATCH"
    );
    let pem = with("%ssl::<cert", &seen);
    assert!(pem.starts_with("-----BEGIN%20CERTIFICATE-----%0AAAECAwQF"), "{pem}");
    assert!(pem.ends_with("Njc4OTo7%0A-----END%20CERTIFICATE-----%0A"), "{pem}");
    let fields = "sni bump_mode server_certificate_errors server_certificate_issuer";
    let json = AccessFormat::Json(JsonFormat::compile(fields).unwrap());
    assert_eq!(
        line(&json, &seen, false),
        "{\"sni\":\"www.example.com\",\"bump_mode\":\"bump\",\"server_certificate_errors\":\
         \"X509_V_ERR_CERT_HAS_EXPIRED:SQUID_X509_V_ERR_DOMAIN_MISMATCH\",\
         \"server_certificate_issuer\":\"/CN=\\\"ca\\\"\"}"
    );
    facts.server = None;
    facts.hello = None;
    facts.action = None;
    let early = AccessRecord { bump: Some(&facts), ..record() };
    let codes = format!("{all} %ssl::<cert %ssl::<cert_errors");
    assert_eq!(with(&codes, &early), with(&codes, &record()));
    assert_eq!(with(&codes, &record()), ["-"; 12].join(" "));
}
