"""The outcome of an audit as a JUnit file, which servers for continuous integration show."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from rood.evaluation.gate import Missing, attacked, failure
from rood.evaluation.rows import Row

# what XML 1.0 cannot hold, however it is escaped
FORBIDDEN = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def junit(rows: Sequence[Row], bar: float | None = None, missing: Sequence[Missing] = ()) -> bytes:
    """A test case for every network, detector, OOD set and budget with both sides attacked.

    It fails where the verdict on the attack is `fail`, or the AUROC is below the bar. `missing`
    names what should have been attacked and was not: each is a failure too.
    """
    found = attacked(rows)
    suite = ElementTree.Element("testsuite", name="rood audit", errors="0", skipped="0")
    failures = len(missing)
    for row in found:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=_plain(f"{row.model}.{row.detector}"),
            name=_plain(f"{row.dataset}, {row.scenario}"),
        )
        if said := failure(row, bar):
            failures += 1
            ElementTree.SubElement(
                case, "failure", message=_plain(said), type="gate"
            ).text = _plain(said)
    for name in missing:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_plain(str(name)), name="attacked"
        )
        ElementTree.SubElement(case, "failure", message="not attacked", type="gate")
    suite.set("tests", str(len(found) + len(missing)))
    suite.set("failures", str(failures))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    return bytes(ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True))


def _plain(text: str) -> str:
    return FORBIDDEN.sub("\ufffd", text)
