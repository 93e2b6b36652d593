//! `ring`: a cyclic log of segments.

mod index;
mod length;
