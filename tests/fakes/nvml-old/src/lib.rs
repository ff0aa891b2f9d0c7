//! An NVML of before handles had a second version: it starts, and has no device that today's programs can ask for.

/// Starts.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    0
}

/// One device.
///
/// # Safety
/// `count` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut u32) -> u32 {
    // SAFETY: as the caller says.
    unsafe { *count = 1 };
    0
}
