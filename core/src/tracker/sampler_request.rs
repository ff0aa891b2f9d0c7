//! What another thread asks of the sampler.

use std::sync::mpsc;

pub(super) enum SamplerRequest {
    /// Take one more sample and end; say so when it is taken.
    LastSample(mpsc::Sender<()>),
    /// End.
    Stop,
}
