//! What each call of NVML takes on the GPUs of this machine, which only they can show; and whether the figures are
//! right.

mod calls;
mod check;
mod cuda;

use std::time::Instant;

use calls::{CALLS, TIMES, open, time};

use crate::table;

pub(crate) use check::print as check;
pub(crate) use cuda::run as work;

pub(crate) fn print() -> anyhow::Result<()> {
    let start = Instant::now();
    let nvml = match open() {
        Ok(nvml) => nvml,
        Err(error) => {
            println!("No GPU that NVML knows ({error}), so its calls are not timed.\n");
            return Ok(());
        }
    };
    let init = start.elapsed();
    for index in 0..nvml.device_count()?.min(1) {
        let gpu = nvml.device_by_index(index)?;
        let driver = nvml.sys_driver_version().unwrap_or_default();
        println!("{}, driver {driver}; the library was ready after {:.1} ms.\n", gpu.name()?, init.as_secs_f64() * 1e3);
        table::head("Calls of NVML, of one device", ["call", "median, µs", "longest, µs", "answered"]);
        for (name, call) in CALLS {
            let (median, longest, answered) = time(call, &gpu);
            table::row([
                name.into(),
                format!("{median:.0}"),
                format!("{longest:.0}"),
                format!("{answered} of {TIMES}"),
            ]);
        }
        table::note("Each call is made 50 times, 5 ms apart.");
    }
    Ok(())
}
