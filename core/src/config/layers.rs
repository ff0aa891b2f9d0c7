//! Merges what was set into one tree of values, which knows where each is from. The order in which things were set
//! matters only within a rank.

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde_json::Value as Json;

use super::error::{ConfigError, ConfigErrorKind, suggestion};
use super::origin::{Origin, Rank};
use crate::registry::{ComponentKind, Registry};

/// Something that was set.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) origin: Origin,
    pub(super) what: Set,
}

#[derive(Debug, Clone)]
pub(super) enum Set {
    /// Values under their keys.
    Values(Dict),
    /// A value for a key that must exist.
    Assignment { key: Vec<String>, value: Value },
    /// A key in a variable's name, which has no hyphens.
    Variable { key: Vec<String>, value: Value },
    /// A component, by its name alone.
    Switch { name: String, on: bool },
}

impl Set {
    /// Whether it sets this key.
    pub(super) fn sets(&self, key: &[String]) -> bool {
        match self {
            Self::Values(values) => {
                let mut parts = key.iter();
                let first = parts.next().and_then(|part| values.get(part));
                parts.fold(first, |value, part| value?.as_dict()?.get(part)).is_some()
            }
            Self::Assignment { key: set, .. } | Self::Variable { key: set, .. } => set == key,
            Self::Switch { .. } => false,
        }
    }
}

/// The layers as one.
#[derive(Debug, Clone)]
pub(super) struct Merged {
    pub(super) all: Tree,
    /// The assignments alone.
    pub(super) assigned: Tree,
    /// The variables alone.
    pub(super) variables: Tree,
    /// The first component that was to be switched and is not there.
    pub(super) unknown: Option<ConfigError>,
    /// What was set and counts for nothing: the key that the site enforces, and who set it.
    pub(super) overruled: Vec<(Vec<String>, String)>,
}

/// Values under their keys, each of which knows its origin.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    layers: Figment,
    /// What comes of the layers, which is asked for often.
    values: Option<Value>,
}

impl Tree {
    fn of(layers: Figment) -> Self {
        let values = layers.find_value("").ok();
        Self { layers, values }
    }

    fn find(&self, key: &str) -> Option<&Value> {
        self.values.as_ref()?.find_ref(key)
    }

    /// The value of a key.
    pub(super) fn value(&self, key: &str) -> Option<Json> {
        serde_json::to_value(self.find(key)?).ok()
    }

    /// Who set the value of a key.
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        Some(self.layers.get_metadata(self.find(key)?.tag())?.name.as_ref())
    }

    /// All values.
    pub(super) fn all(&self) -> Json {
        self.value("").unwrap_or_default()
    }
}

/// The layers while they are merged.
#[derive(Default)]
struct Merging {
    all: Figment,
    assigned: Figment,
    variables: Figment,
    unknown: Option<ConfigError>,
    overruled: Vec<(Vec<String>, String)>,
}

/// Values of one origin.
struct Values {
    origin: String,
    values: Dict,
}

