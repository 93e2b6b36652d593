//! What a seed stands for. Each seed has its own world: few resources or many, calm or troubled, so
//! that rare things are frequent somewhere.

use crate::bump::BumpPlan;
use crate::chance::Chance;
use crate::stores::DirPlan;

/// The world of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) resources: usize,
    pub(crate) clients: usize,
    pub(crate) requests: u64,
    pub(crate) lives: u64,
    /// How often a task is late, in a thousand turns.
    pub(crate) late_per_mille: u64,
    /// How often a server fails, in a thousand requests.
    pub(crate) server_fails_per_mille: u64,
    /// Longest usual wait of a server, in ms.
    pub(crate) server_ms: u64,
    /// Longest usual wait of a client between two requests, in ms.
    pub(crate) client_ms: u64,
    /// How often a client leaves or reads slowly, in a thousand requests.
    pub(crate) leaves_per_mille: u64,
    pub(crate) slow_per_mille: u64,
    /// How often a client's socket takes parts of what is written, in a thousand requests.
    pub(crate) parts_per_mille: u64,
    /// How often names have no answer, in a thousand look-ups.
    pub(crate) names_fail_per_mille: u64,
    /// Whether the proxy's clock jumps.
    pub(crate) jumps: bool,
    /// Whether the operator changes the configuration.
    pub(crate) reloads: bool,
    /// Whether servers change what they have by themselves.
    pub(crate) changes: bool,
    /// Weights of what clients do: insist on the server's answer, change, purge.
    pub(crate) insists: u64,
    pub(crate) writes: u64,
    pub(crate) purges: u64,
    pub(crate) collapsed: bool,
    pub(crate) cache_mem: &'static str,
    pub(crate) in_memory_max: &'static str,
    /// Lengths of the versions of each resource, if not those of [`Site`](crate::site::Site).
    pub(crate) lengths: Option<[u64; 3]>,
    /// Whether all resources are public, without variants.
    pub(crate) is_plain: bool,
    /// How many resources have entity tags, of a thousand.
    pub(crate) etags_per_mille: u64,
    /// How often a server answers before it has the request's body, in a thousand bodies.
    pub(crate) early_per_mille: u64,
    /// Whether nothing happens but a client that asks for few things: what is said to be stored is
    /// found again.
    pub(crate) is_calm: bool,
    /// Whether a stop in order follows the last answer at once.
    pub(crate) stops_at_once: bool,
    pub(crate) quick_abort: bool,
    /// Whether a rule denies addresses, and a name leads to one of them now and then.
    pub(crate) egress: bool,
    pub(crate) dirs: Vec<DirPlan>,
    /// Longest usual time of an operation of a disk, in ms.
    pub(crate) disk_ms: u64,
    /// Whether disks fail.
    pub(crate) disk_fails: bool,
    /// Whether a life may end in a crash.
    pub(crate) crashes: bool,
    /// Whether a crash is a loss of power, rather than the end of the process.
    pub(crate) loses_power: bool,
    /// Tunnels with TLS on a port that intercepts them, beside everything else.
    pub(crate) bump: Option<BumpPlan>,
}

