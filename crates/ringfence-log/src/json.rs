//! Events as JSON objects: `time`, `level`, `component`, `message`, and their fields.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// One JSON object per event.
pub(crate) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut object = JsonFields(Map::new());
        let mut time = String::new();
        tracing_subscriber::fmt::time::SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        object.0.insert("time".into(), time.into());
        object.0.insert("level".into(), metadata.level().as_str().to_ascii_lowercase().into());
        object.0.insert("component".into(), metadata.target().into());
        event.record(&mut object);
        if metadata.is_span() {
            let stages = context.event_scope().into_iter().flat_map(|scope| scope.from_root());
            let stages: Vec<&str> = stages.map(|stage| stage.name()).collect();
            object.0.insert("message".into(), stages.join(":").into());
        }
        writeln!(writer, "{}", Value::Object(object.0))
    }
}

/// The rest of an object with the time, level and component of a line that is too long.
pub(crate) fn without_fields(line: &str) -> String {
    let mut object: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
    object.retain(|name, _| ["time", "level", "component"].contains(&name.as_str()));
    object.insert("message".into(), "the event is too long for a line".into());
    Value::Object(object).to_string().split_off(1)
}

struct JsonFields(Map<String, Value>);

impl Visit for JsonFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}
