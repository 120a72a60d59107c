//! Volumes of a described pod.

use pod::core::Volume;
use serde_json::Value;

use crate::text::Text;

/// All volumes, each with its kind and the kind's own fields.
pub(super) fn list(text: &mut Text, volumes: &[Volume]) {
    if volumes.is_empty() {
        return;
    }
    text.heading("Volumes");
    for volume in volumes {
        text.field(1, &volume.name, &source(volume));
    }
}

/// The one field beside the name is the volume's kind.
fn source(volume: &Volume) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(volume) else {
        return "unknown".to_owned();
    };
    let mut sources = fields.into_iter().filter(|(key, _)| key != "name");
    let Some((kind, Value::Object(settings))) = sources.next() else {
        return "emptyDir".to_owned();
    };
    let setting = |(key, value): (String, Value)| match value {
        Value::String(value) => format!(" {key}={value}"),
        value => format!(" {key}={value}"),
    };
    settings
        .into_iter()
        .fold(kind, |text, pair| text + &setting(pair))
}
