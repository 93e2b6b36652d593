//! The `%` codes of `logformat`, from one table.

macro_rules! codes {
    ($($name:literal => $variant:ident, $doc:literal;)+) => {
        /// What a `%` code stands for.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub(super) enum Code { $(#[doc = $doc] $variant,)+ }

        /// Names and codes. A name may begin with another one: the longest that fits counts.
        pub(super) const CODES: &[(&str, Code)] = &[$(($name, Code::$variant),)+];
    };
}

codes! {
    "%" => Percent, "A percent sign.";
    ">a" => ClientIp, "Address of the client.";
    ">A" => ClientName, "Name of the client; its address, since names are not looked up for the log.";
    ">p" => ClientPort, "Port of the client.";
    ">la" => LocalIp, "Address of ours that the client connected to.";
    ">lp" => LocalPort, "Port of ours that the client connected to.";
    "la" => ListenIp, "Same as >la.";
    "lp" => ListenPort, "Same as >lp.";
    "<a" => PeerIp, "Address of the server, or name of the peer.";
    "<A" => PeerName, "Name of the server.";
    "<p" => PeerPort, "Port of the server.";
    "ts" => EndedSecs, "Seconds since the epoch.";
    "tu" => EndedMillis, "Milliseconds of that second.";
    "tS" => StartedSecs, "When it began: seconds since the epoch and milliseconds.";
    "tl" => LocalTime, "Local time, in a strftime format.";
    "tg" => GmtTime, "UTC, in a strftime format.";
    "tr" => ElapsedMs, "How long it took, in ms.";
    "dt" => DnsMs, "Time for looking up names, in ms.";
    "<pt" => PeerMs, "Time the server took, in ms.";
    "<tt" => ServerMs, "Time all servers took, in ms.";
    ">h" => RequestField, "A field of the request, or all of them.";
    "<h" => ResponseField, "A field of the answer, or all of them.";
    "un" => User, "User name.";
    "ul" => LoginUser, "User name by authentication.";
    "ui" => IdentUser, "User name by ident: never known.";
    ">Hs" => Status, "Status sent to the client.";
    "<Hs" => ServerStatus, "Status the server sent.";
    "Hs" => OldStatus, "Old name of >Hs.";
    "Ss" => ResultName, "Result code.";
    "Sh" => HierarchyName, "Hierarchy code.";
    "mt" => MediaType, "Media type of the answer.";
    "rm" => Method, "Method.";
    ">rm" => ClientMethod, "Method as received.";
    "ru" => Url, "URL.";
    ">ru" => ClientUrl, "URL as received.";
    "rp" => Path, "Path and query of the URL.";
    ">rp" => ClientPath, "Path and query as received.";
    ">rs" => Scheme, "Scheme of the URL.";
    ">rd" => Domain, "Host of the URL.";
    ">rP" => UrlPort, "Port of the URL.";
    "rv" => RequestVersion, "HTTP version of the request.";
    ">rv" => ClientVersion, "HTTP version as received.";
    "<st" => BytesOut, "Bytes sent to the client.";
    ">st" => BytesIn, "Bytes received from the client.";
    "st" => BytesBoth, "Bytes received and sent.";
    "<sh" => HeadBytesOut, "Bytes of the head sent to the client.";
    "err_code" => ErrorName, "Name of the error page.";
    "err_detail" => ErrorDetail, "More about the error: nothing, so far.";
}

/// Codes that Squid knows and we do not: for a better message.
pub(super) const UNSUPPORTED: &[&str] = &[
    ">eui",
    "<la",
    "<lp",
    "sn",
    "note",
    "et",
    "ea",
    "ue",
    "us",
    "uc",
    "credentials",
    "master_xaction",
    "ssl::",
    "icap::",
    "adapt::",
    "http::",
    "tls",
    "proxy_protocol::",
    "transport::",
    "busy_time",
    "request_attempts",
    "<rs",
    "<rd",
    "<rP",
    "<rp",
    "<ru",
    "<rm",
    "<rv",
    ">sh",
    "<sH",
    "nfmark",
    ">qos",
    "<qos",
    "rd",
    "rP",
    "rs",
    "byte{",
    ">nfmark",
    "<nfmark",
    "CREDENTIALS",
    "EXT_LOG",
    "EXT_TAG",
    "EXT_USER",
    "ru_org",
    "loaded",
];

/// The code that `text` begins with, and the rest of the text.
pub(super) fn longest(text: &str) -> Option<(Code, &str)> {
    let (name, code) =
        CODES.iter().filter(|(name, _)| text.starts_with(name)).max_by_key(|(name, _)| name.len())?;
    Some((*code, &text[name.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_counts() {
        assert_eq!(longest("<st x"), Some((Code::BytesOut, " x")));
        assert_eq!(longest("st"), Some((Code::BytesBoth, "")));
        assert_eq!(longest(">la"), Some((Code::LocalIp, "")));
        assert_eq!(longest("zz"), None);
    }

    #[test]
    fn no_code_is_both_supported_and_not() {
        assert!(UNSUPPORTED.iter().all(|name| CODES.iter().all(|(known, _)| known != name)));
    }
}
