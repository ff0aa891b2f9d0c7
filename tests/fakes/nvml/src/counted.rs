//! Fields, and what GPUs since Hopper count of themselves.

use std::ffi::c_ulonglong;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::field_id::*;
use nvml_wrapper_sys::bindings::*;
use nvml_wrapper_sys::bindings::{
    nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_RX_PER_SEC as PCIE_RX,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_PCIE_TX_PER_SEC as PCIE_TX, nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL as SM_UTIL,
};

use crate::script::{Device, uptime};
use crate::{NOT_SUPPORTED, SUCCESS};

/// What nvml.h says of each field: its unit, its type, and which hardware has it.
pub(crate) fn put_field(device: &Device, value: &mut nvmlFieldValue_t) {
    let number = |value: f64| Some((nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value as c_ulonglong));
    let small = |value: u32| Some((nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT, value.into()));
    let before_5 = |kib: f64| (!device.is_nvlink_5).then(|| number(kib)).flatten();
    let since_5 = |kib: f64| device.is_nvlink_5.then(|| number(kib * 1024.0)).flatten();
    // The driver's counters have 32 bits; these begin a little before they go round.
    let counted = |direction: usize| {
        let bytes = device.pcie_counted?[direction] as f64 * uptime();
        small((bytes as u64).wrapping_sub(100_000_000) as u32)
    };
    let kib = device.link_kib(value.scopeId);
    let answer = match value.fieldId {
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX => before_5(kib),
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX => before_5(kib / 2.0),
        NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES => since_5(kib),
        NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES => since_5(kib / 2.0),
        NVML_FI_DEV_NVLINK_GET_SPEED => small(device.link_megabytes_per_sec),
        NVML_FI_DEV_PCIE_COUNT_TX_BYTES => counted(0),
        NVML_FI_DEV_PCIE_COUNT_RX_BYTES => counted(1),
        NVML_FI_DEV_POWER_INSTANT if value.scopeId == 0 => small(device.milliwatts),
        NVML_FI_DEV_POWER_AVERAGE if value.scopeId == 0 => device.average_milliwatts.and_then(small),
        _ => None,
    };
    value.nvmlReturn = if answer.is_some() { SUCCESS } else { NOT_SUPPORTED };
    if let Some((kind, number)) = answer {
        value.valueType = kind;
        value.value.ullVal = number;
    }
}

/// What GPUs since Hopper count.
struct Sample {
    multiprocessors: f64,
    pcie: [f64; 2],
    at: Instant,
}

pub(crate) fn put_sample(device: &Device, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let Some(multiprocessors) = device.gpm else { return NOT_SUPPORTED };
    if device.gpm_fails {
        return nvmlReturn_enum_NVML_ERROR_UNKNOWN;
    }
    // SAFETY: it is one of `nvmlGpmSampleAlloc`, which nobody else uses now.
    unsafe { *sample.cast::<Sample>() = Sample { multiprocessors, pcie: device.gpm_pcie, at: Instant::now() } };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let empty = Sample { multiprocessors: 0.0, pcie: [0.0; 2], at: Instant::now() };
    // SAFETY: the caller says that it points to such a value.
    unsafe { sample.write(Box::into_raw(Box::new(empty)).cast()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    // SAFETY: it is from the function above, and is not used any more.
    drop(unsafe { Box::from_raw(sample.cast::<Sample>()) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller hands over a request with two samples of ours.
    unsafe {
        let (before, now) = (&*(*request).sample1.cast::<Sample>(), &*(*request).sample2.cast::<Sample>());
        // "should be greater than 100ms due to the internal sample refresh rate"
        let is_apart = now.at - before.at > Duration::from_millis(100);
        for metric in (*request).metrics.iter_mut().take((*request).numMetrics as usize) {
            metric.nvmlReturn = SUCCESS;
            metric.value = match metric.metricId {
                _ if !is_apart => 0.0,
                SM_UTIL => now.multiprocessors,
                PCIE_TX => now.pcie[0],
                PCIE_RX => now.pcie[1],
                _ => f64::NAN,
            };
            let text = c"".as_ptr().cast_mut();
            metric.metricInfo.shortName = text;
            metric.metricInfo.longName = text;
            metric.metricInfo.unit = text;
        }
    }
    SUCCESS
}
