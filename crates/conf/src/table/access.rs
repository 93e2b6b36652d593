//! Access rules and header rules.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Access rules" {
    /// Defines or extends a named list that rules test. Lines with the same name add up; the name
    /// is compared without regard to case. A value `"file"` is replaced by the lines of that file.
    /// Predefined: `all`, `manager`, `localhost`, `to_localhost`, `to_linklocal`, `CONNECT`.
    acl: Vec<AclDef> = Acls(""), "acl NAME TYPE [-i] VALUE|\"FILE\" ...";
    /// Declares a helper program that answers `external` ACLs. It gets a line with the words of
    /// FORMAT for each question, and answers `OK` (the ACL matches) or `ERR`, perhaps with
    /// `user=`, `password=`, `message=`, `tag=`, `log=` and other pairs, which become annotations.
    /// Without an answer, or with `BH`, the rule cannot be evaluated, and the request is refused.
    external_acl_type: Vec<ExternalAclType> = ExternalAclTypes(""),
        "external_acl_type NAME [OPTION ...] FORMAT ... HELPER [ARGUMENT ...]";
    /// How clients log in, for the ACLs `proxy_auth`, `proxy_auth_regex` and `max_user_ip`: with
    /// the schemes `basic`, `digest`, `negotiate` and `ntlm`, offered in the order of their first
    /// lines unless `auth_schemes` says otherwise. `docs/logins.md` has more.
    ///
    /// Basic: `program …/basic_ncsa_auth FILE` names the password file: the
    /// proxy checks it itself, without the program, on threads of its own, and reads it again when
    /// it has changed. Its hashes can be bcrypt, yescrypt, SHA-512, SHA-256 and MD5 crypt, `apr1`,
    /// `{SHA}`, and plain MD5 in hexadecimal; DES is not supported. `program PROGRAM [ARGUMENT …]`
    /// with any other program: it is asked with Squid's protocol, a line with name and password.
    /// What it tells with its result (`group=`, `message=` …) becomes annotations of the request.
    /// Only `OK` lets the client in. `key_extras "FORMAT"` adds to each question.
    /// `children NUMBER` (default 20): its processes, with the options of other helpers; of a
    /// password file most checks at one time, in fact never more than 8.
    /// `realm TEXT` is what clients show to people (default `Squid proxy-caching web server`).
    /// `credentialsttl TIME`: how long a password that was right is not checked again (default 2
    /// hours). `casesensitive on`: names of users have case (by default they are taken in lower
    /// case). `utf8 on`: clients are told that names and passwords are UTF-8, and those in
    /// ISO-8859-1 are converted.
    ///
    /// Digest, with MD5 and `qop=auth`, which a client must use: `program …/digest_file_auth [-c]
    /// FILE` names a file with passwords, or with `-c` hashes, which the proxy reads itself; any
    /// other program is asked for the hash with Squid's protocol. `children` and `realm` as above.
    /// `nonce_max_duration TIME` (30 minutes) and `nonce_max_count NUMBER` (50): how long and how
    /// often a nonce can be used; a secret is looked up again after the same time.
    /// `nonce_strictness on`: the uses come in order (by default some may overtake others).
    /// `check_nonce_count off`: uses are not counted, so that others can repeat requests.
    /// `nonce_garbage_interval TIME` (5 minutes): how often expired nonces are cleared away.
    /// `post_workaround on`: a digest for GET is taken for every method.
    ///
    /// Negotiate (Kerberos) and NTLM log a connection in, not a request: `program PROGRAM
    /// [ARGUMENT …]` leads the handshake with Squid's protocol (`YR` and `KK`), and the user whom
    /// it names is that of the client's connection until the connection ends or brings other
    /// credentials. A process belongs to one client during a handshake: `children` has
    /// `reservation-timeout=` for clients that do not go on. `keep_alive off` closes the connection
    /// behind an answer that first offers the scheme. `key_extras` as above. Their tokens go to no
    /// other server or proxy.
    ///
    /// A client without a login gets 407, on ports with `accel` 401, as
    /// soon as `http_access` comes to an ACL about users, and also where it denies and such an ACL
    /// was the last one that was tested; on ports with `intercept`, where nobody can log in, 403.
    /// After five wrong logins from one address within a minute,
    /// checks for this address take turns, with a pause between them of up to a second. A client
    /// that would wait for more than ten seconds is refused. Passwords are never logged. From the
    /// moment on when clients can log in, the program leaves no core dump.
    auth_param: Authentication = AuthParams(""),
        "auth_param basic|digest|negotiate|ntlm PARAMETER VALUE";
    /// Which schemes of authentication a client is offered that has to log in, and in which order.
    /// The first line whose ACLs all match counts; `ALL` stands for the schemes of all `auth_param`
    /// lines in their order. All of them when no line matches. A client can log in with other
    /// schemes all the same.
    auth_schemes: Vec<OfferedSchemes> = SchemeLists(""), "auth_schemes SCHEME[,SCHEME...] [[!]ACL ...]";
    /// How long a right password that is not used is remembered.
    authenticate_ttl: Duration = Seconds("1 hour"), "authenticate_ttl TIME";
    /// How long an address from which a user came counts for `max_user_ip`.
    authenticate_ip_ttl: Duration = Seconds("1 second"), "authenticate_ip_ttl TIME";
    /// Clients whose X-Forwarded-For is trusted. The field is followed from its last address back,
    /// as long as this list allows the address before. It is asked while a request is being read:
    /// `dst` needs `-n` here.
    follow_x_forwarded_for: Vec<AccessRule> = Rules(""), "follow_x_forwarded_for allow|deny [!]ACL ...";
    /// Whether clients are told which line of the file has refused them: on the built-in error page
    /// and in Proxy-Status. Not on ports with `accel`, `intercept` or `tproxy`, whose clients
    /// are the public. The log has it in any case (`%rule`). `docs/refusals.md` has more.
    explain_refusals: bool = OnOff("on"), "explain_refusals on|off";
    /// Whether `src` ACLs test the address found by `follow_x_forwarded_for`.
    acl_uses_indirect_client: bool = OnOff("on"), "acl_uses_indirect_client on|off";
    /// Whether logs show the address found by `follow_x_forwarded_for`.
    log_uses_indirect_client: bool = OnOff("on"), "log_uses_indirect_client on|off";
    /// Who may connect to ports with `require-proxy-header`, and tell the client's address there.
    /// Nobody when there is no rule. It is asked before there is a request, about the address that
    /// the connection comes from.
    proxy_protocol_access: Vec<AccessRule> = Rules(""), "proxy_protocol_access allow|deny [!]ACL ...";
    /// The requests of `tproxy` ports for which servers see the client's own address. All when
    /// there is no rule.
    spoof_client_ip: Vec<AccessRule> = Rules(""), "spoof_client_ip allow|deny [!]ACL ...";
    /// Whether that is the address found by `follow_x_forwarded_for`.
    tproxy_uses_indirect_client: bool = OnOff("off"), "tproxy_uses_indirect_client on|off";
    /// Who may use the proxy, and for which requests. The first rule whose ACLs all match decides;
    /// if none does, the opposite of the last rule. Without any rule everything is denied.
    http_access: Vec<AccessRule> = Rules(""), "http_access allow|deny [!]ACL ...";
    /// Like `http_access`, checked after it and after `url_rewrite_program`, whose URL it sees.
    /// Everything when there is no rule.
    adapted_http_access | http_access2: Vec<AccessRule> = Rules(""), "adapted_http_access allow|deny [!]ACL ...";
    /// Whether tunnels (CONNECT and Upgrade) are closed by a reconfiguration whose `http_access` or
    /// `adapted_http_access` refuses them, for Upgrade also one whose rules do not permit that any
    /// more: by default they go on until they end by themselves. They are judged as they were
    /// opened, with the address that they lead to. In access.log their `%err_detail` is
    /// `rules_changed`. While rules have no answer (helpers, the DNS) they are asked again for 30
    /// s; then the tunnel is closed too, with `rules_unanswered`. Not in Squid.
    close_refused_tunnels: bool = OnOff("off"), "close_refused_tunnels on|off";
    /// Rules on trial, beside those of `http_access`: they are asked about each request that the
    /// rules in force let in, and refuse none. What they would refuse is counted and logged
    /// (`%reported_rule`). They may wait for the same facts, but for 1 s at most.
    /// `docs/refusals.md` has more. Not in Squid.
    http_access_report_only: Vec<AccessRule> = Rules(""), "http_access_report_only allow|deny [!]ACL ...";
    /// Requests (`allow`) that are let pass although `http_access`, `adapted_http_access`,
    /// `miss_access` or `http_reply_access` refuses them or demands a login: that is only counted
    /// and logged (`%reported_rule`). `report_only allow all` tries a whole file. Such clients can
    /// use the proxy for whatever they like, but for its own pages and PURGE. A rule that has no
    /// answer still refuses. Here only a line with `allow` that applies counts: where none does,
    /// also behind a last line with `deny`, the request stays refused. Not in Squid.
    report_only: Vec<AccessRule> = Rules(""), "report_only allow|deny [!]ACL ...";
    /// Which answers may be passed on. Everything when there is no rule.
    http_reply_access: Vec<AccessRule> = Rules(""), "http_reply_access allow|deny [!]ACL ...";
    /// Who may cause a fetch from a server when the cache has no answer. Everyone when there is no
    /// rule.
    miss_access: Vec<AccessRule> = Rules(""), "miss_access allow|deny [!]ACL ...";
    /// Whether the *name* of a host may lead to an address that is not of the public network: of
    /// loopback, link-local (with the metadata of clouds), private, shared, multicast and reserved
    /// networks, also within IPv6 addresses that stand for one of IPv4, and the addresses of this
    /// machine. Not in Squid, which connects to all of them. Asked for each address that is to be
    /// connected to, with that one alone (`dst`). Of several addresses only those that may be are
    /// connected to; a request without any gets 403.
    ///
    /// Without a line that applies, such an address is refused, unless the rule of `http_access` or
    /// `adapted_http_access` that lets the request in names its destination, or one of
    /// `always_direct allow` or `never_direct deny` does: with a `dstdomain`, `dstdom_regex`, `dst`
    /// or `url_regex` that matches, and would match no name that somebody else can have (one that
    /// names all of `.com` or `.co.uk`, looks for a word anywhere in the name, or for a path, does
    /// not count). An earlier `deny !LIST` that spares only such destinations names them too. Other
    /// kinds of ACLs do not, also not `external` with `%DST`. The first rule that applies counts:
    /// `allow localhost` before one that names the host names nobody.
    ///
    /// Lines are asked for every address that is not public. Without one, these are open: addresses
    /// in URLs, `localhost`, names of the hosts file, and names without a dot that `append_domain`
    /// or `dns_defnames` completes, for clients that asked for a proxy; on ports with `accel` only
    /// `defaultsite`, at its port; on intercepted connections names of the hosts file, and the
    /// address that the client connected to, if it is of a private network and not this machine's.
    /// `cache_peer` is never judged. ACLs about users know a client whose login was checked before;
    /// for another one such a line refuses. `allow all` opens it for all names.
    /// `docs/refusals.md` has more.
    private_destinations: Vec<AccessRule> = Rules(""), "private_destinations allow|deny [!]ACL ...";
    /// Which requests may be answered from the cache and stored. All cachable ones when there is no
    /// rule.
    cache | no_cache: Vec<AccessRule> = Rules(""), "cache allow|deny [!]ACL ...";
    /// Which stored answers may be used, asked when one was found, in memory or on disk. What is
    /// denied is fetched as if it were not stored; it stays stored. Where the list has no answer,
    /// what is stored is not used.
    send_hit: Vec<AccessRule> = Rules(""), "send_hit allow|deny [!]ACL ...";
    /// Which answers may be stored, asked when their heads have arrived. Where the list has no
    /// answer, nothing is stored.
    store_miss: Vec<AccessRule> = Rules(""), "store_miss allow|deny [!]ACL ...";
    /// Open connections from one client's address, over all ports, above which it gets no other:
    /// as in Squid a new one is not counted, so there can be one more. -1 is no limit. Those above
    /// it are closed before they are read.
    client_ip_max_connections: Option<u32> = Limit("-1"), "client_ip_max_connections NUMBER|-1";
    /// How much of the proxy each client may use. The first line whose ACLs all match holds for a
    /// request that `http_access` has let in; `none` is a line without limits, and so is none at
    /// all. Not in Squid. A request over budget gets 429 with Retry-After.
    ///
    /// `requests=NUMBER/PERIOD` and at most `burst=NUMBER` at once (by default NUMBER);
    /// `bytes=SIZE/PERIOD`, sent to and received from the client as bodies and heads of answers,
    /// bodies of requests and in tunnels; `tunnels=NUMBER` that are open at one time, by CONNECT or
    /// Upgrade. A period is `s`, `min`, `hour` or `day`; what is used comes back evenly, not at the
    /// end of a period. An answer or a tunnel that uses the budget up is cut off, and an upload is
    /// refused while it runs; an answer from memory, or one whose end it is, is sent whole. What is
    /// too much is owed. Bytes of an answer from memory are taken when it has been sent, so that
    /// several at one time may exceed the budget together. `key=user` adds up the
    /// use of a user (from `proxy_auth`, or whom a helper of `external_acl_type` names), and of a
    /// client without one by its address; `key=address`, the default, that of an address. A network
    /// is one client where a client may have all of it: `prefix=LENGTH` of IPv6, by default 64, and
    /// `prefix4=LENGTH` of IPv4, by default 32. With `follow_x_forwarded_for` it is the address
    /// found there.
    /// Pages of the proxy's own do not count. Each line has accounts of its own. They survive a
    /// reconfiguration as long as the line has the same words, and no restart. `docs/refusals.md`
    /// has more.
    client_budget: Vec<BudgetRule> = Budgets(""), "client_budget none|LIMIT=VALUE ... [[!]ACL ...]";
    /// Requests that never go through a peer.
    always_direct: Vec<AccessRule> = Rules(""), "always_direct allow|deny [!]ACL ...";
    /// Requests that may only go through a peer.
    never_direct: Vec<AccessRule> = Rules(""), "never_direct allow|deny [!]ACL ...";
    /// Largest body of an answer. The first line whose ACLs all match decides; `none` and 0 are no
    /// limit. An answer that announces more is refused with 403; one that turns out to be longer is
    /// cut off.
    reply_body_max_size: Vec<SizeRule> = SizeRules(""), "reply_body_max_size SIZE|none [[!]ACL ...]";
    /// Protocols that a client may switch to with Upgrade: those of its list that may pass are sent
    /// on, and a 101 must name one of them, for WebSocket with the right `Sec-WebSocket-Accept`;
    /// otherwise it is a 502. The first rule for a protocol whose ACLs all match decides, and
    /// without one it does not pass. Without any rules only `websocket` may pass (nothing in
    /// Squid), on ports for a proxy's clients only where `http_access` lets them open a tunnel to
    /// the same host and port with CONNECT, so that `deny CONNECT !SSL_ports` holds for both.
    http_upgrade_request_protocols: Vec<UpgradeRule> = Upgrades(""),
        "http_upgrade_request_protocols PROTOCOL|OTHER allow|deny [!]ACL ...";
    /// Page or URL for clients that a rule denies, chosen by the ACL that was checked last. The
    /// names of pages are those in the field X-Squid-Error; `NNN` is the status, 2xx, 4xx or 5xx
    /// for a page and 3xx for a URL. Without it a page has 403, and a URL 302, or 307 for methods
    /// other than GET and HEAD. Codes in URLs: `%u`, `%U` and `%s` are the requested URL, `%H` its
    /// host, `%p` its port, `%P` its scheme, `%R` its path (the one value that is not escaped),
    /// `%M` the method, `%i` the client's address, `%A` and `%b` address and port that it
    /// connected to, `%I` the server's address, `%h` this proxy's name, `%w` `cache_mgr`, `%S` the
    /// program, `%t` and `%T` the time as in logs and in HTTP, `%%` a percent sign. `%a` is `-`,
    /// `%e` 0; `%E` and `%D` say that there is no error; `%o`, `%x` and the codes for pages only
    /// are empty.
    deny_info: Vec<DenyInfo> = DenyInfos(""), "deny_info [NNN:]PAGE|[NNN:]URL|TCP_RESET ACL ...";
    /// Header fields removed from (deny) or kept in (allow) requests to servers. `All` means every
    /// field, `Other` unknown ones.
    request_header_access: Vec<HeaderRule> = HeaderRules(""), "request_header_access FIELD allow|deny [!]ACL ...";
    /// Header fields removed from or kept in answers to clients, errors and 1xx included. The rules
    /// are asked for every client, on hits as on misses, and the stored answer stays as the server
    /// sent it. So a client gets only the fields that it may have, and a reconfiguration applies to
    /// stored answers too. Fields that the proxy adds (Age, Via, X-Cache) are included. The fields
    /// without which a body has no length or position are never removed (Content-Length,
    /// Transfer-Encoding, Content-Range, Connection, Upgrade). Trailer fields are removed like
    /// header fields of the same name.
    reply_header_access: Vec<HeaderRule> = HeaderRules(""), "reply_header_access FIELD allow|deny [!]ACL ...";
    /// Text in place of a field that `request_header_access` removed.
    request_header_replace | header_replace: Vec<HeaderReplace> = HeaderReplaces(""),
        "request_header_replace FIELD TEXT";
    /// Text in place of a field that `reply_header_access` removed.
    reply_header_replace: Vec<HeaderReplace> = HeaderReplaces(""), "reply_header_replace FIELD TEXT";
    /// Fields added to requests to servers.
    request_header_add: Vec<HeaderAdd> = HeaderAdds(""), "request_header_add FIELD VALUE [[!]ACL ...]";
    /// Fields added to answers to clients.
    reply_header_add: Vec<HeaderAdd> = HeaderAdds(""), "reply_header_add FIELD VALUE [[!]ACL ...]";
    /// Annotates transactions at their end, for `access_log` and its `%note`. Of the lines with one
    /// name, the first whose ACLs all match counts. A value in quotes may have `logformat` codes.
    /// For annotations that other rules see, use the ACL types `annotate_transaction` and
    /// `annotate_client`.
    note: Vec<NoteRule> = NoteRules(""), "note NAME VALUE [[!]ACL ...]";
    /// Pages of the manager, by name or `all`, that need no password (`none`) or that are disabled
    /// (`disable`). Passwords are not supported yet: a page with a password is shown to nobody. The
    /// first line that names a page counts; a page without a line is shown to all clients that
    /// `http_access` allows.
    cachemgr_passwd: Vec<ManagerPassword> = ManagerPasswords(""), "cachemgr_passwd PASSWORD|none|disable PAGE ...";
    /// Filters that the file configures, that are not implemented, and that may be left out: the
    /// messages that they would stop pass. Without it such a file is refused. Not in Squid.
    run_without: Vec<MissingFilter> = MissingFilters(""), "run_without adaptation|ssl_bump|sslcrtvalidator_program ...";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Access rules":
    Ignored("what has expired counts no more at once, and leaves its place to others") {
        "authenticate_cache_garbage_interval", "authenticate_cache_garbage_interval TIME", "How often forgotten users are cleared away.";
    }
    Ignored("chunked and counted bodies are always framed exactly") {
        "broken_posts", "broken_posts allow|deny [!]ACL ...", "Which requests get an extra CRLF after the body.";
    }
    Ignored("a client that expects 100-continue gets the server's answer to that") {
        "force_request_body_continuation", "force_request_body_continuation allow|deny [!]ACL ...", "Which clients are told to continue without asking the server.";
    }
    Ignored("a request that cannot be repeated always gets a new connection when the pooled one fails before it was sent") {
        "server_pconn_for_nonretriable", "server_pconn_for_nonretriable allow|deny [!]ACL ...", "Which requests that cannot be repeated may use pooled connections.";
    }
};
