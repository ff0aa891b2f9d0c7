//! A stand-in for `libdrm.so.2` and `libdrm_amdgpu.so.1` in one: a device with 304 compute units and memory that is told
//! only here. Everything else is there and does nothing, because the loader wants all names.

#![allow(non_snake_case, reason = "they are libdrm's names")]

use std::ffi::{c_int, c_uint, c_void};

/// `AMDGPU_INFO_DEV_INFO` and `AMDGPU_INFO_MEMORY` of `amdgpu_drm.h`.
const DEV_INFO: c_uint = 22;
const MEMORY: c_uint = 25;

/// Offset of `cu_active_number` in `drm_amdgpu_info_device`.
const COMPUTE_UNITS: usize = 48;
/// Offsets of `vram.total_heap_size` and `vram.heap_usage` in `drm_amdgpu_memory_info`.
const TOTAL: usize = 0;
const USED: usize = 16;

/// Opens any file.
///
/// # Safety
/// The pointers are to what `amdgpu.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_device_initialize(
    _file: c_int,
    major: *mut u32,
    minor: *mut u32,
    device: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        *major = 3;
        *minor = 57;
        *device = std::ptr::dangling_mut::<u64>().cast();
    }
    0
}

/// Nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn amdgpu_device_deinitialize(_device: *mut c_void) -> c_int {
    0
}

/// No file.
#[unsafe(no_mangle)]
pub extern "C" fn amdgpu_device_get_fd(_device: *mut c_void) -> c_int {
    -1
}

/// The two that are asked for.
///
/// # Safety
/// `value` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amdgpu_query_info(_: *mut c_void, id: c_uint, size: c_uint, value: *mut c_void) -> c_int {
    // SAFETY: as the caller says.
    let bytes = unsafe { std::slice::from_raw_parts_mut(value.cast::<u8>(), size as usize) };
    bytes.fill(0);
    match id {
        DEV_INFO => bytes[COMPUTE_UNITS..COMPUTE_UNITS + 4].copy_from_slice(&304u32.to_ne_bytes()),
        MEMORY => {
            bytes[TOTAL..TOTAL + 8].copy_from_slice(&(192u64 << 30).to_ne_bytes());
            bytes[USED..USED + 8].copy_from_slice(&(48u64 << 30).to_ne_bytes());
        }
        _ => return -22,
    }
    0
}

macro_rules! nothing {
    ($($name:ident)*) => {
        $(
            /// Does nothing.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> c_int {
                -38
            }
        )*
    };
}

