//! Objects, index, replacement policies, memory tier, sharing in flight, the Scheme trait.

pub mod body;
mod body_builder;
pub mod cache;
pub mod dirs;
pub mod disk;
mod doorkeeper;
pub mod events;
pub mod flow;
mod gate;
pub mod head;
pub mod in_flight;
pub mod index;
pub mod key;
pub mod mem;
mod newest;
pub mod object;
mod parts;
pub mod purges;
pub mod scheme;
mod settings;
mod since;
mod sync;
mod together;
mod upkeep;
pub mod vary;
mod versions;
mod voids;

pub use body::{Body, Borrowed, Lender};
pub use cache::{Arrived, Cache, Storable, Stored};
pub use dirs::{Dir, DirConfig, Purged};
pub use disk::{DiskEntry, DiskHit, Held, Lookup, SwapOutError};
pub use doorkeeper::Doorkeeper;
pub use events::{NoEvents, StoreEvent, StoreEventKind, StoreEvents};
pub use flow::{
    AbortReason, BodySlice, Fate, Flow, FlowHead, FlowInfo, FlowReader, FlowWriter, Keep, Progress,
    ReaderKind, Writing,
};
pub use head::StoredHead;
pub use humboldt_policy::Policy;
pub use in_flight::{Begin, InFlight};
pub use key::Key;
pub use mem::{Entry, MemTier};
pub use object::{About, Object};
pub use parts::{NotListed, PARTIAL, Part, PartList, Piece};
pub use purges::{Purge, PurgeError, PurgePlaces, Purges};
pub use settings::{CacheSettings, DirSelect, InTransit, MemoryMode};
pub use since::Since;
pub use vary::{VaryMarker, next_serial};
pub use versions::{Standing, Voiding};

#[cfg(test)]
mod testing;
