//! A source of twenty numbers as a plugin.

mod fields;

resource_tracker_core::export_plugin!();
