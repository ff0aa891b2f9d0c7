//! What a call into a plugin answers: text that it wrote, or why it failed.

use std::ffi::c_void;

use anyhow::{anyhow, bail};

use super::abi::{RT_ABSENT, RT_OK, Reply, Text};

/// No plugin means to write more in one call.
const LIMIT: usize = 4 << 20;

/// Longest message that is kept.
const LONGEST_MESSAGE: usize = 1000;

#[derive(Default)]
pub(super) struct CallResult {
    text: Vec<u8>,
    too_long: bool,
    message: Option<String>,
}

impl CallResult {
    /// Makes a call. `Ok(None)` for `RT_ABSENT`.
    pub(super) fn of(&mut self, call: impl FnOnce(*const Reply) -> i32) -> anyhow::Result<Option<&[u8]>> {
        self.text.clear();
        self.too_long = false;
        self.message = None;
        let reply =
            Reply { size: size_of::<Reply>(), context: (&raw mut *self).cast(), write: Some(write), fail: Some(fail) };
        let code = call(&raw const reply);
        if self.too_long {
            bail!("it wrote more than {} MiB", LIMIT >> 20);
        }
        match code {
            RT_OK => Ok(Some(&self.text)),
            RT_ABSENT => Ok(None),
            code => Err(anyhow!(self.message.take().unwrap_or_else(|| format!("it returned {code} without a reason")))),
        }
    }
}

/// # Safety
/// `context` is the answer of a call that has not returned, and nobody else uses it.
unsafe extern "C" fn write(context: *mut c_void, text: Text) -> i32 {
    // SAFETY: `context` is the answer, which outlives the call.
    let answer = unsafe { &mut *context.cast::<CallResult>() };
    if text.length == 0 {
        return 0;
    }
    if text.bytes.is_null() || text.length > LIMIT - answer.text.len().min(LIMIT) {
        answer.too_long = true;
        answer.text = Vec::new();
        return 1;
    }
    // SAFETY: the plugin's promise: `bytes` points to `length` bytes.
    answer.text.extend_from_slice(unsafe { std::slice::from_raw_parts(text.bytes, text.length) });
    0
}

/// # Safety
/// As [`write()`].
unsafe extern "C" fn fail(context: *mut c_void, message: Text) {
    // SAFETY: `context` is the answer, which outlives the call.
    let answer = unsafe { &mut *context.cast::<CallResult>() };
    // SAFETY: the plugin's promise.
    answer.message = Some(unsafe { one_line(message) });
}

/// A message as one line, whatever is in it.
///
/// # Safety
/// `message` points to its bytes.
pub(super) unsafe fn one_line(message: Text) -> String {
    if message.bytes.is_null() || message.length == 0 {
        return "no reason".to_owned();
    }
    let length = message.length.min(LONGEST_MESSAGE);
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(message.bytes, length) };
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the way a plugin does.
    fn plugin(reply: *const Reply, texts: &[&[u8]], message: Option<&[u8]>) -> i32 {
        // SAFETY: the reply of the call that this is.
        let reply = unsafe { &*reply };
        let text = |bytes: &[u8]| Text { bytes: bytes.as_ptr(), length: bytes.len() };
        let mut refused = 0;
        for bytes in texts {
            // SAFETY: the text lives during the call.
            refused |= unsafe { (reply.write.unwrap())(reply.context, text(bytes)) };
        }
        if let Some(message) = message {
            // SAFETY: the same.
            unsafe { (reply.fail.unwrap())(reply.context, text(message)) };
            return super::super::abi::RT_FAILED;
        }
        refused
    }

    #[test]
    fn parts_are_put_together_and_forgotten() {
        let mut answer = CallResult::default();
        assert_eq!(answer.of(|reply| plugin(reply, &[b"{", b"}", b""], None)).unwrap(), Some(&b"{}"[..]));
        assert_eq!(answer.of(|reply| plugin(reply, &[b"x"], None)).unwrap(), Some(&b"x"[..]));
        assert_eq!(answer.of(|_| RT_ABSENT).unwrap(), None);
    }

    #[test]
    fn failures_are_one_line() {
        let mut answer = CallResult::default();
        let error = answer.of(|reply| plugin(reply, &[], Some(b"no\nport \xff"))).unwrap_err();
        assert_eq!(error.to_string(), "no port \u{fffd}");
        assert_eq!(answer.of(|_| -7).unwrap_err().to_string(), "it returned -7 without a reason");
        let huge = vec![b'x'; 1 << 20];
        let huge = huge.as_slice();
        let error = answer.of(|reply| plugin(reply, &[huge; 100], None)).unwrap_err();
        assert_eq!(error.to_string(), "it wrote more than 4 MiB");
        assert!(answer.text.capacity() < LIMIT);
    }
}
