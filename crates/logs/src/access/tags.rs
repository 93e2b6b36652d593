//! Result codes and hierarchy codes: Squid's names, from one table each.

macro_rules! names {
    ($(#[$meta:meta])* $enum:ident { $($(#[$attr:meta])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $enum { $($(#[$attr])+ $variant,)+ }

        impl $enum {
            /// All of them, in the order of their declaration.
            pub const ALL: &[$enum] = &[$($enum::$variant,)+];

            /// The name in the log.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)+ }
            }
        }
    };
}

names! {
    /// The result of a request. The name is split as in Squid: a collapsed request has `_CF` after
    /// the first three letters.
    Tag {
        /// No answer was chosen: the request was not understood, or the client left.
        #[default]
        None = "NONE_NONE",
        /// Answered from a cache directory.
        Hit = "TCP_HIT",
        /// Answered from memory.
        MemHit = "TCP_MEM_HIT",
        /// Fetched.
        Miss = "TCP_MISS",
        /// Stale, and the server said it has not changed.
        RefreshUnmodified = "TCP_REFRESH_UNMODIFIED",
        /// Stale, and the server sent a new one.
        RefreshModified = "TCP_REFRESH_MODIFIED",
        /// Stale, the server did not answer, and the old one was sent.
        RefreshFailOld = "TCP_REFRESH_FAIL_OLD",
        /// Stale, the server did not answer, and the client got an error for that reason.
        RefreshFailErr = "TCP_REFRESH_FAIL_ERR",
        /// Stale, and checked again while the old one was sent.
        Refresh = "TCP_REFRESH",
        /// The client asked for a reload.
        ClientRefreshMiss = "TCP_CLIENT_REFRESH_MISS",
        /// A condition on the date was answered from the cache.
        ImsHit = "TCP_IMS_HIT",
        /// A condition on the entity tag was answered from the cache.
        InmHit = "TCP_INM_HIT",
        /// In a cache directory, but it could not be read: fetched.
        SwapfailMiss = "TCP_SWAPFAIL_MISS",
        /// An error answer from the cache.
        NegativeHit = "TCP_NEGATIVE_HIT",
        /// Refused by the access rules.
        Denied = "TCP_DENIED",
        /// The answer was refused by the access rules.
        DeniedReply = "TCP_DENIED_REPLY",
        /// Answered from the cache without a check, being offline.
        OfflineHit = "TCP_OFFLINE_HIT",
        /// Redirected by the proxy.
        Redirect = "TCP_REDIRECT",
        /// A tunnel.
        Tunnel = "TCP_TUNNEL",
        /// Another cache asked with ICP for an object that is here.
        UdpHit = "UDP_HIT",
        /// It is not here.
        UdpMiss = "UDP_MISS",
        /// The cache may not ask.
        UdpDenied = "UDP_DENIED",
        /// The query has no URL that can be used.
        UdpInvalid = "UDP_INVALID",
    }
}

