//! The storage schemes with their options.

use crate::option::{self, OptionDoc, Taken};
use crate::{
    AufsOptions, CossOptions, DiskdOptions, Levels, RingOptions, RockOptions, aufs, coss, diskd,
    ring, rock,
};

/// A storage scheme.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// No disk.
    Null,
    /// One file per object in a tree of directories, blocking I/O.
    Ufs,
    /// The same files, I/O by threads.
    Aufs,
    /// The same files, I/O by a process.
    Diskd,
    /// One file of stripes that are overwritten in turn.
    Coss,
    /// One file of fixed slots.
    Rock,
    /// A cyclic log of segments.
    Ring,
}

/// A storage scheme and its own options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemeOptions {
    /// No disk.
    Null,
    /// Of `ufs`.
    Ufs(Levels),
    /// Of `aufs`.
    Aufs(AufsOptions),
    /// Of `diskd`.
    Diskd(DiskdOptions),
    /// Of `coss`.
    Coss(CossOptions),
    /// Of `rock`.
    Rock(RockOptions),
    /// Of `ring`.
    Ring(RingOptions),
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Null, Self::Ufs, Self::Aufs, Self::Diskd, Self::Coss, Self::Rock, Self::Ring];

    /// The name in squid.conf.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ufs => "ufs",
            Self::Aufs => "aufs",
            Self::Diskd => "diskd",
            Self::Coss => "coss",
            Self::Rock => "rock",
            Self::Ring => "ring",
        }
    }

    /// The scheme of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Its options as they are where nothing is written.
    pub fn defaults(self) -> SchemeOptions {
        match self {
            Self::Null => SchemeOptions::Null,
            Self::Ufs => SchemeOptions::Ufs(Levels::default()),
            Self::Aufs => SchemeOptions::Aufs(AufsOptions::default()),
            Self::Diskd => SchemeOptions::Diskd(DiskdOptions::default()),
            Self::Coss => SchemeOptions::Coss(CossOptions::default()),
            Self::Rock => SchemeOptions::Rock(RockOptions::default()),
            Self::Ring => SchemeOptions::Ring(RingOptions::default()),
        }
    }

    /// Its own options for the reference.
    pub fn docs(self) -> Vec<OptionDoc> {
        match self {
            Self::Null | Self::Ufs => Vec::new(),
            Self::Aufs => option::docs(aufs::OPTIONS),
            Self::Diskd => option::docs(diskd::OPTIONS),
            Self::Coss => option::docs(coss::OPTIONS),
            Self::Rock => option::docs(rock::OPTIONS),
            Self::Ring => option::docs(ring::OPTIONS),
        }
    }
}

impl SchemeOptions {
    /// Which scheme it is.
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Null => Scheme::Null,
            Self::Ufs(_) => Scheme::Ufs,
            Self::Aufs(_) => Scheme::Aufs,
            Self::Diskd(_) => Scheme::Diskd,
            Self::Coss(_) => Scheme::Coss,
            Self::Rock(_) => Scheme::Rock,
            Self::Ring(_) => Scheme::Ring,
        }
    }

    /// The numbers of directories, if it is a scheme with a file for each object.
    pub fn levels_mut(&mut self) -> Option<&mut Levels> {
        match self {
            Self::Ufs(levels) => Some(levels),
            Self::Aufs(AufsOptions { levels, .. }) | Self::Diskd(DiskdOptions { levels, .. }) => {
                Some(levels)
            }
            Self::Null | Self::Coss(_) | Self::Rock(_) | Self::Ring(_) => None,
        }
    }

    /// Sets the option called `name` to what stands behind `=`.
    pub fn set(&mut self, name: &str, written: Option<&str>) -> Taken {
        match self {
            Self::Null | Self::Ufs(_) => Taken::Unknown,
            Self::Aufs(options) => option::set(aufs::OPTIONS, options, name, written),
            Self::Diskd(options) => option::set(diskd::OPTIONS, options, name, written),
            Self::Coss(options) => option::set(coss::OPTIONS, options, name, written),
            Self::Rock(options) => option::set(rock::OPTIONS, options, name, written),
            Self::Ring(options) => option::set(ring::OPTIONS, options, name, written),
        }
    }

    /// Options that are valid one by one, and contradict each other: the reason.
    pub fn contradiction(&self) -> Option<String> {
        match self {
            Self::Coss(options) => options.contradiction(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_one_that_may_be_written() {
        for scheme in Scheme::ALL {
            for option in scheme.docs() {
                let mut options = scheme.defaults();
                let is_in_words = ["any", "by the capacity"].contains(&&*option.default);
                let taken = options.set(option.name, Some(&option.default));
                assert!(taken == Taken::Yes || is_in_words, "{} {option:?}", scheme.name());
                let is_same = options == scheme.defaults() || option.name == "maxfullbufs";
                assert!(is_same, "{} {option:?}", scheme.name());
            }
        }
    }

    #[test]
    fn names_lead_back_to_schemes() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::named(scheme.name()), Some(scheme));
            assert_eq!(scheme.defaults().scheme(), scheme);
        }
        assert_eq!(Scheme::named("UFS"), None);
    }

    #[test]
    fn what_is_out_of_range_is_told_with_its_range() {
        let mut rock = RockOptions::default();
        assert_eq!(rock.check(), Ok(()));
        rock.slot_bytes = 5000;
        let told = rock.check().expect_err("no multiple of 512").to_string();
        assert_eq!(told, "slot-size must be bytes from 4096 to 1048576, a multiple of 512");
        let coss = CossOptions { membufs: 3, ..CossOptions::default() };
        assert_eq!((coss.full_stripes_max(), coss.check()), (2, Ok(())));
        let coss = CossOptions { membufs: 3, maxfullbufs: Some(3), ..coss };
        assert!(coss.check().is_err() && coss.contradiction().is_some());
        assert!(Levels { l1: 0, l2: 1 }.check().is_err());
        assert!(Levels { l1: 257, l2: 1 }.check().is_err());
        assert!(DiskdOptions { q1: 3001, ..DiskdOptions::default() }.check().is_err());
        assert!(AufsOptions { threads: 0, ..AufsOptions::default() }.check().is_err());
        assert!(RingOptions { threads: 257, ..RingOptions::default() }.check().is_err());
    }

    #[test]
    fn an_option_belongs_to_its_scheme() {
        let mut rock = Scheme::Rock.defaults();
        assert_eq!(rock.set("membufs", Some("3")), Taken::Unknown);
        assert!(matches!(rock.set("slot-size", Some("4097")), Taken::BadValue(_)));
        assert_eq!(rock.set("io", Some("threads")), Taken::Yes);
        assert_eq!(rock.set("swap-timeout", Some("0")), Taken::Yes);
        let SchemeOptions::Rock(options) = rock else { panic!("still rock") };
        assert_eq!((options.io, options.swap_timeout), (crate::Io::Threads, None));
    }
}
