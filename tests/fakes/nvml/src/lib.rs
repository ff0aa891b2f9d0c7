//! A stand-in for `libnvidia-ml.so.1`: the calls that the source `nvidia` makes, answered from a script.

#![allow(non_snake_case, reason = "they are NVML's names")]
#![allow(clippy::missing_safety_doc, reason = "they are those of nvml.h: every pointer is one to what its type says")]

mod ring;
mod script;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_NVLINK_GET_SPEED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
};
use nvml_wrapper_sys::bindings::*;

use script::{Device, Process, Script, script, uptime};

const SUCCESS: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;
const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
const NOT_FOUND: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
const INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
const INVALID: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;

/// Writes through a pointer of the caller.
macro_rules! put {
    ($pointer:expr, $value:expr) => {
        // SAFETY: the caller of the C function says that it points to such a value.
        unsafe { $pointer.write($value) }
    };
}

fn put_text(buffer: *mut c_char, length: c_uint, text: &str) -> nvmlReturn_t {
    if text.len() >= length as usize {
        return INSUFFICIENT_SIZE;
    }
    for (index, byte) in text.bytes().chain([0]).enumerate() {
        // SAFETY: the text and its end fit into what the caller says is there.
        unsafe { buffer.add(index).write(byte as c_char) };
    }
    SUCCESS
}

fn wait(script: &Script, call: &str) {
    if let Some(secs) = script.slow.get(call) {
        std::thread::sleep(Duration::from_secs_f64(*secs));
    }
}

/// The process ends, and what the library was is taken down while its threads may still call: as with the real one, nothing
/// good comes of it then.
static GONE: AtomicBool = AtomicBool::new(false);

extern "C" fn take_down() {
    GONE.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(100));
}

#[used]
#[unsafe(link_section = ".fini_array")]
static TAKE_DOWN: extern "C" fn() = take_down;

/// A handle is the device's number plus one, with that of its part above.
fn with_device(call: &str, handle: nvmlDevice_t, answer: impl FnOnce(&Device) -> nvmlReturn_t) -> nvmlReturn_t {
    let (whole, part) = ((handle as usize & 0xffff).wrapping_sub(1), handle as usize >> 16);
    if GONE.load(Ordering::Relaxed) {
        std::process::abort();
    }
    let script = script();
    wait(&script, call);
    let device = script.devices.get(whole);
    let device = if part > 0 { device.and_then(|device| device.parts.get(part - 1)) } else { device };
    let Some(device) = device else { return INVALID };
    match device.errors.get(call).or(device.errors.get("*")) {
        Some(error) => *error,
        None => answer(device),
    }
}

