//! Calls of NVML that its wrapper does not have: values of one link, memory as drivers before 510 tell it, and in which GPU
//! instance a part is.

use std::ffi::{c_int, c_uint};
use std::path::Path;

use libloading::{Library, Symbol};
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_t, nvmlReturn_t};
use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_SUCCESS as SUCCESS, nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE as DOUBLE,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT as UNSIGNED_INT,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG as UNSIGNED_LONG,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG,
};

type GetFieldValues = unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t;
type GetGpuInstanceId = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t;
type GetMemoryInfo = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlMemory_t) -> nvmlReturn_t;

pub(super) struct Extra {
    get_field_values: Option<GetFieldValues>,
    get_memory_info: Option<GetMemoryInfo>,
    get_gpu_instance_id: Option<GetGpuInstanceId>,
    /// Keeps the functions where they are.
    _library: Library,
}

impl Extra {
    /// Opens the same library once more; the linker counts its users.
    pub(super) fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: the wrapper has just loaded this library, so its initialisers have run already.
        let library = unsafe { Library::new(path)? };
        // SAFETY: the types are those of nvml.h for these names, and `_library` outlives the functions.
        let (get_field_values, get_memory_info, get_gpu_instance_id) = unsafe {
            let fields: Option<Symbol<'_, GetFieldValues>> = library.get(b"nvmlDeviceGetFieldValues\0").ok();
            let memory: Option<Symbol<'_, GetMemoryInfo>> = library.get(b"nvmlDeviceGetMemoryInfo\0").ok();
            let instance: Option<Symbol<'_, GetGpuInstanceId>> = library.get(b"nvmlDeviceGetGpuInstanceId\0").ok();
            (fields.map(|symbol| *symbol), memory.map(|symbol| *symbol), instance.map(|symbol| *symbol))
        };
        Ok(Self { get_field_values, get_memory_info, get_gpu_instance_id, _library: library })
    }

    /// Values of fields, each of a scope such as a link.
    pub(super) fn fields(&self, device: &Device<'_>, fields: &[(c_uint, c_uint)]) -> Vec<Option<u64>> {
        let Some(get) = self.get_field_values else { return vec![None; fields.len()] };
        let value = |(field, scope): &(c_uint, c_uint)| nvmlFieldValue_t {
            fieldId: *field,
            scopeId: *scope,
            // SAFETY: all zeros is a value of this struct of integers and a union of numbers.
            ..unsafe { std::mem::zeroed() }
        };
        let mut values: Vec<nvmlFieldValue_t> = fields.iter().map(value).collect();
        // SAFETY: the handle is NVML's own; `values` has as many entries as are announced.
        let result = unsafe { get(device.handle(), values.len() as c_int, values.as_mut_ptr()) };
        let told = |value: nvmlFieldValue_t| {
            if result != SUCCESS || value.nvmlReturn != SUCCESS {
                return None;
            }
            // SAFETY: NVML has written the member that `valueType` names.
            unsafe {
                match value.valueType {
                    DOUBLE => Some(value.value.dVal as u64),
                    UNSIGNED_INT => Some(value.value.uiVal.into()),
                    UNSIGNED_LONG => Some(value.value.ulVal),
                    UNSIGNED_LONG_LONG => Some(value.value.ullVal),
                    _ => None,
                }
            }
        };
        values.into_iter().map(told).collect()
    }

    /// The GPU instance of a part.
    pub(super) fn gpu_instance(&self, part: &Device<'_>) -> Option<u32> {
        let get = self.get_gpu_instance_id?;
        let mut id = 0;
        // SAFETY: the handle is NVML's own, and `id` is where it writes a number.
        let result = unsafe { get(part.handle(), &mut id) };
        (result == SUCCESS).then_some(id)
    }

    /// Total and used bytes of memory; what the driver keeps for itself counts as used.
    pub(super) fn memory(&self, device: &Device<'_>) -> Option<(u64, u64)> {
        let get = self.get_memory_info?;
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        // SAFETY: the handle is NVML's own, and the struct is the one of this version of the call.
        let result = unsafe { get(device.handle(), &mut memory) };
        (result == SUCCESS).then_some((memory.total, memory.used))
    }
}