nothing! {
    drmIoctl drmGetHashTable drmGetEntry drmAvailable drmOpen drmOpenWithType drmOpenControl drmOpenRender
    drmClose drmGetVersion drmGetLibVersion drmGetCap drmFreeVersion drmGetMagic drmGetBusid
    drmGetInterruptFromBusID drmGetMap drmGetClient drmGetStats drmSetInterfaceVersion drmCommandNone
    drmCommandRead drmCommandWrite drmCommandWriteRead drmFreeBusid drmSetBusid drmAuthMagic drmAddMap
    drmRmMap drmAddContextPrivateMapping drmAddBufs drmMarkBufs drmCreateContext drmSetContextFlags
    drmGetContextFlags drmAddContextTag drmDelContextTag drmGetContextTag drmGetReservedContextList
    drmFreeReservedContextList drmSwitchToContext drmDestroyContext drmCreateDrawable drmDestroyDrawable
    drmUpdateDrawableInfo drmCtlInstHandler drmCtlUninstHandler drmSetClientCap drmCrtcGetSequence
    drmCrtcQueueSequence drmMap drmUnmap drmGetBufInfo drmMapBufs drmUnmapBufs drmDMA drmFreeBufs drmGetLock
    drmUnlock drmFinish drmGetContextPrivateMapping drmAgpAcquire drmAgpRelease drmAgpEnable drmAgpAlloc
    drmAgpFree drmAgpBind drmAgpUnbind drmAgpVersionMajor drmAgpVersionMinor drmAgpGetMode drmAgpBase
    drmAgpSize drmAgpMemoryUsed drmAgpMemoryAvail drmAgpVendorId drmAgpDeviceId drmScatterGatherAlloc
    drmScatterGatherFree drmWaitVBlank drmSetServerInfo drmError drmMalloc drmFree drmHashCreate
    drmHashDestroy drmHashLookup drmHashInsert drmHashDelete drmHashFirst drmHashNext drmRandomCreate
    drmRandomDestroy drmRandom drmRandomDouble drmSLCreate drmSLDestroy drmSLLookup drmSLInsert drmSLDelete
    drmSLNext drmSLFirst drmSLDump drmSLLookupNeighbors drmOpenOnce drmOpenOnceWithType drmCloseOnce drmMsg
    drmSetMaster drmDropMaster drmIsMaster drmHandleEvent drmGetDeviceNameFromFd drmGetDeviceNameFromFd2
    drmGetNodeTypeFromFd drmPrimeHandleToFD drmPrimeFDToHandle drmCloseBufferHandle
    drmGetPrimaryDeviceNameFromFd drmGetRenderDeviceNameFromFd drmGetDevice drmFreeDevice drmGetDevices
    drmFreeDevices drmGetDevice2 drmGetDevices2 drmGetDeviceFromDevId drmGetNodeTypeFromDevId drmDevicesEqual
    drmSyncobjCreate drmSyncobjDestroy drmSyncobjHandleToFD drmSyncobjFDToHandle drmSyncobjImportSyncFile
    drmSyncobjExportSyncFile drmSyncobjWait drmSyncobjReset drmSyncobjSignal drmSyncobjTimelineSignal
    drmSyncobjTimelineWait drmSyncobjQuery drmSyncobjQuery2 drmSyncobjTransfer drmSyncobjEventfd
    drmGetFormatModifierVendor drmGetFormatModifierName drmGetFormatName drmModeFreeModeInfo
    drmModeFreeResources drmModeFreeFB drmModeFreeFB2 drmModeFreeCrtc drmModeFreeConnector drmModeFreeEncoder
    drmModeFreePlane drmModeFreePlaneResources drmIsKMS drmModeGetResources drmModeGetFB drmModeGetFB2
    drmModeAddFB drmModeAddFB2 drmModeAddFB2WithModifiers drmModeRmFB drmModeCloseFB drmModeDirtyFB
    drmModeGetCrtc drmModeSetCrtc drmModeSetCursor drmModeSetCursor2 drmModeMoveCursor drmModeGetEncoder
    drmModeGetConnector drmModeGetConnectorCurrent drmModeConnectorGetPossibleCrtcs drmModeAttachMode
    drmModeDetachMode drmModeGetProperty drmModeFreeProperty drmModeGetPropertyBlob
    drmModeFormatModifierBlobIterNext drmModeFreePropertyBlob drmModeConnectorSetProperty
    drmCheckModesettingSupported drmModeCrtcSetGamma drmModeCrtcGetGamma drmModePageFlip drmModePageFlipTarget
    drmModeGetPlaneResources drmModeGetPlane drmModeSetPlane drmModeObjectGetProperties
    drmModeFreeObjectProperties drmModeObjectSetProperty drmModeAtomicAlloc drmModeAtomicDuplicate
    drmModeAtomicMerge drmModeAtomicFree drmModeAtomicGetCursor drmModeAtomicSetCursor
    drmModeAtomicAddProperty drmModeAtomicCommit drmModeCreatePropertyBlob drmModeDestroyPropertyBlob
    drmModeCreateLease drmModeListLessees drmModeGetLease drmModeRevokeLease drmModeGetConnectorTypeName
    drmModeCreateDumbBuffer drmModeDestroyDumbBuffer drmModeMapDumbBuffer amdgpu_device_initialize2
    amdgpu_bo_alloc amdgpu_bo_set_metadata amdgpu_bo_query_info amdgpu_bo_export amdgpu_bo_import
    amdgpu_create_bo_from_user_mem amdgpu_find_bo_by_cpu_mapping amdgpu_bo_free amdgpu_bo_inc_ref
    amdgpu_bo_cpu_map amdgpu_bo_cpu_unmap amdgpu_bo_wait_for_idle amdgpu_bo_list_create_raw
    amdgpu_bo_list_destroy_raw amdgpu_bo_list_create amdgpu_bo_list_destroy amdgpu_bo_list_update
    amdgpu_cs_ctx_create2 amdgpu_cs_ctx_create amdgpu_cs_ctx_free amdgpu_cs_ctx_override_priority
    amdgpu_cs_ctx_stable_pstate amdgpu_cs_query_reset_state amdgpu_cs_query_reset_state2 amdgpu_cs_submit
    amdgpu_cs_query_fence_status amdgpu_cs_wait_fences amdgpu_query_buffer_size_alignment
    amdgpu_query_firmware_version amdgpu_query_hw_ip_count amdgpu_query_hw_ip_info amdgpu_query_heap_info
    amdgpu_query_crtc_from_id amdgpu_query_gpu_info amdgpu_query_sw_info amdgpu_query_gds_info
    amdgpu_query_sensor_info amdgpu_query_video_caps_info amdgpu_read_mm_registers amdgpu_va_range_alloc
    amdgpu_va_range_free amdgpu_va_range_query amdgpu_va_manager_alloc amdgpu_va_manager_init
    amdgpu_va_manager_deinit amdgpu_va_range_alloc2 amdgpu_bo_va_op amdgpu_bo_va_op_raw
    amdgpu_cs_create_semaphore amdgpu_cs_signal_semaphore amdgpu_cs_wait_semaphore amdgpu_cs_destroy_semaphore
    amdgpu_cs_create_syncobj2 amdgpu_cs_create_syncobj amdgpu_cs_destroy_syncobj amdgpu_cs_syncobj_reset
    amdgpu_cs_syncobj_signal amdgpu_cs_syncobj_timeline_signal amdgpu_cs_syncobj_wait
    amdgpu_cs_syncobj_timeline_wait amdgpu_cs_syncobj_query amdgpu_cs_syncobj_query2 amdgpu_cs_export_syncobj
    amdgpu_cs_import_syncobj amdgpu_cs_syncobj_export_sync_file amdgpu_cs_syncobj_import_sync_file
    amdgpu_cs_syncobj_export_sync_file2 amdgpu_cs_syncobj_import_sync_file2 amdgpu_cs_syncobj_transfer
    amdgpu_cs_fence_to_handle amdgpu_cs_submit_raw amdgpu_cs_submit_raw2 amdgpu_cs_chunk_fence_to_dep
    amdgpu_cs_chunk_fence_info_to_data amdgpu_vm_reserve_vmid amdgpu_vm_unreserve_vmid
}
