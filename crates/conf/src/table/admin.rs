//! Identity, processes and administration.

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Identity and administration" {
    /// Name of this proxy in Via, error pages and Cache-Status; the machine's name when not set.
    visible_hostname: Option<String> = OptText("none"), "visible_hostname NAME";
    /// Name for loop detection when several proxies share a visible name.
    unique_hostname: Option<String> = OptText("none"), "unique_hostname NAME";
    /// Other names of this proxy.
    hostname_aliases: Vec<String> = Words(""), "hostname_aliases NAME ...";
    /// Address of the administrator, shown on error pages.
    cache_mgr: String = Text("webmaster"), "cache_mgr ADDRESS";
    /// Leave version numbers out of answers.
    httpd_suppress_version_string: bool = OnOff("off"), "httpd_suppress_version_string on|off";
    /// Whether Via is added to requests and answers, as HTTP demands.
    via: bool = OnOff("on"), "via on|off";
    /// The contents of X-Forwarded-For for servers.
    forwarded_for: ForwardedFor = ForwardedForKind("on"), "forwarded_for on|off|transparent|truncate|delete";
    /// User to become when started as root.
    cache_effective_user: Option<String> = OptText("nobody"), "cache_effective_user NAME";
    /// Group to become when started as root; the user's own group when not set.
    cache_effective_group: Option<String> = OptText("none"), "cache_effective_group NAME";
    /// File for the process number, used by `-k`; `none` for none.
    pid_filename: Option<String> = OptText("/run/humboldt.pid"), "pid_filename PATH|none";
    /// Directory that relative paths of logs are below: Squid's working directory. Core dumps
    /// follow the system's settings.
    coredump_dir: Option<String> = OptText("none"), "coredump_dir PATH|none";
    /// Threads that serve requests; 0 is one for each processor. They share one cache.
    workers: u32 = Count("0"), "workers NUMBER";
    /// Whether values of the following lines may be quoted, and `parameters("file")` is replaced by
    /// the words of a file. It can be switched on and off within a file.
    configuration_includes_quoted_values: bool = OnOff("off"), "configuration_includes_quoted_values on|off";
        }] }
    };
}
pub(super) use working;
