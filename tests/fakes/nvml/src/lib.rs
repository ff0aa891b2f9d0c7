//! A stand-in for `libnvidia-ml.so.1`: the calls that the source `nvidia` makes, answered from a script.

#![allow(non_snake_case, reason = "they are NVML's names")]
#![allow(clippy::missing_safety_doc, reason = "they are those of nvml.h: every pointer is one to what its type says")]

mod counted;
mod ring;
mod script;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nvml_wrapper_sys::bindings::*;

use counted::{put_field, put_sample};
use script::{Device, Process, Script, script, uptime};

const SUCCESS: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;
const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
const NOT_FOUND: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
const INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;
const UNINITIALIZED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_UNINITIALIZED;
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
    if HELD.load(Ordering::Relaxed) < 1 {
        return UNINITIALIZED;
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

/// How often it was initialised: "a reference count of the number of initializations is maintained" (nvml.h).
static HELD: AtomicI32 = AtomicI32::new(0);

fn set_power(script: &Script, status: &str) {
    if let Some(folder) = &script.power {
        let _ = std::fs::write(folder.join("runtime_status"), status);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    uptime();
    let script = script();
    wait(&script, "nvmlInit_v2");
    if script.init == SUCCESS {
        HELD.fetch_add(1, Ordering::Relaxed);
        set_power(&script, "active\n");
    }
    script.init
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    if HELD.fetch_sub(1, Ordering::Relaxed) == 1 {
        set_power(&script(), "suspended\n");
    }
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
        // `NVML_NVLINK_MAX_LINKS`
        if link >= 36 {
            return INVALID;
        }
        put!(active, device.has_link(link).into());
        if device.links > 0 { SUCCESS } else { NOT_SUPPORTED }
    }
    fn nvmlDeviceGetFieldValues(device, count: c_int, values: *mut nvmlFieldValue_t) {
        for index in 0..count as usize {
            // SAFETY: the caller has so many.
            let value = unsafe { &mut *values.add(index) };
            put_field(device, value);
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
        let counts = |device: &Device| device.gpm.is_some();
        let isSupportedDevice = (counts(device) || device.parts.iter().any(counts)).into();
        put!(support, nvmlGpmSupport_t { version: 1, isSupportedDevice });
        SUCCESS
    }
    fn nvmlGpmSampleGet(device, sample: nvmlGpmSample_t) { put_sample(device, sample) }
    fn nvmlGpmMigSampleGet(device, instance: c_uint, sample: nvmlGpmSample_t) {
        let part = instance.checked_sub(FIRST_INSTANCE).and_then(|part| device.parts.get(part as usize));
        part.map_or(INVALID, |part| put_sample(part, sample))
    }
}

/// The GPU instance of the first part: these numbers have nothing to do with the index of a part.
const FIRST_INSTANCE: c_uint = 7;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(handle: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    with_device("nvmlDeviceGetGpuInstanceId", handle, |_| match handle as usize >> 16 {
        0 => INVALID,
        part => {
            put!(id, FIRST_INSTANCE + part as c_uint - 1);
            SUCCESS
        }
    })
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