impl Provider for Values {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// Adds values, which count more than those that are there unless they are defaults.
fn join(before: Figment, origin: &Origin, values: Dict) -> Figment {
    let values = Values { origin: origin.name.clone(), values };
    if origin.rank == Rank::Default { before.join(values) } else { before.merge(values) }
}

/// Takes a key out of values, with what would hide it. Says whether something was there.
fn take_out(values: &mut Dict, key: &[String]) -> bool {
    let Some((first, rest)) = key.split_first() else { return false };
    match values.get_mut(first) {
        Some(Value::Dict(_, members)) if !rest.is_empty() => take_out(members, rest),
        Some(_) => values.remove(first).is_some(),
        None => false,
    }
}

/// One value at a key.
pub(super) fn at(key: &[String], value: Value) -> Dict {
    let nested = key.iter().rev().fold(value, |value, part| Dict::from([(part.clone(), value)]).into());
    nested.into_dict().unwrap_or_default()
}

impl Merged {
    /// `enforced`: keys that the site's file alone sets.
    pub(super) fn of(layers: &[Layer], enforced: &[Vec<String>], registry: &Registry) -> Self {
        let mut sorted: Vec<&Layer> = layers.iter().collect();
        sorted.sort_by_key(|layer| layer.origin.rank);
        let mut merged = Merging::of(&sorted, enforced, registry, None);
        let is_switch = |layer: &&Layer| matches!(layer.what, Set::Switch { .. });
        if sorted.iter().any(is_switch) {
            // A component can be added by any layer, also by one above the switch.
            merged = Merging::of(&sorted, enforced, registry, Some(&merged.components(registry)));
        }
        let Merging { all, assigned, variables, unknown, overruled } = merged;
        Self { all: Tree::of(all), assigned: Tree::of(assigned), variables: Tree::of(variables), unknown, overruled }
    }
}

impl Merging {
    fn of(
        layers: &[&Layer],
        enforced: &[Vec<String>],
        registry: &Registry,
        components: Option<&[(ComponentKind, String)]>,
    ) -> Self {
        let mut merged = Self::default();
        let mut overruled = Vec::new();
        for Layer { origin, what } in layers {
            let mut add = |figment: &mut Figment, mut values: Dict| {
                if origin.rank > Rank::Site {
                    let is_set = |key: &&Vec<String>| take_out(&mut values, key);
                    let keys = enforced.iter().filter(is_set);
                    overruled.extend(keys.map(|key| (key.clone(), origin.name.clone())));
                }
                *figment = join(std::mem::take(figment), origin, values);
            };
            match what {
                Set::Values(values) => add(&mut merged.all, values.clone()),
                Set::Assignment { key, value } => {
                    merged.assigned = join(merged.assigned, origin, at(key, value.clone()));
                    add(&mut merged.all, at(key, value.clone()));
                }
                Set::Variable { key, value } => {
                    let key = merged.with_hyphens(key, registry);
                    merged.variables = join(merged.variables, origin, at(&key, value.clone()));
                    add(&mut merged.all, at(&key, value.clone()));
                }
                Set::Switch { name, on } => {
                    let Some(components) = components else { continue };
                    match components.iter().find(|(_, known)| known == name) {
                        Some((kind, _)) => {
                            let key = [kind.table(), name, "enabled"].map(str::to_owned);
                            add(&mut merged.all, at(&key, (*on).into()));
                        }
                        None => {
                            let names: Vec<&str> = components.iter().map(|(_, name)| name.as_str()).collect();
                            let problem = suggestion("there is no such component", name, &names);
                            let error = ConfigError::new(ConfigErrorKind::UnknownComponent, &origin.name, problem);
                            merged.unknown.get_or_insert(error.with_value(format!("{name:?}")));
                        }
                    }
                }
            }
        }
        merged.overruled = overruled;
        merged
    }

    /// All components that there are: those of the registry, and those that were added under other names.
    fn components(&self, registry: &Registry) -> Vec<(ComponentKind, String)> {
        let of = |kind: ComponentKind| {
            let mut names: Vec<String> = registry.of(kind).iter().map(|known| known.name.to_owned()).collect();
            let added: Vec<String> = self.names(kind).into_iter().filter(|name| !names.contains(name)).collect();
            names.extend(added);
            names.into_iter().map(move |name| (kind, name))
        };
        ComponentKind::all().flat_map(of).collect()
    }

    /// The names under which components are configured.
    fn names(&self, kind: ComponentKind) -> Vec<String> {
        match self.all.find_value(kind.table()) {
            Ok(Value::Dict(_, tables)) => tables.into_keys().collect(),
            _ => Vec::new(),
        }
    }

    /// `SINKS__STDOUT_JSON__STREAM` is `sinks.stdout-json.stream`.
    fn with_hyphens(&self, key: &[String], registry: &Registry) -> Vec<String> {
        let mut key = key.to_vec();
        let kind = ComponentKind::all().find(|kind| key.first().is_some_and(|table| table == kind.table()));
        if let (Some(kind), Some(name)) = (kind, key.get_mut(1)) {
            // Known names come first, because a found file can have a component of nearly the same name.
            let known = registry.of(kind).into_iter().map(|component| component.name.to_owned());
            if let Some(meant) = known.chain(self.names(kind)).find(|known| known.replace('-', "_") == *name) {
                *name = meant;
            }
        }
        key
    }
}
