//! A cache without contents: names and sizes in one part, for the simulator and for tests.

use hashbrown::HashMap;

use crate::{Clock, NONE, Nodes, Order, Policy};

/// A cache of at most `capacity_bytes`. As in the memory cache, a new object is stored first, and
/// then takes part in the choice of the victim.
#[derive(Debug)]
pub struct ModelCache {
    order: Order,
    clock: Clock,
    nodes: Slab,
    slots: HashMap<u64, u32>,
    free: Vec<u32>,
    used_bytes: u64,
    capacity_bytes: u64,
}

impl ModelCache {
    /// An empty cache.
    pub fn new(policy: Policy, capacity_bytes: u64) -> Self {
        Self {
            order: Order::new(policy),
            clock: Clock::default(),
            nodes: Slab(Vec::new()),
            slots: HashMap::new(),
            free: Vec::new(),
            used_bytes: 0,
            capacity_bytes,
        }
    }

    /// A request for an object of `bytes`; whether it was a hit. After a miss the object is in the
    /// cache, unless it is larger than the cache or the policy did not want it. It keeps the size
    /// of that request.
    pub fn request(&mut self, id: u64, bytes: u32) -> bool {
        self.clock.tick();
        if let Some(&at) = self.slots.get(&id) {
            self.order.touch(&mut self.nodes, at, &self.clock);
            return true;
        }
        let bytes = bytes.max(1);
        if u64::from(bytes) <= self.capacity_bytes {
            self.store(id, bytes);
            while self.used_bytes > self.capacity_bytes && self.evict() {}
        }
        false
    }

    fn store(&mut self, id: u64, bytes: u32) {
        let node = Node { id, bytes, newer: NONE, older: NONE, stamp: 0, mark: 0 };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes.0[at as usize] = node;
                at
            }
            None => {
                self.nodes.0.push(node);
                (self.nodes.0.len() - 1) as u32
            }
        };
        self.slots.insert(id, at);
        self.used_bytes += u64::from(bytes);
        self.order.admit(&mut self.nodes, at, &self.clock);
    }

    fn evict(&mut self) -> bool {
        let Some(at) = self.order.evict(&mut self.nodes, &self.clock) else { return false };
        let node = &self.nodes.0[at as usize];
        self.used_bytes -= u64::from(node.bytes);
        self.slots.remove(&node.id);
        self.free.push(at);
        true
    }

    /// Bytes of objects in the cache.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Whether an object is in the cache; not a use.
    pub fn contains(&self, id: u64) -> bool {
        self.slots.contains_key(&id)
    }

    /// Number of objects in the cache.
    pub fn objects(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
impl ModelCache {
    /// The ids in the order in which they would leave, nearly.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.order.for_each(&self.nodes, &self.clock, |at| ids.push(self.nodes.node(at).id));
        ids
    }

    /// Removes an object as a purge does.
    pub(crate) fn purge(&mut self, id: u64) -> bool {
        let Some(at) = self.slots.remove(&id) else { return false };
        self.order.remove(&mut self.nodes, at, &self.clock);
        self.used_bytes -= u64::from(self.nodes.node(at).bytes);
        self.free.push(at);
        true
    }

    /// Gives an object another size.
    pub(crate) fn resize(&mut self, id: u64, bytes: u32) {
        let Some(&at) = self.slots.get(&id) else { return };
        let before = std::mem::replace(&mut self.nodes.node_mut(at).bytes, bytes);
        self.used_bytes = self.used_bytes + u64::from(bytes) - u64::from(before);
        self.order.resize(&self.nodes, at, before.into());
        self.order.touch(&mut self.nodes, at, &self.clock);
        while self.used_bytes > self.capacity_bytes && self.evict() {}
    }
}

#[derive(Debug)]
struct Node {
    id: u64,
    bytes: u32,
    newer: u32,
    older: u32,
    stamp: u32,
    mark: u8,
}

#[derive(Debug)]
struct Slab(Vec<Node>);

impl Slab {
    fn node(&self, at: u32) -> &Node {
        &self.0[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.0[at as usize]
    }
}

impl Nodes for Slab {
    fn newer(&self, at: u32) -> u32 {
        self.node(at).newer
    }
    fn set_newer(&mut self, at: u32, to: u32) {
        self.node_mut(at).newer = to;
    }
    fn older(&self, at: u32) -> u32 {
        self.node(at).older
    }
    fn set_older(&mut self, at: u32, to: u32) {
        self.node_mut(at).older = to;
    }
    fn stamp(&self, at: u32) -> u32 {
        self.node(at).stamp
    }
    fn set_stamp(&mut self, at: u32, to: u32) {
        self.node_mut(at).stamp = to;
    }
    fn mark(&self, at: u32) -> u8 {
        self.node(at).mark
    }
    fn set_mark(&mut self, at: u32, to: u8) {
        self.node_mut(at).mark = to;
    }
    fn cost_bytes(&self, at: u32) -> u64 {
        u64::from(self.node(at).bytes)
    }
    /// Ids may be 1, 2, 3, ….
    fn hash(&self, at: u32) -> u64 {
        let id = self.node(at).id;
        let mixed = (id ^ id >> 30).wrapping_add(1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    }
}
