//! The variables that OpenTelemetry's exporters have. Those for metrics go before those for all signals.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use percent_encoding::percent_decode_str;

use super::preferences::{Compression, Temporality};
use crate::secret::Secret;

const ALL: &str = "OTEL_EXPORTER_OTLP_";
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_";
/// The path of metrics below an address for all signals.
const PATH: &str = "v1/metrics";
const NO_LIMIT: Duration = Duration::from_secs(3600);

/// Where the variables are.
pub(super) struct Environment<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl Environment<'static> {
    /// Those of this process.
    pub(super) fn of_process() -> Self {
        // What is no text is refused where it is used.
        Self(&|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }
}

impl Environment<'_> {
    /// The value of a variable, and its name. An empty one counts as none.
    fn of(&self, name: &str) -> Option<(String, String)> {
        let value = (self.0)(name)?;
        let value = value.trim();
        (!value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    }

    fn exporter(&self, name: &str) -> Option<(String, String)> {
        self.of(&format!("{METRICS}{name}")).or_else(|| self.of(&format!("{ALL}{name}")))
    }

    /// Where metrics are sent, and where it is said. The address for all signals is one of a folder.
    pub(super) fn endpoint(&self) -> Option<(String, String)> {
        self.of(&format!("{METRICS}ENDPOINT")).or_else(|| {
            let (name, base) = self.of(&format!("{ALL}ENDPOINT"))?;
            Some((name, below(&base)))
        })
    }

    /// Headers of each request: `name=value,name=value`, where a value is percent-encoded.
    ///
    /// # Errors
    /// When it has another form. The message repeats no value.
    pub(super) fn headers(&self) -> anyhow::Result<Vec<(String, Secret)>> {
        let Some((variable, text)) = self.exporter("HEADERS") else { return Ok(Vec::new()) };
        let mut headers = Vec::new();
        for (number, pair) in text.split(',').map(str::trim).enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let form = || format!("{variable}: header {} is not of the form name=value", number + 1);
            let (name, value) = pair.split_once('=').with_context(form)?;
            let name = name.trim().to_ascii_lowercase();
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            anyhow::ensure!(!name.is_empty() && name.chars().all(is_token), form());
            let value = percent_decode_str(value.trim()).decode_utf8().ok().with_context(form)?;
            let is_value = value.chars().all(|c| c == ' ' || c.is_ascii_graphic());
            anyhow::ensure!(is_value, "{variable}: the value of {name} has characters that no header has");
            headers.push((name, Secret::new(value)));
        }
        Ok(headers)
    }

    /// How long a request may take. 0 is no limit, which is an hour here.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let timeout = milliseconds(self.exporter("TIMEOUT")?)?;
        Some(if timeout.is_zero() { NO_LIMIT } else { timeout })
    }

    /// Time between two requests.
    pub(super) fn interval(&self) -> Option<Duration> {
        milliseconds(self.of("OTEL_METRIC_EXPORT_INTERVAL")?).filter(|interval| !interval.is_zero())
    }

    pub(super) fn compression(&self) -> Option<Compression> {
        let known = [("gzip", Compression::Gzip), ("none", Compression::None)];
        one_of(self.exporter("COMPRESSION")?, &known)
    }

    pub(super) fn temporality(&self) -> Option<Temporality> {
        // What is observed, as all is here, is cumulative for `lowmemory`.
        let known = [
            ("cumulative", Temporality::Cumulative),
            ("delta", Temporality::Delta),
            ("lowmemory", Temporality::Cumulative),
        ];
        one_of(self.of(&format!("{METRICS}TEMPORALITY_PREFERENCE"))?, &known)
    }

    /// Certificates of whom to trust beside those of the system, and where it is said.
    pub(super) fn certificate(&self) -> Option<(String, PathBuf)> {
        let (name, path) = self.exporter("CERTIFICATE")?;
        Some((name, path.into()))
    }

    /// Warns of a protocol that is not spoken.
    pub(super) fn check_protocol(&self) {
        if let Some((name, protocol)) = self.exporter("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf") {
            log::warn!("otlp: {name} is {protocol:?}, but metrics are sent by http/protobuf");
        }
    }

    /// Attributes of the resource: `name=value,name=value`, where a value is percent-encoded, and the name of the service.
    pub(super) fn resource(&self) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let text = self.of(NAME).map(|(_, text)| text).unwrap_or_default();
        let pairs = text.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').filter(|(name, _)| !name.trim().is_empty())?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            Some((name.trim().to_owned(), value.into_owned()))
        });
        let attributes: Option<Vec<_>> = pairs.collect();
        if attributes.is_none() {
            log::warn!("otlp: {NAME} is not of the form name=value,name=value; it is not used");
        }
        let service = self.of("OTEL_SERVICE_NAME").map(|(_, name)| ("service.name".to_owned(), name));
        attributes.unwrap_or_default().into_iter().chain(service).collect()
    }
}

