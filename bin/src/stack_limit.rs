//! Room for the stack of the first thread, if the program is started with less than the tracker needs: with a small
//! soft `RLIMIT_STACK`, which is enough for many a command.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than it ever needs.
const ROOM: u64 = 1 << 20;

/// The limit as it was found.
pub(crate) struct StackLimit(Rlimit);

impl StackLimit {
    /// Raises it, as far as the hard limit lets it. `None` where that is not called for.
    pub(crate) fn raise() -> Option<Self> {
        let found = getrlimit(Resource::Stack);
        let room = found.maximum.map_or(ROOM, |maximum| maximum.min(ROOM));
        if found.current.is_none_or(|current| current >= room) {
            return None;
        }
        setrlimit(Resource::Stack, Rlimit { current: Some(room), maximum: found.maximum }).ok()?;
        Some(Self(found))
    }

    /// Puts it back for the calling process. Async-signal-safe.
    pub(crate) fn put_back(&self) {
        let _ = setrlimit(Resource::Stack, self.0);
    }
}
