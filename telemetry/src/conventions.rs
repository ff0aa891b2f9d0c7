//! The metrics of OpenTelemetry's semantic conventions, version 1.44.0, that fields are called by: units, and what they are.

/// A metric of the conventions.
pub(crate) struct Convention {
    pub(crate) name: &'static str,
    /// As UCUM writes it.
    pub(crate) unit: &'static str,
    pub(crate) description: &'static str,
}

/// The metric of this name.
pub(crate) fn of(name: &str) -> Option<&'static Convention> {
    CONVENTIONS.iter().find(|convention| convention.name == name)
}

const fn convention(name: &'static str, unit: &'static str, description: &'static str) -> Convention {
    Convention { name, unit, description }
}

/// One description for all that share a metric; what each of them is, its field says.
pub(crate) const CONVENTIONS: [Convention; 41] = [
    convention("container.cpu.usage", "{cpu}", "Cores that the job's cgroup used"),
    convention("container.disk.io", "By", "Bytes that the job's cgroup read and wrote"),
    convention("container.memory.rss", "By", "Anonymous memory of the job's cgroup"),
    convention("container.memory.usage", "By", "Memory of the job's cgroup, with its page cache"),
    convention("container.memory.working_set", "By", "Memory of the job's cgroup that cannot easily be given back"),
    convention("hw.energy", "J", "Energy that a GPU or a domain of the processor took"),
    convention("hw.errors", "{error}", "Memory errors of a GPU"),
    convention("hw.fan.speed_ratio", "1", "Speed of a GPU's fan as a share of the highest"),
    convention("hw.gpu.memory.limit", "By", "Memory that a GPU has"),
    convention("hw.gpu.memory.usage", "By", "Memory of a GPU that is in use"),
    convention("hw.gpu.memory.utilization", "1", "Share of a GPU's memory that is in use"),
    convention("hw.gpu.utilization", "1", "Share of the time in which a part of a GPU was at work"),
    convention("hw.power", "W", "Power that a GPU or a domain of the processor takes"),
    convention("hw.temperature", "Cel", "Temperature of a GPU"),
    convention("process.context_switches", "{context_switch}", "Context switches of the job's processes"),
    convention("process.cpu.time", "s", "CPU time of the job's processes"),
    convention("process.disk.io", "By", "Bytes that the job's processes read from and wrote to storage"),
    convention("process.memory.usage", "By", "Resident memory of the job's processes"),
    convention("process.network.io", "By", "Bytes of the job's own network namespaces"),
    convention("process.paging.faults", "{fault}", "Page faults of the job's processes"),
    convention("process.thread.count", "{thread}", "Threads of the job's processes"),
    convention("system.cpu.frequency", "Hz", "Frequency of a processor"),
    convention("system.cpu.logical.count", "{cpu}", "Logical processors"),
    convention("system.cpu.time", "s", "CPU time of the machine"),
    convention("system.cpu.utilization", "1", "Share of the time in which a processor was busy"),
    convention("system.disk.io", "By", "Bytes read from and written to disks"),
    convention("system.disk.limit", "By", "Size of a disk"),
    convention("system.filesystem.limit", "By", "Size of a file system"),
    convention("system.filesystem.usage", "By", "Bytes of a file system by state"),
    convention("system.filesystem.utilization", "1", "Share of a file system that is in use"),
    convention("system.memory.limit", "By", "Memory that the kernel manages"),
    convention("system.memory.linux.available", "By", "Memory that programs can get without swapping"),
    convention("system.memory.linux.shared", "By", "Memory that programs share, and files in memory"),
    convention("system.memory.usage", "By", "Memory of the machine by state"),
    convention("system.memory.utilization", "1", "Share of the machine's memory by state"),
    convention("system.network.errors", "{error}", "Errors of network interfaces"),
    convention("system.network.io", "By", "Bytes of network interfaces"),
    convention("system.network.packet.dropped", "{packet}", "Packets that network interfaces dropped"),
    convention("system.paging.usage", "By", "Swap space by state"),
    convention("system.paging.utilization", "1", "Share of the swap space by state"),
    convention("system.process.count", "{process}", "Processes of the machine"),
];
