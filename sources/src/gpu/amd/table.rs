//! What a table of `gpu_metrics` says, each version in its own units (`kgd_pp_interface.h` of the kernel).

use libamdgpu_top::AMDGPU::{GpuMetrics, MetricsInfo, ThrottlerBit};

/// What is used of a table, in this program's units.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Values {
    pub(super) utilization_pct: Option<f64>,
    pub(super) celsius: Option<f64>,
    pub(super) watts: Option<f64>,
    /// An accumulator.
    pub(super) energy: Option<u64>,
    /// Whether it counts 2^-16 J, as tables say from 1.4 on.
    pub(super) is_energy_of_known_unit: bool,
    pub(super) throttle: Option<Throttle>,
}

/// Which limits hold the clocks back.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Throttle {
    /// Those in effect at the moment.
    Names(Vec<String>),
    /// How long each was in effect.
    Residencies([u32; 5]),
}

impl Values {
    /// `None`: of a version that came after this program.
    pub(super) fn of(raw: &[u8]) -> Option<Self> {
        let table = GpuMetrics::from_raw(raw);
        // The tables of APUs before 2.4 say no units, and these differ: power is in W or in mW, use in percent or in
        // hundredths of one.
        let (pct, celsius, watts) = match &table {
            GpuMetrics::Unknown => return Self::of_newer(raw),
            GpuMetrics::V2_0(_) | GpuMetrics::V2_1(_) | GpuMetrics::V2_2(_) | GpuMetrics::V2_3(_) => (None, None, None),
            GpuMetrics::V2_4(table) => (
                known(table.average_gfx_activity).map(|centi| centi / 100.0),
                known(table.temperature_gfx).map(|centi| centi / 100.0),
                known(table.average_socket_power).map(|milliwatts| milliwatts / 1e3),
            ),
            GpuMetrics::V3_0(table) => {
                let milliwatts = Some(table.average_socket_power).filter(|milliwatts| *milliwatts != u32::MAX);
                (known(table.average_gfx_activity), None, milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3))
            }
            table => {
                let average = table.get_average_socket_power().and_then(|watts| u16::try_from(watts).ok());
                let watts = average.or(table.get_current_socket_power()).and_then(known);
                let celsius = table.get_temperature_edge().and_then(known);
                let hotspot = || table.get_temperature_hotspot().and_then(known);
                (table.get_average_gfx_activity().and_then(known), celsius.or_else(hotspot), watts)
            }
        };
        let (energy, is_energy_of_known_unit) = match &table {
            GpuMetrics::V1_1(table) => (table.energy_accumulator, false),
            GpuMetrics::V1_2(table) => (table.energy_accumulator, false),
            GpuMetrics::V1_3(table) => (table.energy_accumulator, false),
            GpuMetrics::V1_4(table) => (table.energy_accumulator, true),
            GpuMetrics::V1_5(table) => (table.energy_accumulator, true),
            _ => (u64::MAX, false),
        };
        let limits = table.get_indep_throttle_status().and(table.get_throttle_status_info());
        let name = |limit: &ThrottlerBit| format!("{limit:?}").to_lowercase();
        let names = limits.map(|limits| limits.get_all_throttler().iter().map(name).collect());
        Some(Self {
            utilization_pct: pct.filter(|pct| *pct <= 100.0),
            celsius,
            watts,
            energy: counted(energy),
            is_energy_of_known_unit,
            throttle: names.map(Throttle::Names),
        })
    }

    /// Tables 1.6 to 1.8, which differ in one field before those that are used, and behind them.
    fn of_newer(raw: &[u8]) -> Option<Self> {
        let energy = match raw.get(2..4)? {
            [1, 6] => 16,
            [1, 7 | 8] => 24,
            _ => return None,
        };
        let short = |at: usize| known(u16::from_le_bytes(raw.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        // Behind the clocks and the number of cycles over which they were counted.
        let residency = |place: usize| word(energy + 20 + 4 * place).filter(|residency| *residency != u32::MAX);
        let residencies: Vec<u32> = (0..5).filter_map(residency).collect();
        Some(Self {
            utilization_pct: short(12).filter(|pct| *pct <= 100.0),
            celsius: short(4),
            watts: short(10),
            energy: counted(u64::from_le_bytes(raw.get(energy..energy + 8)?.try_into().ok()?)),
            is_energy_of_known_unit: true,
            throttle: residencies.try_into().ok().map(Throttle::Residencies),
        })
    }
}

/// A firmware writes all ones where it has no value.
fn known(value: u16) -> Option<f64> {
    Some(value).filter(|value| *value != u16::MAX).map(f64::from)
}

/// The second die of a card counts nothing.
fn counted(energy: u64) -> Option<u64> {
    Some(energy).filter(|energy| !matches!(*energy, 0 | u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of all ones, which is what the driver fills in before the values (`smu_cmn_init_soft_gpu_metrics`).
    fn table(size: u16, version: [u8; 2], values: &[(usize, &[u8])]) -> Vec<u8> {
        let mut table = vec![0xff; usize::from(size)];
        table[..2].copy_from_slice(&size.to_le_bytes());
        table[2..4].copy_from_slice(&version);
        for (at, bytes) in values {
            table[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        table
    }

    /// `gpu_metrics_v3_0`: "time filtered GFX busy % [0-100]", "time filtered power used for PPT/STAPM [APU+dGPU] [mW]".
    #[test]
    fn a_table_of_milliwatts() {
        let activity = 4 + 2 * (2 + 16 + 1);
        // Behind 2 + 8 + 16 + 4 numbers of two bytes and the clock.
        let power = activity + 2 * (2 + 8 + 16 + 4) + 2 + 8;
        let raw = table(264, [3, 0], &[(activity, &37u16.to_le_bytes()), (power, &15_500u32.to_le_bytes())]);
        let values = Values::of(&raw).unwrap();
        assert_eq!((values.utilization_pct, values.watts), (Some(37.0), Some(15.5)));
        assert_eq!((values.energy, values.throttle), (None, None));
        assert_eq!(Values::of(&table(264, [3, 0], &[])), Some(Values::default()), "no value");
    }

    /// `gpu_metrics_v2_4`: "Temperature (unit: centi-Celsius)", "Utilization (unit: centi)", "Power/Energy (unit: mW)".
    #[test]
    fn a_table_of_hundredths() {
        let activity = 4 + 2 * (2 + 8 + 2);
        let power = activity + 2 * 2 + 8;
        let values = [(4, 4_450u16), (activity, 1_234), (power, 15_500)].map(|(at, value)| (at, value.to_le_bytes()));
        let values = values.each_ref().map(|(at, value)| (*at, &value[..]));
        let of_2_4 = Values::of(&table(168, [2, 4], &values)).unwrap();
        assert_eq!((of_2_4.utilization_pct, of_2_4.celsius, of_2_4.watts), (Some(12.34), Some(44.5), Some(15.5)));
        // Those before it say no units: `renoir_ppt.c` has W or mW by the firmware's version, `vangogh_ppt.c` mW.
        let of_2_2 = Values::of(&table(128, [2, 2], &values)).unwrap();
        assert_eq!((of_2_2.utilization_pct, of_2_2.celsius, of_2_2.watts), (None, None, None));
    }

    /// `gpu_metrics_v1_4`: "Energy (15.259uJ (2^-16) units)"; and of its throttle status `smu_v13_0_6_ppt.c` says "Throttle
    /// status is not reported through metrics now", which it fills with 0.
    #[test]
    fn a_table_that_counts_energy() {
        let values: [(usize, &[u8]); 5] = [
            (4, &61u16.to_le_bytes()),
            (10, &550u16.to_le_bytes()),
            (12, &99u16.to_le_bytes()),
            (24, &(1_000u64 << 16).to_le_bytes()),
            (40, &0u32.to_le_bytes()),
        ];
        let values = Values::of(&table(288, [1, 4], &values)).unwrap();
        assert_eq!((values.celsius, values.watts, values.utilization_pct), (Some(61.0), Some(550.0), Some(99.0)));
        assert_eq!((values.energy, values.is_energy_of_known_unit), (Some(1_000 << 16), true));
        assert_eq!(values.throttle, None, "not told, and not none");
    }

    /// `gpu_metrics_v1_6` and `gpu_metrics_v1_7`: "Accumulated throttler residencies" behind the energy; 1.7 has
    /// `mem_max_bandwidth` before it.
    #[test]
    fn tables_that_count_throttling() {
        for (minor, energy) in [(6, 16), (7, 24), (8, 24)] {
            let residencies = [7u32, 53_994, 0, 1, 2].map(u32::to_le_bytes).concat();
            let values: [(usize, &[u8]); 5] = [
                (4, &61u16.to_le_bytes()),
                (10, &750u16.to_le_bytes()),
                (12, &100u16.to_le_bytes()),
                (energy, &65_536u64.to_le_bytes()),
                (energy + 8 + 8 + 4, &residencies),
            ];
            let values = Values::of(&table(1024, [1, minor], &values)).unwrap();
            assert_eq!((values.celsius, values.watts, values.utilization_pct), (Some(61.0), Some(750.0), Some(100.0)));
            assert_eq!((values.energy, values.is_energy_of_known_unit), (Some(65_536), true));
            assert_eq!(values.throttle, Some(Throttle::Residencies([7, 53_994, 0, 1, 2])));
        }
        assert_eq!(Values::of(&table(1024, [1, 9], &[])), None, "a list of attributes");
        assert_eq!(Values::of(&table(30, [1, 8], &[])), None, "too short");
    }

    /// On SMU 13.0.0 and 13.0.7 the driver sets the bit of the hot spot also on idle cards (`throttle_status` of libdrm_amdgpu_sys).
    #[test]
    fn a_hot_spot_that_is_cold_is_no_reason() {
        let hotspot = (1u64 << 36 | 1).to_le_bytes();
        let at = |celsius: u16| Values::of(&table(120, [1, 3], &[(6, &celsius.to_le_bytes()), (112, &hotspot)]));
        let names = |names: &[&str]| Some(Throttle::Names(names.iter().map(|name| (*name).to_owned()).collect()));
        assert_eq!(at(48).unwrap().throttle, names(&["ppt0"]));
        assert_eq!(at(105).unwrap().throttle, names(&["ppt0", "temp_hotspot"]));
    }
}