names! {
    /// The way in which the server was chosen.
    Hierarchy {
        /// No server was asked.
        #[default]
        None = "HIER_NONE",
        /// The origin itself.
        Direct = "HIER_DIRECT",
        /// A sibling that said it has the object.
        SiblingHit = "SIBLING_HIT",
        /// A parent that said it has the object.
        ParentHit = "PARENT_HIT",
        /// The parent marked `default`.
        DefaultParent = "DEFAULT_PARENT",
        /// The only parent that is suitable.
        SingleParent = "SINGLE_PARENT",
        /// The first parent that is up.
        FirstupParent = "FIRSTUP_PARENT",
        /// The parent that answered first.
        FirstParentMiss = "FIRST_PARENT_MISS",
        /// The parent nearest to the origin, by the parent's measurement.
        ClosestParentMiss = "CLOSEST_PARENT_MISS",
        /// The parent nearest to the origin, by our measurement.
        ClosestParent = "CLOSEST_PARENT",
        /// The origin is nearer than any parent.
        ClosestDirect = "CLOSEST_DIRECT",
        /// No suitable parent, and not allowed to go direct.
        NoDirectFail = "NO_DIRECT_FAIL",
        /// The origin answered the ping first.
        SourceFastest = "SOURCE_FASTEST",
        /// The next parent in turn.
        RoundrobinParent = "ROUNDROBIN_PARENT",
        /// A parent whose digest has the object.
        CdParentHit = "CD_PARENT_HIT",
        /// A sibling whose digest has the object.
        CdSiblingHit = "CD_SIBLING_HIT",
        /// By the hash of the URL.
        Carp = "CARP",
        /// Any parent, for want of a better one.
        AnyOldParent = "ANY_OLD_PARENT",
        /// By the hash of the user name.
        UserhashParent = "USERHASH_PARENT",
        /// By the hash of the client's address.
        SourcehashParent = "SOURCEHASH_PARENT",
        /// The connection was pinned to this client.
        Pinned = "PINNED",
        /// The destination of the client's redirected connection.
        OriginalDst = "ORIGINAL_DST",
        /// A connection kept in reserve.
        StandbyPool = "STANDBY_POOL",
    }
}

/// The end of the transaction, when it is not the usual one.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ending {
    /// As usual.
    #[default]
    Normal,
    /// The answer was sent, but a newer one in the cache was ignored for it.
    Ignored,
    /// A time limit was reached.
    TimedOut,
    /// The client or the server broke off.
    Aborted,
}

/// A whole result code, like `TCP_CF_MISS_ABORTED`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResultTag {
    /// The result of the request.
    pub tag: Tag,
    /// It shared the fetch of another request.
    pub collapsed: bool,
    /// Its end.
    pub ending: Ending,
}

impl From<Tag> for ResultTag {
    fn from(tag: Tag) -> Self {
        Self { tag, ..Self::default() }
    }
}

impl ResultTag {
    /// Appends the name.
    pub fn write(self, out: &mut Vec<u8>) {
        let name = self.tag.name();
        if !self.collapsed && self.ending == Ending::Normal {
            return out.extend_from_slice(name.as_bytes());
        }
        // "NONE" or "TCP", and the rest from its underscore.
        let (source, rest) = name.split_at(name.find('_').unwrap_or(name.len()));
        out.extend_from_slice(source.as_bytes());
        if self.collapsed {
            out.extend_from_slice(b"_CF");
        }
        out.extend_from_slice(rest.as_bytes());
        out.extend_from_slice(match self.ending {
            Ending::Normal => b"",
            Ending::Ignored => b"_IGNORED",
            Ending::TimedOut => b"_TIMEDOUT",
            Ending::Aborted => b"_ABORTED",
        });
    }
}

impl Tag {
    /// Whether the answer came from the cache, as Squid counts hits.
    pub fn is_hit(self) -> bool {
        use Tag::*;
        matches!(
            self,
            Hit | MemHit
                | ImsHit
                | InmHit
                | NegativeHit
                | OfflineHit
                | RefreshUnmodified
                | RefreshFailOld
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tag: ResultTag) -> String {
        let mut out = Vec::new();
        tag.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_are_composed_as_squid_does() {
        assert_eq!(text(Tag::MemHit.into()), "TCP_MEM_HIT");
        assert_eq!(text(ResultTag::default()), "NONE_NONE");
        let tag = ResultTag { tag: Tag::Miss, collapsed: true, ending: Ending::Aborted };
        assert_eq!(text(tag), "TCP_CF_MISS_ABORTED");
        let tag = ResultTag { tag: Tag::Tunnel, collapsed: false, ending: Ending::TimedOut };
        assert_eq!(text(tag), "TCP_TUNNEL_TIMEDOUT");
    }

    #[test]
    fn every_name_is_one_word_and_unique() {
        let mut names: Vec<_> = Tag::ALL.iter().map(|t| t.name()).collect();
        names.extend(Hierarchy::ALL.iter().map(|h| h.name()));
        let count = names.len();
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