/// The address of metrics below one of all signals.
pub(super) fn below(base: &str) -> String {
    format!("{}/{PATH}", base.trim_end_matches('/'))
}

fn milliseconds((name, text): (String, String)) -> Option<Duration> {
    let number = text.parse().map(Duration::from_millis);
    number.map_err(|_| log::warn!("otlp: {name} is {text:?}, which is no number of milliseconds; it is not used")).ok()
}

fn one_of<T: Copy>((name, text): (String, String), known: &[(&str, T)]) -> Option<T> {
    let found = known.iter().find(|(word, _)| text.eq_ignore_ascii_case(word)).map(|(_, value)| *value);
    if found.is_none() {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        log::warn!("otlp: {name} is {text:?}, which is not used; it can be {}", words.join(", "));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(variables: &[(&str, &str)], look: impl FnOnce(&Environment<'_>) -> T) -> T {
        let find = |name: &str| Some(variables.iter().find(|(of, _)| *of == name)?.1.to_owned());
        look(&Environment(&find))
    }

    #[test]
    fn variables_for_metrics_go_first() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/");
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b/x");
        let endpoint = |variables: &[_]| with(variables, |environment| environment.endpoint().map(|(_, url)| url));
        assert_eq!(endpoint(&[all]).as_deref(), Some("http://a:4318/v1/metrics"));
        assert_eq!(endpoint(&[all, own]).as_deref(), Some("http://b/x"), "as it is");
        assert_eq!(endpoint(&[all, (own.0, " ")]).as_deref(), Some("http://a:4318/v1/metrics"), "empty is unset");
        assert_eq!(endpoint(&[]), None);
        let timeout = |variables: &[_]| with(variables, |environment| environment.timeout());
        assert_eq!(timeout(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "1500")]), Some(Duration::from_millis(1500)));
        assert_eq!(timeout(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "-1")]), None);
        assert_eq!(timeout(&[("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]), Some(NO_LIMIT));
    }

    #[test]
    fn headers_are_decoded_and_never_repeated() -> anyhow::Result<()> {
        let headers = |text| with(&[("OTEL_EXPORTER_OTLP_HEADERS", text)], |environment| environment.headers());
        let good = headers("Authorization=Bearer%20se%2Ccret , x-scope = 7,")?;
        let expected = [("authorization", "Bearer se,cret"), ("x-scope", "7")];
        assert!(good.iter().map(|(name, value)| (name.as_str(), value.expose())).eq(expected));
        for bad in ["secret", "=secret", "a b=secret", "a=secret%0d%0ab: c", "a=secret%ff"] {
            let error = headers(bad).map(|_| ()).map_err(|error| format!("{error:#}"));
            assert!(error.as_ref().is_err_and(|error| !error.contains("secret")), "{bad}: {error:?}");
        }
        Ok(())
    }

    #[test]
    fn preferences() {
        let of = |text| {
            with(&[("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", text)], |environment| {
                environment.temporality()
            })
        };
        assert_eq!(of("Delta"), Some(Temporality::Delta));
        assert_eq!(of("lowmemory"), Some(Temporality::Cumulative));
        assert_eq!(of("sometimes"), None);
        let resource =
            with(&[("OTEL_RESOURCE_ATTRIBUTES", "a=b%20c, f = g,"), ("OTEL_SERVICE_NAME", "train")], |environment| {
                environment.resource()
            });
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(resource, [pair("a", "b c"), pair("f", "g"), pair("service.name", "train")]);
        for bad in ["a=b,c", "=b", "a=%ff"] {
            assert!(
                with(&[("OTEL_RESOURCE_ATTRIBUTES", bad)], |environment| environment.resource()).is_empty(),
                "{bad}"
            );
        }
    }
}
