//! A source and a sink, to be linked into a tracker of one's own or loaded into any.

mod sink;
mod source;
mod switches;

resource_tracker_core::export_plugin!();
