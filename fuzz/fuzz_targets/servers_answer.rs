//! What a service answers that is asked for the cheapest machine, or for the prices of one.
#![no_main]

use resource_tracker_report::{Advice, ServerRequirement, Look, Offer, cheapest_server, least_price, offer_markdown, offer_text};

libfuzzer_sys::fuzz_target!(|answer: &[u8]| {
    let advice = serde_json::json!({
        "cores": 3, "cores_used": 2.5, "memory_mib": 1152, "memory_peak_mib": 891.0, "gpus": 1, "gpu_memory_mib": 5120,
        "slurm": "", "kubernetes": "", "docker": "",
    });
    let advice: Advice = serde_json::from_value(advice).expect("they are all its fields");
    let present = least_price("it", answer, Some("eu-1")).ok().flatten();
    assert!(present.is_none_or(|usd| usd > 0.0 && usd.is_finite()));
    let Ok(server) = cheapest_server("it", answer, &advice) else { return };
    assert!(server.vcpus >= 3 && server.memory_mib >= 1152 && (1..=1_000_000).contains(&server.gpus) && server.usd_per_hour > 0.0);
    let offer = Offer::new(ServerRequirement { advice, wall_secs: 3600.0, cloud: None }, server, present);
    for said in [offer_text(&offer, Look { width: 0, colour: false }), offer_markdown(&offer)] {
        assert!(
            !said.contains(|char: char| char.is_control() && char != '\n') && said.lines().count() == 1,
            "{said:?}"
        );
    }
});
