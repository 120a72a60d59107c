//! Single words of manifests: quantities and names of images.

use fuzz::{changed_text, texts};
use pod::image_reference::ImageReference;
use pod::quantity::Quantity;
use proptest::prelude::*;

proptest! {
    #[test]
    fn a_quantity_reads_as_it_is_shown(
        text in changed_text(texts(&[
            "1", "0.5", "100m", "1Gi", "1.5Ti", "12e6", "-3E2", "+0.0001Ki", "9223372036854775807",
            "1n", "18446744073709551616Ei",
        ])),
    ) {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let shown = quantity.to_string();
            let again = shown.parse::<Quantity>();
            let value = |quantity: Quantity| (quantity.value(), quantity.milli_value());
            prop_assert_eq!(again.map(value), Ok(value(quantity)), "{}", shown);
        }
    }

    #[test]
    fn a_name_of_an_image_is_one_with_its_default_tag_too(
        text in changed_text(texts(&[
            "busybox", "localhost:5000/a/b_c.d:v1.2", "registry.example/a@sha256:\
             0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "[fd00::1]:5000/x", "a/b--c:latest",
        ])),
    ) {
        if let Ok(reference) = ImageReference::parse(&text) {
            let whole = reference.with_default_tag();
            let again = ImageReference::parse(&whole);
            prop_assert!(again.is_ok_and(|it| it.with_default_tag() == whole), "{}", whole);
        }
    }
}