/// Values of `cache_mem`.
pub(crate) const MEMORY: [&str; 5] = ["0", "512 KB", "2 MB", "8 MB", "64 MB"];

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let chance = &mut Chance::new(seed, 2);
        let plan = Self::any(seed, chance);
        let plan = match chance.below(20) {
            0 => plan.crowded(chance),
            1 => plan.with_rivals(chance),
            2 => plan.calm(chance),
            _ => plan,
        };
        let bump = BumpPlan::new(seed).filter(|_| !plan.is_calm);
        // Certificates are made, and verified, by the clocks of all.
        Self { jumps: plan.jumps && bump.is_none(), bump, ..plan }
    }

    fn any(seed: u64, chance: &mut Chance) -> Self {
        Self {
            seed,
            cores: chance.one(&[1, 2, 3]),
            resources: chance.one(&[1, 3, 8, 24]),
            clients: chance.one(&[2, 4, 8, 12]),
            requests: chance.one(&[10, 20, 40]),
            lives: chance.one(&[1, 2, 3]),
            late_per_mille: chance.one(&[0, 30, 150, 400]),
            server_fails_per_mille: chance.one(&[0, 0, 20, 200]),
            server_ms: chance.one(&[1, 20, 500, 20_000]),
            client_ms: chance.one(&[1, 50, 1_000, 30_000]),
            leaves_per_mille: chance.one(&[0, 20, 150]),
            slow_per_mille: chance.one(&[0, 50, 300]),
            names_fail_per_mille: chance.one(&[0, 0, 20, 200]),
            jumps: chance.per_mille(150),
            reloads: chance.per_mille(500),
            changes: chance.per_mille(600),
            insists: chance.one(&[5, 5, 50]),
            writes: chance.one(&[0, 3, 15]),
            purges: chance.one(&[0, 3, 15]),
            collapsed: chance.per_mille(800),
            cache_mem: chance.one(&MEMORY),
            in_memory_max: chance.one(&["20 KB", "20 KB", "512 KB", "4 MB"]),
            // By turns small enough for memory and too large.
            lengths: chance.per_mille(300).then_some([13_000, 66_000, 140_000]),
            is_plain: false,
            is_calm: false,
            etags_per_mille: 800,
            stops_at_once: chance.per_mille(500),
            quick_abort: chance.per_mille(500),
            egress: chance.per_mille(200),
            dirs: {
                let count = chance.one(&[0, 1, 1, 2, 3]);
                (0..count).map(|_| DirPlan::new(chance)).collect()
            },
            disk_ms: chance.one(&[0, 1, 20, 500]),
            disk_fails: chance.per_mille(200),
            crashes: chance.per_mille(600),
            loses_power: chance.per_mille(600),
            parts_per_mille: chance.one(&[0, 200, 1000]),
            early_per_mille: chance.one(&[0, 300]),
            bump: None,
        }
    }

    /// Fast and slow clients share long fetches, and little memory: some hold up the others.
    fn crowded(self, chance: &mut Chance) -> Self {
        Self {
            resources: chance.one(&[1, 3]),
            clients: chance.one(&[4, 8]),
            requests: 10,
            server_ms: chance.one(&[20, 500, 20_000]),
            client_ms: 50,
            slow_per_mille: 500,
            collapsed: true,
            cache_mem: chance.one(&["0", "512 KB"]),
            in_memory_max: "20 KB",
            lengths: Some(chance.one(&[[300_000; 3], [700_000, 140_000, 700_000]])),
            is_plain: true,
            etags_per_mille: 500,
            ..self
        }
    }

    /// Clients insist on new versions of what others read from slow disks at the same time, and
    /// memory is short: an older version must not come back to it.
    fn with_rivals(self, chance: &mut Chance) -> Self {
        let dir = |chance: &mut Chance| DirPlan {
            mebibytes: 30,
            max_bytes: u64::MAX,
            ..DirPlan::new(chance)
        };
        Self {
            resources: chance.one(&[3, 8]),
            clients: 8,
            requests: 40,
            server_ms: chance.one(&[1, 20]),
            client_ms: chance.one(&[50, 1_000]),
            server_fails_per_mille: 0,
            names_fail_per_mille: 0,
            leaves_per_mille: 0,
            changes: true,
            jumps: false,
            insists: 30,
            purges: 0,
            cache_mem: chance.one(&["512 KB", "2 MB"]),
            in_memory_max: "512 KB",
            lengths: Some(chance.one(&[[400_000, 700_000, 400_000], [66_000, 140_000, 13_000]])),
            is_plain: true,
            dirs: vec![dir(chance), dir(chance)],
            disk_ms: chance.one(&[20, 500]),
            disk_fails: false,
            ..self
        }
    }

    /// One client asks for a few things again and again, with pauses, and a directory has room for
    /// all of them.
    fn calm(self, chance: &mut Chance) -> Self {
        let dir = DirPlan { mebibytes: 30, max_bytes: u64::MAX, ..DirPlan::new(chance) };
        Self {
            resources: chance.one(&[1, 3]),
            clients: 1,
            requests: 40,
            lives: 1,
            server_ms: 20,
            server_fails_per_mille: 0,
            names_fail_per_mille: 0,
            leaves_per_mille: 0,
            slow_per_mille: 0,
            changes: false,
            jumps: false,
            reloads: false,
            insists: 5,
            writes: 0,
            purges: 0,
            lengths: Some(chance.one(&[
                [700; 3],
                [17_000; 3],
                [33_000; 3],
                [65_000; 3],
                [300_000; 3],
            ])),
            is_plain: true,
            is_calm: true,
            egress: false,
            dirs: vec![dir],
            disk_ms: chance.one(&[0, 1, 20]),
            disk_fails: false,
            crashes: false,
            ..self
        }
    }

    /// Whether the removal of a URL outlasts a crash. Only `ring` syncs it.
    pub(crate) fn syncs_removals(&self) -> bool {
        !self.loses_power || self.dirs.iter().all(|dir| dir.scheme == "ring")
    }

    /// Whether a few slow readers of objects of this size hold more than a directory keeps for
    /// them: a quarter. What is overwritten then is cut off.
    pub(crate) fn has_little_for_readers(&self, bytes: u64) -> bool {
        let is_kept = |dir: &&DirPlan| matches!(dir.scheme, "ring" | "rock");
        self.dirs.iter().filter(is_kept).any(|dir| bytes > (dir.mebibytes << 20) / 4 / 4)
    }
}
