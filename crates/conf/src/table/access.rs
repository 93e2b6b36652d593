//! Access rules and header rules.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Access rules" {
    /// Defines or extends a named list that rules test. Lines with the same name add up; the name
    /// is compared without regard to case. A value `"file"` is replaced by the lines of that file.
    /// Predefined: `all`, `manager`, `localhost`, `to_localhost`, `to_linklocal`, `CONNECT`.
    acl: Vec<AclDef> = Acls(""), "acl NAME TYPE [-i] VALUE|\"FILE\" ...";
    /// Clients whose X-Forwarded-For is trusted. The field is followed from its last address back,
    /// as long as this list allows the address before. It is asked while a request is being read:
    /// `dst` needs `-n` here.
    follow_x_forwarded_for: Vec<AccessRule> = Rules(""), "follow_x_forwarded_for allow|deny [!]ACL ...";
    /// Whether `src` ACLs test the address found by `follow_x_forwarded_for`.
    acl_uses_indirect_client: bool = OnOff("on"), "acl_uses_indirect_client on|off";
    /// Whether logs show the address found by `follow_x_forwarded_for`.
    log_uses_indirect_client: bool = OnOff("on"), "log_uses_indirect_client on|off";
    /// Who may use the proxy, and for which requests. The first rule whose ACLs all match decides;
    /// if none does, the opposite of the last rule. Without any rule everything is denied.
    http_access: Vec<AccessRule> = Rules(""), "http_access allow|deny [!]ACL ...";
    /// Like `http_access`, checked after it. Everything when there is no rule.
    adapted_http_access | http_access2: Vec<AccessRule> = Rules(""), "adapted_http_access allow|deny [!]ACL ...";
    /// Which answers may be passed on. Everything when there is no rule.
    http_reply_access: Vec<AccessRule> = Rules(""), "http_reply_access allow|deny [!]ACL ...";
    /// Who may cause a fetch from a server when the cache has no answer. Everyone when there is no
    /// rule.
    miss_access: Vec<AccessRule> = Rules(""), "miss_access allow|deny [!]ACL ...";
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
    /// Most connections that are open from one client's address, over all ports; -1 is no limit.
    /// Those above it are closed before they are read.
    client_ip_max_connections: Option<u32> = Limit("-1"), "client_ip_max_connections NUMBER|-1";
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
    run_without: Vec<MissingFilter> = MissingFilters(""), "run_without url_rewrite|adaptation|ssl_bump ...";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Access rules":
    Unsupported("authentication is not implemented yet") {
        "auth_param", "auth_param SCHEME PARAMETER VALUE", "Sets up a scheme of authentication and its helper.";
        "authenticate_cache_garbage_interval", "authenticate_cache_garbage_interval TIME", "How often forgotten users are cleared away.";
        "authenticate_ttl", "authenticate_ttl TIME", "How long a user is remembered after the last request.";
        "authenticate_ip_ttl", "authenticate_ip_ttl TIME", "How long a user is tied to an address.";
        "auth_schemes", "auth_schemes SCHEMES [!]ACL ...", "Which schemes of authentication are offered to whom.";
    }
    Unsupported("helpers for access rules are not implemented yet") {
        "external_acl_type", "external_acl_type NAME [OPTION ...] FORMAT HELPER", "Declares a helper program that answers `external` ACLs.";
    }
    Unsupported("the PROXY protocol is not implemented yet") {
        "proxy_protocol_access", "proxy_protocol_access allow|deny [!]ACL ...", "Who may announce a client's address with the PROXY protocol.";
    }
    Unsupported("transparent proxying with the client's address is not implemented") {
        "spoof_client_ip", "spoof_client_ip allow|deny [!]ACL ...", "Which connections to servers carry the client's address.";
        "tproxy_uses_indirect_client", "tproxy_uses_indirect_client on|off", "Whether that address comes from X-Forwarded-For.";
    }
    Ignored("every request is refused with an error page when it is not understood") {
        "on_unsupported_protocol", "on_unsupported_protocol tunnel|respond [!]ACL ...", "The treatment of traffic that is not HTTP on intercepted connections.";
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
