//! The words of rules and of requests. Rules match often, because both have the same few.

pub(crate) const CLIENTS: &[&str] =
    &["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.7", "127.0.0.8", "::1"];

pub(crate) const SOURCES: &[&str] = &[
    "127.0.0.1",
    "127.0.0.2/31",
    "127.0.0.0/30",
    "127.0.0.0/255.255.255.248",
    "127.0.0.3-127.0.0.5",
    "127.0.0.4-127.0.0.7",
    "127.0.0.8/32",
    "::1",
    "::1/128",
    "all",
    "10.0.0.0/8",
    "fe80::/10",
    "192.0.2.0/24",
    "198.51.100.7",
    "2001:db8::/32",
];

pub(crate) const DESTINATIONS: &[&str] = &[
    "192.0.2.1",
    "192.0.2.0/24",
    "192.0.2.2-192.0.2.9",
    "192.0.2.0/255.255.255.254",
    "198.51.100.0/24",
    "2001:db8::1",
    "2001:db8::/32",
    "2001:db8::2-2001:db8::ff",
    "203.0.113.9",
    "ipv6",
    "all",
    "10.0.0.0/8",
    "::1",
];

pub(crate) const NAMES: &[&str] = &[
    "a.example.com",
    "www.example.com",
    "example.com",
    "b.example.org",
    "six.example.net",
    "x.test",
];

pub(crate) const ADDRESSES: &[&str] = &[
    "192.0.2.1",
    "192.0.2.77",
    "198.51.100.1",
    "203.0.113.9",
    "[2001:db8::1]",
    "[2001:db8::ff]",
    "[2001:DB8:0:0::1]",
    "[::ffff:192.0.2.1]",
];

pub(crate) const DOMAINS: &[&str] = &[
    "a.example.com",
    ".example.com",
    "example.com",
    ".example.org",
    "b.example.org",
    ".net",
    ".com",
    "WWW.Example.COM",
    ".x.test",
    "x.test",
    "192.0.2.1",
    ".2.1",
    "192.0.2.77",
    "[2001:db8::1]",
    "example",
    "com",
];

pub(crate) const PATHS: &[&str] = &[
    "",
    "/",
    "/index.html",
    "/ads/banner.gif",
    "/ADS/Banner.GIF",
    "/a%20b",
    "/%61ds/x",
    "/cgi-bin/x?q=1&Ads=2",
    "?q",
    "/secret",
    "/%2e%2e/secret",
    "/A//b",
    "/x;y=1",
    "/%E4%0a",
    "/download/file.exe?name=%41",
    "/a?http://x.test/",
    "/*",
    "/%25ads",
];

pub(crate) const URL_EXPRESSIONS: &[&str] = &[
    "example",
    "EXAMPLE",
    "^http://",
    "^HTTP://A",
    "ads",
    "/ads/",
    "\\.gif$",
    "example\\.(com|org)",
    "[0-9]+",
    "user",
    ":8080/",
    ":80",
    "^http://[^/]*/ads",
    "/$",
    "^$",
    "a.b",
    "%20",
    "%",
    "\\.exe",
    "https?:",
    "secret$",
    "(x|y)=1",
    "[A-Z]{3}",
    ".",
    "a+ds",
    "^[^:]+:443$",
    "192\\.0\\.2",
    "2001:db8",
    "\\[",
    "@",
    "x\\.test\\.?/",
];

pub(crate) const PATH_EXPRESSIONS: &[&str] = &[
    "^/ads",
    "ads",
    "\\.gif$",
    "^/$",
    "^/?$",
    "^$",
    "cgi",
    "\\?",
    "%",
    "[[:space:]]",
    "^/[a-z]",
    "secret",
    "//",
    "^/a",
    "b$",
    "Ads",
    "http",
    ".",
];

pub(crate) const HOST_EXPRESSIONS: &[&str] = &[
    "example",
    "^a\\.",
    "EXAMPLE",
    "\\.com$",
    "com\\.?$",
    "[0-9]$",
    "^[0-9.]+$",
    ":",
    "^\\[",
    "org|net",
    "^none$",
    ".",
    "w{3}",
];

pub(crate) const AGENTS: &[&str] =
    &["Mozilla/5.0 (X11; x86)", "curl/7.88.1", "mozilla", "", "Ärger"];
pub(crate) const AGENT_EXPRESSIONS: &[&str] =
    &["^Mozilla", "curl", "^$", "MOZ", "5\\.0", "[[:digit:]]", ".", "^(curl|wget)/", "x86\\)$"];
pub(crate) const REFERERS: &[&str] =
    &["http://a.example.com/x", "HTTP://X.TEST/", "", "about:blank"];
pub(crate) const REFERER_EXPRESSIONS: &[&str] = &["example", "^http:", "^$", "test", "blank$", "."];
pub(crate) const FRUITS: &[&str] = &["apple", "Pear", "", "apple, pear", "plum"];
pub(crate) const FRUIT_EXPRESSIONS: &[&str] =
    &["^apple$", "pear", "^$", ",", "p", "^apple,.?pear$", "PLUM", "."];
pub(crate) const MEDIA: &[&str] =
    &["application/json", "text/plain;charset=x", "TEXT/HTML", "image/gif"];
pub(crate) const MEDIA_EXPRESSIONS: &[&str] =
    &["^application/", "json", "^text/plain$", "^text/", "html", "^-$", "^$", "gif$", "."];
pub(crate) const LOGINS: &[&str] =
    &["user:pass", "Admin", "user", "%41dmin:x", "user:", ":pass", "a%40b"];
pub(crate) const LOGIN_EXPRESSIONS: &[&str] =
    &["^user", "admin", "Admin", ":", "^$", "pass$", ".", "^[^:]+$", "@"];
pub(crate) const METHODS: &[&str] = &[
    "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "FOO",
    "PROPFIND", "get",
];
pub(crate) const STATUSES: &[&str] = &["200", "200", "404", "500", "302", "204", "299", "403"];
pub(crate) const PORTS: &[&str] = &["80", "8080", "443", "1", "65535"];

/// The kinds about requests. Those behind the bar are asked about answers.
pub(crate) const KINDS: &[&str] = &[
    "src",
    "dst",
    "localip",
    "myportname",
    "port",
    "dstdomain",
    "dstdom_regex",
    "url_regex",
    "urlpath_regex",
    "urllogin",
    "proto",
    "method",
    "browser",
    "referer_regex",
    "req_header",
    "req_mime_type",
    "time",
    "annotate_transaction",
    "note",
    "note",
];
pub(crate) const REPLY_KINDS: &[&str] = &["rep_header", "rep_mime_type", "http_status"];
