"""JSON that stands inside a page."""

import json
import math

from rood.report.templating import embedded


def test_embedded_json_cannot_end_its_element_and_has_no_nan() -> None:
    value = {"</script>": ["<!--", "&", "\u2028\u2029", math.nan, -math.inf, (1.5,)]}
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script>": ["<!--", "&", "\u2028\u2029", None, None, [1.5]]}
