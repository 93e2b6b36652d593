//! Error pages.

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Error pages" {
    /// Directory of templates: files with the names of pages, as in the field X-Squid-Error, which
    /// take the places of the built-in pages, for all clients. Squid's own templates can be used.
    /// They are read with the configuration. A page without a file is the built-in one, and a file
    /// that cannot be read, is empty or has more than 256 KB is a warning.
    ///
    /// Codes in templates: `%U` is the requested URL without its query (with it if
    /// `strip_query_terms` is off), `%u` with it, `%H` its host, `%p` its port, `%P` its scheme,
    /// `%M` the method, `%R` the request's head without credentials, `%i` the client's address,
    /// `%A` and `%b` address and port that it connected to, `%a` the user, `%I` the server's
    /// address, `%c` the name of the page, `%E` and `%z` the reason as this program words it, `%e`
    /// 0, `%h` this proxy's name, `%s` the program, `%w` `cache_mgr`, `%W` see `email_err_data`,
    /// `%l` the style sheet, `%L` `err_html_text`, `%o` the message of a helper of
    /// `external_acl_type`, `%O` the same as HTML, `%S` the usual end of a page, `%t` and `%T` the
    /// time, `%%` a percent sign, and `@Squid{%code}` a code of `logformat`. Of codes about FTP and
    /// TLS is said that there is nothing. Each value is escaped, but for `%l`, `%L` and `%O`, which
    /// are the administrator's own.
    ///
    /// Without this directive, and where Squid's pages are in `/usr/share/squid/errors` (Debian:
    /// `squid-langpack`), a browser gets the page in the first language of its Accept-Language that
    /// is there. English is the built-in page, and programs get plain text.
    error_directory: Option<PageDirectory> = Directory(""), "error_directory PATH";
    /// Language of pages for browsers that ask for none that is in `/usr/share/squid/errors`: the
    /// name of a folder there. Without it the built-in pages, which are in English.
    error_default_language: PageLanguages = Language(""), "error_default_language LANGUAGE";
    /// Style sheet that `%l` in templates stands for, or `none`. Without it
    /// `/etc/squid/errorpage.css`, if it is there.
    err_page_stylesheet: StyleSheet = Style(""), "err_page_stylesheet PATH|none";
    /// HTML that `%L` in templates stands for.
    err_html_text: Option<String> = RestOfLine(""), "err_html_text HTML";
    /// Whether the link to the administrator in templates (`%W`) carries the page, the time, the
    /// client's address, the reason, and the request's head without credentials.
    email_err_data: bool = OnOff("off"), "email_err_data on|off";
        }] }
    };
}
pub(super) use working;
