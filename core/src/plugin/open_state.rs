//! What a plugin has opened in this process, until it is closed.

use std::ffi::c_void;
use std::ptr;

use anyhow::ensure;

use super::abi::{HostTable, Reply};
use super::call_result::CallResult;
use super::host::HostContext;

pub(super) type Close = Option<unsafe extern "C" fn(*mut c_void)>;

pub(super) struct OpenState {
    state: *mut c_void,
    close: Close,
    answer: CallResult,
    // The plugin may use it until it is closed.
    _host: HostContext,
}

// SAFETY: the contract: a state may be used by different threads, one at a time.
unsafe impl Send for OpenState {}

impl OpenState {
    /// Opens it by `open`, which gets the tracker, the place of the state and the reply. `Ok(None)` for `RT_ABSENT`.
    ///
    /// # Errors
    /// Those of the plugin, or that there is no state.
    pub(super) fn open(
        host: HostContext,
        close: Close,
        open: impl FnOnce(*const HostTable, *mut *mut c_void, *const Reply) -> i32,
    ) -> anyhow::Result<Option<Self>> {
        let (mut state, mut answer) = (ptr::null_mut(), CallResult::default());
        if answer.of(|reply| open(host.table(), &raw mut state, reply))?.is_none() {
            return Ok(None);
        }
        ensure!(!state.is_null(), "it opened without a state");
        Ok(Some(Self { state, close, answer, _host: host }))
    }

    /// Makes a call with the state.
    ///
    /// # Errors
    /// Those of the plugin.
    pub(super) fn call(
        &mut self,
        call: impl FnOnce(*mut c_void, *const Reply) -> i32,
    ) -> anyhow::Result<Option<&[u8]>> {
        let state = self.state;
        self.answer.of(|reply| call(state, reply))
    }
}

impl Drop for OpenState {
    fn drop(&mut self) {
        if let Some(close) = self.close {
            // SAFETY: the contract: it is not used any more.
            unsafe { close(self.state) };
        }
    }
}