/// Functions that take a device first.
macro_rules! device_calls {
    ($(fn $name:ident($device:ident $(, $argument:ident: $type:ty)*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(handle: nvmlDevice_t $(, $argument: $type)*) -> nvmlReturn_t {
                with_device(stringify!($name), handle, |$device| $body)
            }
        )*
    };
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    uptime();
    let script = script();
    wait(&script, "nvmlInit_v2");
    script.init
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    put_text(version, length, &script().driver)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    put!(version, 12080);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    let script = script();
    wait(&script, "nvmlDeviceGetCount_v2");
    // Once in a collection.
    static COLLECTIONS: AtomicUsize = AtomicUsize::new(0);
    let collections = COLLECTIONS.fetch_add(1, Ordering::Relaxed);
    if let (Some(file), true) = (&script.collections, collections.is_multiple_of(100)) {
        let _ = std::fs::write(file, collections.to_string());
    }
    put!(count, script.devices.len() as c_uint);
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut nvmlDevice_t) -> nvmlReturn_t {
    let own = (index as usize + 1) as nvmlDevice_t;
    with_device("nvmlDeviceGetHandleByIndex_v2", own, |_| {
        put!(handle, own);
        SUCCESS
    })
}

device_calls! {
    fn nvmlDeviceGetUUID(device, uuid: *mut c_char, length: c_uint) { put_text(uuid, length, &device.uuid) }
    fn nvmlDeviceGetName(device, name: *mut c_char, length: c_uint) { put_text(name, length, &device.name) }
    fn nvmlDeviceGetBoardPartNumber(_device, number: *mut c_char, length: c_uint) {
        put_text(number, length, "900-21010-0000-000")
    }
    fn nvmlDeviceGetVbiosVersion(_device, version: *mut c_char, length: c_uint) {
        put_text(version, length, "96.00.74.00.01")
    }
    fn nvmlDeviceGetMinorNumber(device, minor: *mut c_uint) { put!(minor, device.minor); SUCCESS }
    fn nvmlDeviceGetNumGpuCores(device, cores: *mut c_uint) { put!(cores, device.cores); SUCCESS }
    fn nvmlDeviceGetCurrPcieLinkGeneration(device, value: *mut c_uint) { put!(value, device.pcie_link[0]); SUCCESS }
    fn nvmlDeviceGetMaxPcieLinkGeneration(device, value: *mut c_uint) { put!(value, device.pcie_link[1]); SUCCESS }
    fn nvmlDeviceGetCurrPcieLinkWidth(device, value: *mut c_uint) { put!(value, device.pcie_link[2]); SUCCESS }
    fn nvmlDeviceGetMaxPcieLinkWidth(device, value: *mut c_uint) { put!(value, device.pcie_link[3]); SUCCESS }
    fn nvmlDeviceGetPciInfo_v3(device, pci: *mut nvmlPciInfo_t) {
        // SAFETY: all zeros is a value of this struct of integers.
        let mut info: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
        let id = format!("00000000:{:02X}:00.0", device.minor);
        for (place, byte) in info.busId.iter_mut().zip(id.bytes()) {
            *place = byte as c_char;
        }
        put!(pci, info);
        SUCCESS
    }
    fn nvmlDeviceGetUtilizationRates(device, rates: *mut nvmlUtilization_t) {
        put!(rates, nvmlUtilization_t { gpu: device.utilization[0], memory: device.utilization[1] });
        SUCCESS
    }
    fn nvmlDeviceGetMemoryInfo_v2(device, memory: *mut nvmlMemory_v2_t) {
        let [total, used] = device.memory;
        put!(memory, nvmlMemory_v2_t { version: 0, total, reserved: 0, free: total.saturating_sub(used), used });
        SUCCESS
    }
    fn nvmlDeviceGetTemperature(device, _sensor: c_uint, value: *mut c_uint) { put!(value, device.temperature); SUCCESS }
    fn nvmlDeviceGetPowerUsage(device, value: *mut c_uint) { put!(value, device.milliwatts); SUCCESS }
    fn nvmlDeviceGetEnforcedPowerLimit(device, value: *mut c_uint) { put!(value, device.limit_milliwatts); SUCCESS }
    fn nvmlDeviceGetTotalEnergyConsumption(device, value: *mut c_ulonglong) {
        put!(value, (uptime() * f64::from(device.milliwatts)) as c_ulonglong);
        SUCCESS
    }
    fn nvmlDeviceGetClockInfo(device, clock: c_uint, value: *mut c_uint) {
        put!(value, device.megahertz[usize::from(clock == nvmlClockType_enum_NVML_CLOCK_MEM)]);
        SUCCESS
    }
    fn nvmlDeviceGetEncoderUtilization(device, value: *mut c_uint, period: *mut c_uint) {
        put!(value, device.encoder);
        put!(period, 100_000);
        SUCCESS
    }
    fn nvmlDeviceGetDecoderUtilization(device, value: *mut c_uint, period: *mut c_uint) {
        put!(value, device.decoder);
        put!(period, 100_000);
        SUCCESS
    }
    fn nvmlDeviceGetNumFans(device, count: *mut c_uint) { put!(count, device.fans.len() as c_uint); SUCCESS }
    fn nvmlDeviceGetFanSpeed_v2(device, fan: c_uint, value: *mut c_uint) {
        put!(value, device.fans[fan as usize]);
        SUCCESS
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons: *mut c_ulonglong) {
        put!(reasons, device.throttle);
        SUCCESS
    }
    fn nvmlDeviceGetPerformanceState(device, state: *mut c_uint) { put!(state, device.state); SUCCESS }
    fn nvmlDeviceGetTotalEccErrors(device, kind: c_uint, _counter: c_uint, count: *mut c_ulonglong) {
        put!(count, device.ecc[kind as usize]);
        SUCCESS
    }
    fn nvmlDeviceGetPcieThroughput(device, counter: c_uint, value: *mut c_uint) {
        // As the real one, which watches the link.
        std::thread::sleep(Duration::from_millis(20));
        let sent = counter == nvmlPcieUtilCounter_enum_NVML_PCIE_UTIL_TX_BYTES;
        put!(value, device.pcie[usize::from(!sent)]);
        SUCCESS
    }
    fn nvmlDeviceGetNvLinkState(device, link: c_uint, active: *mut c_uint) {
        put!(active, (link < device.links).into());
        if device.links > 0 { SUCCESS } else { NOT_SUPPORTED }
    }
    fn nvmlDeviceGetFieldValues(device, count: c_int, values: *mut nvmlFieldValue_t) {
        for index in 0..count as usize {
            // SAFETY: the caller has so many.
            let value = unsafe { &mut *values.add(index) };
            let links = if value.scopeId == c_uint::MAX { u64::from(device.links) } else { 1 };
            let kib = (uptime() * (device.link_kib_per_sec * links) as f64) as c_ulonglong;
            value.nvmlReturn = SUCCESS;
            value.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
            match value.fieldId {
                NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX => value.value.ullVal = kib,
                NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX => value.value.ullVal = kib / 2,
                NVML_FI_DEV_NVLINK_GET_SPEED => {
                    value.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
                    value.value.uiVal = device.link_megabytes_per_sec;
                }
                _ => value.nvmlReturn = NOT_SUPPORTED,
            }
        }
        SUCCESS
    }
    fn nvmlDeviceGetMigMode(device, current: *mut c_uint, pending: *mut c_uint) {
        put!(current, (!device.parts.is_empty()).into());
        put!(pending, (!device.parts.is_empty()).into());
        SUCCESS
    }
    fn nvmlDeviceGetMaxMigDeviceCount(_device, count: *mut c_uint) { put!(count, 7); SUCCESS }
    fn nvmlDeviceGetAttributes_v2(_device, attributes: *mut nvmlDeviceAttributes_t) {
        // SAFETY: all zeros is a value of this struct of integers.
        let zero: nvmlDeviceAttributes_t = unsafe { std::mem::zeroed() };
        put!(attributes, nvmlDeviceAttributes_t { multiprocessorCount: 16, ..zero });
        SUCCESS
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device, count: *mut c_uint, list: *mut c_void) {
        list_processes(device, computes, newest(), count, list)
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(device, count: *mut c_uint, list: *mut c_void) {
        list_processes(device, computes, SHORT, count, list)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device, count: *mut c_uint, list: *mut c_void) {
        list_processes(device, |process| process.draws, newest(), count, list)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device, count: *mut c_uint, list: *mut c_void) {
        list_processes(device, |process| process.draws, SHORT, count, list)
    }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count: *mut c_uint, list: *mut c_void) {
        list_processes(device, |process| process.mps, newest(), count, list)
    }
    fn nvmlDeviceGetProcessUtilization(
        device, samples: *mut nvmlProcessUtilizationSample_t, count: *mut c_uint, since: c_ulonglong
    ) {
        // The size of the ring, whatever is in it (issue 11 of go-nvml).
        if samples.is_null() {
            put!(count, ring::SIZE as c_uint);
            return INSUFFICIENT_SIZE;
        }
        let told = ring::since(device, since);
        if told.is_empty() {
            return NOT_FOUND;
        }
        // SAFETY: as the caller says.
        let room = unsafe { *count } as usize;
        for (index, (pid, share, at)) in told.iter().take(room).enumerate() {
            let sample = nvmlProcessUtilizationSample_t {
                pid: *pid,
                timeStamp: *at,
                smUtil: *share,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            };
            put!(samples.add(index), sample);
        }
        // Zeros after garbage, as issue 110 of nvtop shows them: the caller has zeroed its buffer.
        put!(count, if device.garbage.is_empty() { told.len().min(room) as c_uint } else { room as c_uint });
        SUCCESS
    }
    fn nvmlGpmQueryDeviceSupport(device, support: *mut nvmlGpmSupport_t) {
        put!(support, nvmlGpmSupport_t { version: 1, isSupportedDevice: device.gpm.is_some().into() });
        SUCCESS
    }
    fn nvmlGpmSampleGet(device, sample: nvmlGpmSample_t) {
        put!(sample.cast::<f64>(), device.gpm.unwrap_or_default());
        SUCCESS
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    handle: nvmlDevice_t,
    index: c_uint,
    part: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    with_device("nvmlDeviceGetMigDeviceHandleByIndex", handle, |device| {
        if index as usize >= device.parts.len() {
            return NOT_FOUND;
        }
        put!(part, (handle as usize | (index as usize + 1) << 16) as nvmlDevice_t);
        SUCCESS
    })
}

/// Bytes by which processes have grown.
static GROWN: AtomicU64 = AtomicU64::new(0);

/// Bytes of an entry of a list: `nvmlProcessInfo_v2_t`, and that with `usedGpuCcProtectedMemory` behind it.
const SHORT: usize = 24;
const LONG: usize = 32;

/// The third version is that of the second, but in these drivers (`nvml.h` of nvidia-settings 535.43.02 to 535.86.05;
/// pull request 79 of nvitop, issue 75 of go-nvml).
fn newest() -> usize {
    if ((535, 43)..=(535, 86)).contains(&script().version()) { LONG } else { SHORT }
}

fn computes(process: &Process) -> bool {
    !process.draws && !process.mps
}

/// Whether the caller is told of a process: since 535.113 those of other pid namespaces are left out (`_gpuConvertPid`
/// of the open kernel module, where `pid_vnr` finds none).
fn is_told(pid: u32) -> bool {
    let is_initial = std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]");
    is_initial || script().version() < (535, 113) || std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn list_processes(
    device: &Device,
    is_listed: impl Fn(&Process) -> bool,
    size: usize,
    count: *mut c_uint,
    list: *mut c_void,
) -> nvmlReturn_t {
    let processes = device.processes.iter().filter(|process| is_listed(process));
    let mut processes: Vec<(u32, &Process)> =
        processes.filter_map(|process| Some((process.pid().filter(|pid| is_told(*pid))?, process))).collect();
    if device.churn && !list.is_null() {
        // Ten more than were counted, every other time.
        static TURN: AtomicUsize = AtomicUsize::new(0);
        if TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            let first = processes.first().copied();
            processes.extend(first.into_iter().cycle().take(10));
        }
    }
    // SAFETY: as the caller says.
    let room = unsafe { *count } as usize;
    put!(count, processes.len() as c_uint);
    if processes.is_empty() {
        return SUCCESS;
    }
    if list.is_null() || room < processes.len() {
        return INSUFFICIENT_SIZE;
    }
    for (index, (pid, process)) in processes.iter().enumerate() {
        let grown = GROWN.fetch_add(process.grows, Ordering::Relaxed);
        // SAFETY: all zeros is a value of this struct of integers; there is room for it, as far as the caller knows the
        // size of an entry.
        unsafe {
            let mut info: nvmlProcessInfo_t = std::mem::zeroed();
            info.pid = *pid;
            info.usedGpuMemory = process.bytes + grown;
            info.gpuInstanceId = c_uint::MAX;
            info.computeInstanceId = c_uint::MAX;
            list.byte_add(index * size).cast::<nvmlProcessInfo_t>().write(info);
            if size == LONG {
                list.byte_add(index * size + SHORT).cast::<u64>().write(0);
            }
        }
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    put!(sample, Box::into_raw(Box::new(0f64)).cast());
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    // SAFETY: it is from the function above, and is not used any more.
    drop(unsafe { Box::from_raw(sample.cast::<f64>()) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller hands over a request with two samples of ours.
    unsafe {
        let value = *(*request).sample2.cast::<f64>();
        for metric in (*request).metrics.iter_mut().take((*request).numMetrics as usize) {
            metric.nvmlReturn = SUCCESS;
            metric.value = value;
            let text = c"".as_ptr().cast_mut();
            metric.metricInfo.shortName = text;
            metric.metricInfo.longName = text;
            metric.metricInfo.unit = text;
        }
    }
    SUCCESS
}
