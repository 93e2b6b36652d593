//! ACLs about the fields of messages.

use humboldt_acl::Subject;
use humboldt_http::{RequestHead, ResponseHead, Version};

use crate::{matches, subject};

#[test]
fn kinds_about_messages() {
    let mut request = RequestHead::default();
    for (name, value) in
        [("User-Agent", "curl/8"), ("Referer", "http://r/"), ("X-A", "one"), ("x-a", "two")]
    {
        request.fields.push_named(name.as_bytes(), value.as_bytes());
    }
    request.fields.push_named(b"Content-Type", b"text/xml");
    let mut response = ResponseHead::default();
    response.set_line(Version::Http11, 404, b"");
    response.fields.push_named(b"Content-Type", b"video/mp4");
    response.fields.push_named(b"Server", b"nginx");
    let bare = (RequestHead::default(), ResponseHead::default());
    let untyped = Subject { request: Some(&bare.0), response: Some(&bare.1), ..subject() };
    assert!(matches("req_mime_type ^$", &untyped) && matches("rep_mime_type ^$", &untyped));
    assert!(!matches("req_mime_type ^$", &subject()) && !matches("req_header X-A ^$", &untyped));
    let mut lines = RequestHead::default();
    for value in ["", "", "one", "", "two"] {
        lines.fields.push_named(b"X-A", value.as_bytes());
    }
    let lines = Subject { request: Some(&lines), ..subject() };
    assert!(matches("req_header X-A ^one,.,.two$", &lines));
    let full = Subject { request: Some(&request), response: Some(&response), ..subject() };
    let rows = [
        ("has request", true),
        ("has response", true),
        ("has request response", true),
        ("browser ^curl", true),
        ("browser ^wget", false),
        ("referer_regex ^http://r", true),
        ("req_header X-A ^one, two$", true),
        ("req_header X-A -i TWO", true),
        ("req_header X-B .", false),
        ("req_mime_type ^text/", true),
        ("rep_mime_type ^video/", true),
        ("rep_mime_type ^text/", false),
        ("rep_header Server nginx", true),
        ("rep_header X-A one", false),
        ("http_status 404", true),
        ("http_status 400-403 405-", false),
        ("http_status 400-", true),
    ];
    for (acl, want) in rows {
        let acl = acl.replace("one, two", "one,.two");
        assert_eq!(matches(&acl, &full), want, "{acl}");
        assert!(!matches(&acl, &subject()), "{acl} without messages");
    }
}
