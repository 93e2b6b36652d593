//! Helpers that rewrite URLs, and those that say which URLs are one object.

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Rewriting URLs" {
    /// Helper program that rewrites or redirects the URLs of requests that `http_access` allows. It
    /// gets a line with the URL and the words of `url_rewrite_extras`. Its answers are `OK
    /// rewrite-url=URL`, `OK [status=30N] url=URL` (a redirect, 302 by default), `OK` or `ERR`
    /// (unchanged), or in the old form a URL, `30N:URL` or an empty line. All other rules, the
    /// cache and servers see the new URL; in logs it is `%ru`, and `%>ru` is the one that the
    /// client sent. Unlike in Squid, a request never passes without an answer (`BH`, no process, a
    /// URL that is none): it is refused with 502, unless `url_rewrite_bypass` is on.
    url_rewrite_program | redirect_program: Vec<String> = HelperCommand("none"), "url_rewrite_program COMMAND [ARGUMENT ...]";
    /// Number of those processes.
    url_rewrite_children | redirect_children: HelperChildren = Children("20 startup=0 idle=1 concurrency=0"), "url_rewrite_children NUMBER [OPTION ...]";
    /// The old form of `concurrency=` in `url_rewrite_children`. If it is not 0, it comes first.
    url_rewrite_concurrency | redirect_concurrency: u32 = Count("0"), "url_rewrite_concurrency NUMBER";
    /// Whether the field Host follows the rewritten URL.
    url_rewrite_host_header | redirect_rewrites_host_header: bool = OnOff("on"), "url_rewrite_host_header on|off";
    /// Which requests are sent to the helper. All of them when there is no rule. A request about
    /// which the rules have no answer is refused.
    url_rewrite_access | redirector_access: Vec<AccessRule> = Rules(""), "url_rewrite_access allow|deny [!]ACL ...";
    /// Whether requests pass unchanged when the helper has no answer for them. In Squid only an
    /// overload lets them pass.
    url_rewrite_bypass | redirector_bypass: bool = OnOff("off"), "url_rewrite_bypass on|off";
    /// Further words for the helper: a `logformat`.
    url_rewrite_extras: String = EarlyFormat("\"%>a/%>A %un %>rm myip=%la myport=%lp\""), "url_rewrite_extras FORMAT";
    /// Longest time from a question to its answer, and what happens then: `fail` (502), `bypass`
    /// (the request passes unchanged), `retry` (two more times, then 502) or
    /// `use_configured_response` with `response=TEXT`, an answer as the helper could give it.
    /// Without a line it is two minutes, then 502.
    url_rewrite_timeout: RewriteTimeout = RewriteTimeouts(""), "url_rewrite_timeout TIME on_timeout=ACTION [response=TEXT]";
    /// Helper program that says which URLs are one object: `OK store-id=ID`, where ID takes the
    /// place of the URL in the cache, or `OK` or `ERR`. It gets a line with the URL and the words
    /// of `store_id_extras`, also for methods that make stored answers void. Without an answer the
    /// URL is an object of its own; with `store_id_bypass off` the request does not use the cache.
    store_id_program | storeurl_rewrite_program: Vec<String> = HelperCommand("none"), "store_id_program COMMAND [ARGUMENT ...]";
    /// Number of those processes.
    store_id_children | storeurl_rewrite_children: HelperChildren = Children("20 startup=0 idle=1 concurrency=0"), "store_id_children NUMBER [OPTION ...]";
    /// Which requests are sent to the helper. All of them when there is no rule.
    store_id_access | storeurl_rewrite_access: Vec<AccessRule> = Rules(""), "store_id_access allow|deny [!]ACL ...";
    /// Whether a request that the helper has no answer for uses the cache under its own URL.
    store_id_bypass | storeurl_rewrite_bypass: bool = OnOff("on"), "store_id_bypass on|off";
    /// Further words for the helper: a `logformat`.
    store_id_extras: String = EarlyFormat("\"%>a/%>A %un %>rm myip=%la myport=%lp\""), "store_id_extras FORMAT";
    /// Says which URLs are one object, without a helper. The first line whose regular expression
    /// matches the URL decides, and no helper is asked: REPLACEMENT, with `$1` to `$9` for the
    /// parts in parentheses and `$$` for a dollar sign, takes the place of the whole URL in the
    /// cache. Not in Squid.
    store_id_rule: Vec<StoreIdRule> = StoreIdRules(""), "store_id_rule [-i] REGEX REPLACEMENT";
        }] }
    };
}
pub(super) use working;
