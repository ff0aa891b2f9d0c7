//! Work for a GPU, through the CUDA driver, which is loaded when it is there: nothing of CUDA is needed to build this.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use libloading::Library;

use crate::launch::part;

/// Bursts of this length in this time.
pub(crate) const BURST: Duration = Duration::from_millis(150);
pub(crate) const CYCLE: Duration = Duration::from_millis(1350);
const CYCLES: u32 = 20;

/// Bytes that are copied to the device, in parts.
pub(crate) const COPIED: u64 = 40 * PART as u64;
const PART: usize = 250_000_000;

/// Bytes that a process shares with another one.
pub(crate) const SHARED: usize = 1 << 30;

/// Keeps one block busy for so many nanoseconds.
const SPIN: &str = "
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 nanos)
{
    .reg .u64 %t<4>;
    .reg .pred %again;
    ld.param.u64 %t1, [nanos];
    mov.u64 %t2, %globaltimer;
    add.u64 %t2, %t2, %t1;
loop:
    mov.u64 %t3, %globaltimer;
    setp.lt.u64 %again, %t3, %t2;
    @%again bra loop;
    ret;
}
\0";

/// A handle of `cuda.h`.
type Handle = *mut c_void;
type IpcHandle = [u8; 64];

struct Cuda {
    library: Library,
    spin: Handle,
}

/// Calls a function of the driver, whose result has to be 0.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        let name = stringify!($name);
        // SAFETY: the types are those of `cuda.h` for this name, and every pointer is one to what its type says.
        let result = unsafe {
            let function = $library.get::<unsafe extern "C" fn($($type),*) -> c_int>(name.as_bytes())?;
            function($($argument),*)
        };
        ensure!(result == 0, "{name} says {result}");
    }};
}

impl Cuda {
    /// The first device.
    fn open() -> anyhow::Result<Self> {
        // SAFETY: loading the driver's own library runs nothing else than it.
        let library = unsafe { Library::new("libcuda.so.1") }.context("no CUDA driver")?;
        let (mut device, mut context): (c_int, Handle) = (0, null_mut());
        let (mut module, mut spin): (Handle, Handle) = (null_mut(), null_mut());
        call!(library, cuInit(0 => c_uint));
        call!(library, cuDeviceGet(&mut device => *mut c_int, 0 => c_int));
        call!(library, cuDevicePrimaryCtxRetain(&mut context => *mut Handle, device => c_int));
        call!(library, cuCtxSetCurrent(context => Handle));
        call!(library, cuModuleLoadData(&mut module => *mut Handle, SPIN.as_ptr().cast() => *const c_void));
        let name = c"spin".as_ptr();
        call!(library, cuModuleGetFunction(&mut spin => *mut Handle, module => Handle, name => *const c_char));
        Ok(Self { library, spin })
    }

    /// Is busy for so long.
    fn spin(&self, time: Duration) -> anyhow::Result<()> {
        let mut nanos = time.as_nanos() as u64;
        let mut parameters = [(&raw mut nanos).cast::<c_void>()];
        call!(self.library, cuLaunchKernel(
            self.spin => Handle, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, null_mut() => Handle, parameters.as_mut_ptr() => *mut *mut c_void,
            null_mut() => *mut *mut c_void
        ));
        call!(self.library, cuCtxSynchronize());
        Ok(())
    }

    fn spin_until(&self, end: Instant) -> anyhow::Result<()> {
        while Instant::now() < end {
            self.spin(Duration::from_millis(20))?;
        }
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> anyhow::Result<u64> {
        let mut address = 0u64;
        call!(self.library, cuMemAlloc_v2(&mut address => *mut u64, bytes => usize));
        Ok(address)
    }

    fn bursts(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        for cycle in 0..CYCLES {
            std::thread::sleep((CYCLE * cycle).saturating_sub(start.elapsed()));
            self.spin(BURST)?;
        }
        std::thread::sleep((CYCLE * CYCLES).saturating_sub(start.elapsed()));
        Ok(())
    }

    fn copy(&self) -> anyhow::Result<()> {
        let (target, mut source) = (self.allocate(PART)?, null_mut::<c_void>());
        call!(self.library, cuMemAllocHost_v2(&mut source => *mut *mut c_void, PART => usize));
        for _ in 0..COPIED / PART as u64 {
            call!(self.library, cuMemcpyHtoD_v2(target => u64, source => *const c_void, PART => usize));
        }
        Ok(())
    }

    /// Shares memory with a child, and both are busy.
    fn share(&self, time: Duration) -> anyhow::Result<()> {
        let (address, mut handle): (u64, IpcHandle) = (self.allocate(SHARED)?, [0; 64]);
        call!(self.library, cuIpcGetMemHandle(&mut handle => *mut IpcHandle, address => u64));
        let hex: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut child = part(&["cuda", "open", &hex])?.spawn()?;
        self.spin_until(Instant::now() + time)?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn open_shared(&self, hex: &str) -> anyhow::Result<()> {
        let (mut handle, mut address): (IpcHandle, u64) = ([0; 64], 0);
        for (byte, digits) in handle.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits)?, 16)?;
        }
        call!(self.library, cuIpcOpenMemHandle_v2(&mut address => *mut u64, handle => IpcHandle, 1 => c_uint));
        self.spin_until(Instant::now() + Duration::from_secs(60))
    }
}

/// Whether there is something to work with.
pub(crate) fn check() -> anyhow::Result<()> {
    Cuda::open().map(drop)
}

/// Does it.
pub(crate) fn run<'a>(mut words: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let cuda = Cuda::open()?;
    match words.next().context("which work?")? {
        "bursts" => cuda.bursts(),
        "steady" => cuda.spin_until(Instant::now() + Duration::from_secs(6)),
        "copy" => cuda.copy(),
        "share" => cuda.share(Duration::from_secs(6)),
        "open" => cuda.open_shared(words.next().context("what is shared?")?),
        other => anyhow::bail!("no work is called {other}"),
    }
}
