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
    assert_eq!(with("%st %>st %>p %>la %<p %dt %5sn|", &record), "- - 50123 - - -     -|");
    record.url = b"[2001:db8::1]:443";
    assert_eq!(with("%>rs %>rd %>rP %rp", &record), "- [2001:db8::1] 443 -");
    record.url = b"https://[2001:db8::1]/";
    assert_eq!(with("%>rd %>rP %rp", &record), "[2001:db8::1] 443 /");
}
