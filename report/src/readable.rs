//! Sections of a sample, as far as they can be read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use resource_tracker_core::{Sample, Section};
use serde::de::DeserializeOwned;

use crate::fields::Fields;

fn taken_over<T: Fields>(whole: &T::Whole) -> T {
    let mut fields = T::default();
    fields.take_over(whole);
    fields
}

/// What could not be read: by section how often, and the first error.
#[derive(Debug, Default)]
pub struct Readable {
    problems: BTreeMap<&'static str, (u64, String)>,
}

impl Readable {
    /// Section `T` of the first source that wrote it.
    pub fn first<'a, T: Section + DeserializeOwned>(&mut self, sample: &'a Sample) -> Option<Cow<'a, T>> {
        // A section of this type is there as it is: nothing is parsed or copied.
        match sample.get() {
            Some(section) => Some(Cow::Borrowed(section)),
            // All are looked at, so that each that cannot be read is counted.
            None if sample.has_json() => {
                sample.read_all::<T>().filter_map(|section| self.read(section)).reduce(|first, _| first)
            }
            None => None,
        }
    }

    /// The fields `T` of a section, of the first source that wrote it.
    pub fn first_fields<T: Fields>(&mut self, sample: &Sample) -> Option<T> {
        match sample.get::<T::Whole>() {
            Some(whole) => Some(taken_over(whole)),
            None => self.first::<T>(sample).map(Cow::into_owned),
        }
    }

    /// The fields `T` of a section, of all sources that wrote it, in place of what was in the list.
    pub fn fill_fields<T: Fields>(&mut self, sample: &Sample, list: &mut Vec<T>) {
        let mut count = 0;
        for whole in sample.all::<T::Whole>() {
            match list.get_mut(count) {
                Some(fields) => fields.take_over(whole),
                None => list.push(taken_over(whole)),
            }
            count += 1;
        }
        list.truncate(count);
        if sample.has_json() {
            list.extend(self.all::<T>(sample).into_iter().map(Cow::into_owned));
        }
    }

    /// Section `T` of all sources that wrote it.
    pub fn all<'a, T: Section + DeserializeOwned>(&mut self, sample: &'a Sample) -> Vec<Cow<'a, T>> {
        sample.read_all::<T>().filter_map(|section| self.read(section)).collect()
    }

    fn read<'a, T: Section>(&mut self, section: serde_json::Result<Cow<'a, T>>) -> Option<Cow<'a, T>> {
        let count = |error: serde_json::Error| {
            self.problems.entry(T::NAME).or_insert_with(|| (0, error.to_string())).0 += 1;
        };
        section.map_err(count).ok()
    }

    /// A sentence for each section that could not be read in some samples. `them` is what lacks it there: "figures".
    pub fn problems(&self, them: &str) -> impl Iterator<Item = String> {
        self.problems.iter().map(move |(section, (count, error))| {
            let times = if *count == 1 { "time" } else { "times" };
            format!("{section} could not be read {count} {times}, and is not in the {them} there: {error}")
        })
    }
}
