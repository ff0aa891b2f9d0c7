//! What reads bytes of strangers, for the fuzz targets. Not for use.

/// What a metadata service answers, whatever it is asked: what is taken of it fits a field.
pub fn metadata_answer(bytes: &[u8]) {
    for cloud in crate::cloud::of_answer(bytes) {
        let fields = serde_json::to_value(cloud).unwrap_or_default();
        let texts = fields.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_str());
        texts.for_each(|text| assert!(text.len() < 256 && text.bytes().all(|byte| byte.is_ascii_graphic())));
    }
}
