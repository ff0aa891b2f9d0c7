//! What all metrics of a run are about: OpenTelemetry's resource.

use std::collections::BTreeMap;

use resource_tracker_core::Run;
use serde_json::{Map, Value as Json};

/// Members of sections, and the attributes of the resource that they are.
const MEMBERS: [(&str, &str); 21] = [
    ("/cloud/cloud_account_id", "cloud.account.id"),
    ("/cloud/cloud_instance_type", "host.type"),
    ("/cloud/cloud_region_id", "cloud.region"),
    ("/cloud/cloud_vendor_id", "cloud.provider"),
    ("/cloud/cloud_zone_id", "cloud.availability_zone"),
    ("/host/host_cpu_model", "host.cpu.model.name"),
    ("/host/host_id", "host.id"),
    ("/host/host_ip", "host.ip"),
    ("/host/host_name", "host.name"),
    ("/run/id", "service.instance.id"),
    ("/run/labels/container_image", "container.image.name"),
    ("/run/labels/env", "deployment.environment.name"),
    ("/run/labels/executor", "resource_tracker.executor"),
    ("/run/labels/external_run_id", "resource_tracker.external_run_id"),
    ("/run/labels/job_name", "service.name"),
    ("/run/labels/language", "process.runtime.name"),
    ("/run/labels/orchestrator", "resource_tracker.orchestrator"),
    ("/run/labels/project_name", "service.namespace"),
    ("/run/labels/stage_name", "resource_tracker.stage_name"),
    ("/run/labels/task_name", "resource_tracker.task_name"),
    ("/run/labels/team", "resource_tracker.team"),
];

/// Clouds that OpenTelemetry calls otherwise.
const CLOUDS: [(&str, &str); 3] = [("alicloud", "alibaba_cloud"), ("hcloud", "hetzner"), ("oci", "oracle_cloud")];

/// What all metrics of a run are about. It becomes known with its first samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource {
    attributes: BTreeMap<String, String>,
}

impl Resource {
    /// What is known when the run begins: its job, and the process.
    pub fn of_run(run: &Run) -> Self {
        let mut resource = Self::default();
        let program = run.command.first().and_then(|word| std::path::Path::new(word).file_name());
        let name = program.map_or_else(|| run.program.into(), |name| name.to_string_lossy());
        resource.set("service.name", &name);
        resource.set("process.executable.name", &name);
        if let Some(pid) = run.pid {
            resource.set("process.pid", &pid.to_string());
        }
        let group = &run.job.group;
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        for (name, value) in [
            ("group.id", group.id.clone()),
            ("group.rank", number(group.rank)),
            ("group.local_rank", number(group.local_rank)),
            ("group.node", group.node.clone()),
        ] {
            if let Some(value) = value {
                resource.set(&format!("resource_tracker.{name}"), &value);
            }
        }
        for (name, value) in &run.job.tags {
            resource.set(&format!("resource_tracker.tag.{name}"), value);
        }
        resource
    }

    /// Takes in what a sample says of it. Whether anything is new.
    pub fn learn(&mut self, sample: &Map<String, Json>) -> bool {
        let mut is_new = false;
        for (path, attribute) in MEMBERS {
            let mut parts = path.split('/').skip(1);
            let section = parts.next().and_then(|section| sample.get(section));
            let value = parts.try_fold(section, |value, part| Some(value?.get(part))).flatten();
            let Some(value) = value.and_then(Json::as_str).filter(|value| !value.is_empty()) else { continue };
            let cloud = CLOUDS.iter().find(|(ours, _)| attribute == "cloud.provider" && *ours == value);
            is_new |= self.set(attribute, cloud.map_or(value, |(_, theirs)| theirs));
        }
        is_new
    }

    /// Sets an attribute. Whether it is new.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        self.attributes.insert(name.to_owned(), value.to_owned()).as_deref() != Some(value)
    }

    /// Its attributes, by their names.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What Prometheus calls `job`: the service, in its namespace if it has one.
    pub fn job(&self) -> String {
        let of = |name: &str| self.attributes.get(name).map(String::as_str);
        let name = of("service.name").unwrap_or_default();
        of("service.namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
    }

    /// What Prometheus calls `instance`: the run.
    pub fn instance(&self) -> &str {
        self.attributes.get("service.instance.id").map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_is_what_the_run_and_its_samples_say() {
        let mut run = Run::new("tracker", "1");
        run.command = vec!["/usr/bin/python3".into(), "train.py".into()];
        run.pid = Some(7);
        run.job.tags.insert("seed".into(), "3".into());
        let mut resource = Resource::of_run(&run);
        assert_eq!((resource.job().as_str(), resource.instance()), ("python3", ""));
        let sample = json!({ "run": { "id": "r-1", "labels": { "job_name": "nightly", "project_name": "shop", "env": "" } },
            "host": { "host_name": 5 }, "cloud": { "cloud_vendor_id": "alicloud", "cloud_region_id": null } });
        assert!(resource.learn(sample.as_object().unwrap()) && !resource.learn(sample.as_object().unwrap()));
        assert_eq!((resource.job().as_str(), resource.instance()), ("shop/nightly", "r-1"));
        let expected = [
            ("cloud.provider", "alibaba_cloud"),
            ("process.executable.name", "python3"),
            ("process.pid", "7"),
            ("resource_tracker.tag.seed", "3"),
            ("service.instance.id", "r-1"),
            ("service.name", "nightly"),
            ("service.namespace", "shop"),
        ];
        assert_eq!(resource.attributes().collect::<Vec<_>>(), expected);
        assert_eq!(Resource::of_run(&Run::new("tracker", "1")).job(), "tracker");
    }
}
