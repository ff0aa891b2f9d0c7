//! What follows from what several sources saw. One file holds one derivation.

mod allocation;
mod host;
mod job_gpus;
mod job_limits;
