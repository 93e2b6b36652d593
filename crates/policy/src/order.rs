//! A policy at work on the slots of one part of a cache.

use crate::clock::{Clock, Rank};
use crate::heap::{Heap, Weight};
use crate::list::List;
use crate::s3fifo::S3Fifo;
use crate::sieve::Sieve;
use crate::tinylfu::TinyLfu;
use crate::{Nodes, Policy};

/// Most objects that one eviction spares. The next one leaves although it was used: so the length
/// of an eviction does not depend on the number of objects.
pub(crate) const SCAN_MAX: usize = 1024;

/// The order in which the objects of one part of a cache leave. Nothing here locks: the owner of
/// the slots does.
#[derive(Debug)]
pub struct Order(Kind);

#[derive(Debug)]
enum Kind {
    Lru(List),
    Heap(Heap),
    S3Fifo(S3Fifo),
    Sieve(Sieve),
    TinyLfu(TinyLfu),
}

impl Order {
    /// An order without objects. It allocates nothing until there are some.
    pub fn new(policy: Policy) -> Self {
        Self(match policy {
            Policy::Lru | Policy::HeapLru => Kind::Lru(List::default()),
            Policy::HeapGdsf => Kind::Heap(Heap::new(Weight::Gdsf)),
            Policy::HeapLfuda => Kind::Heap(Heap::new(Weight::Lfuda)),
            Policy::S3Fifo => Kind::S3Fifo(S3Fifo::default()),
            Policy::Sieve => Kind::Sieve(Sieve::default()),
            Policy::TinyLfu => Kind::TinyLfu(TinyLfu::default()),
        })
    }

    /// A new object in slot `at`.
    pub fn admit<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        match &mut self.0 {
            Kind::Lru(list) => {
                nodes.set_stamp(at, clock.now());
                list.push(nodes, at);
            }
            Kind::Heap(heap) => heap.admit(nodes, at, clock),
            Kind::S3Fifo(queues) => queues.admit(nodes, at, clock),
            Kind::Sieve(sieve) => sieve.admit(nodes, at, clock),
            Kind::TinyLfu(parts) => parts.admit(nodes, at, clock),
        }
    }

    /// A use of the object in slot `at`; returns whether [`Order::rank`] may have changed. O(1),
    /// except O(log n) for the heap policies; no allocation.
    #[inline(always)] // a hit is counted in single instructions
    pub fn touch<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) -> bool {
        match &mut self.0 {
            Kind::Lru(list) => {
                let now = clock.now();
                let was_first = list.oldest == at;
                // Nothing was stored since its last move: moving it again would change nothing that
                // matters.
                if crate::age(nodes, at, now) != 0 {
                    nodes.set_stamp(at, now);
                    list.renew(nodes, at);
                }
                was_first
            }
            // These count a use, and change no order.
            Kind::S3Fifo(_) => S3Fifo::touch(nodes, at),
            Kind::Sieve(_) => Sieve::touch(nodes, at),
            Kind::Heap(heap) => heap.touch(nodes, at, clock),
            Kind::TinyLfu(parts) => parts.touch(nodes, at, clock),
        }
    }

    /// The object in slot `at`, which cost `before_bytes`, has another size now.
    pub fn resize<N: Nodes>(&mut self, nodes: &N, at: u32, before_bytes: u64) {
        let list = match &mut self.0 {
            Kind::Lru(list) => list,
            Kind::Heap(_) => return,
            Kind::S3Fifo(queues) => queues.list_of(nodes.mark(at)),
            Kind::Sieve(sieve) => &mut sieve.list,
            Kind::TinyLfu(parts) => parts.list_of(nodes.mark(at)),
        };
        list.bytes = list.bytes.saturating_sub(before_bytes).saturating_add(nodes.cost_bytes(at));
    }

    /// The object in slot `at` leaves for another reason than room. Its slot still has its cost.
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        match &mut self.0 {
            Kind::Lru(list) => list.remove(nodes, at),
            Kind::Heap(heap) => heap.remove(nodes, at, clock.now()),
            Kind::S3Fifo(queues) => queues.remove(nodes, at),
            Kind::Sieve(sieve) => sieve.remove(nodes, at),
            Kind::TinyLfu(parts) => parts.remove(nodes, at),
        }
    }

    /// Takes the object that leaves first out of the order.
    pub fn evict<N: Nodes>(&mut self, nodes: &mut N, clock: &Clock) -> Option<u32> {
        match &mut self.0 {
            Kind::Lru(list) => {
                let at = list.first()?;
                list.remove(nodes, at);
                Some(at)
            }
            Kind::Heap(heap) => heap.evict(nodes, clock),
            Kind::S3Fifo(queues) => queues.evict(nodes, clock),
            Kind::Sieve(sieve) => sieve.evict(nodes, clock),
            Kind::TinyLfu(parts) => parts.evict(nodes),
        }
    }

    /// The slot that [`Order::evict`] would look at first.
    fn first<N: Nodes>(&self, nodes: &N) -> Option<u32> {
        match &self.0 {
            Kind::Lru(list) => list.first(),
            Kind::Heap(heap) => heap.first(),
            Kind::S3Fifo(queues) => queues.first(),
            Kind::Sieve(sieve) => sieve.first(),
            Kind::TinyLfu(parts) => parts.first(nodes),
        }
    }

    /// How urgently the first candidate should leave, for comparison with other parts of the same
    /// cache.
    pub fn rank<N: Nodes>(&self, nodes: &N) -> Rank {
        let Some(at) = self.first(nodes) else { return Rank::NOTHING };
        match &self.0 {
            Kind::Heap(_) => Rank::of_key(nodes.older(at)),
            // If a newcomer has to be weighed, this part should lose an object: in another part a
            // victim would leave without a contest.
            Kind::TinyLfu(parts) if parts.is_window_full(nodes) => {
                Rank::of_stamp::<N>(nodes.stamp(at)).first()
            }
            _ => Rank::of_stamp::<N>(nodes.stamp(at)),
        }
    }

    /// Every slot, those first that would leave first (nearly so). To admit them to a new order in
    /// this sequence keeps most of the order; counts of uses are lost.
    pub fn for_each<N: Nodes>(&self, nodes: &N, clock: &Clock, mut see: impl FnMut(u32)) {
        match &self.0 {
            Kind::Lru(list) => list.for_each(nodes, see),
            Kind::Heap(heap) => heap.sorted(nodes, clock.now()).into_iter().for_each(see),
            Kind::S3Fifo(queues) => queues.for_each(nodes, &mut see),
            Kind::Sieve(sieve) => sieve.for_each(nodes, &mut see),
            Kind::TinyLfu(parts) => parts.for_each(nodes, &mut see),
        }
    }

    /// Memory of the order besides its fields in slots, in bytes: at most 5 an object, from some
    /// hundreds on.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kind::Lru(_) | Kind::Sieve(_) => 0,
            Kind::Heap(heap) => heap.heap_bytes(),
            Kind::S3Fifo(queues) => queues.heap_bytes(),
            Kind::TinyLfu(parts) => parts.heap_bytes(),
        }
    }
}
