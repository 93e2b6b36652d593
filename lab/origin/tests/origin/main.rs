//! The origin as a client on a plain socket sees it.

#![cfg(test)]

mod answers;
mod client;
mod connections;
mod moments;
mod requests;
mod world;
