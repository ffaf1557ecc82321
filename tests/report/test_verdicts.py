"""What opens behind a badge."""

from report_folder import case, flag, row

from rood.report import verdicts as module
from rood.report.numbers import Numbers
from rood.report.verdicts import Verdicts


def test_a_badge_opens_the_flags_of_its_own_number() -> None:
    rows = [*case("msp", 0.9, 0.6, verdict="warn"), flag("tied_scores", "warn", value=0.04)]
    rows += [*case("knn", 0.9, 0.8), flag("zero_gradient", "fail", "vim")]
    verdicts = Verdicts(Numbers(rows), [*rows[:2], *rows[3:5]])
    warned = verdicts.of(rows[1])
    assert warned is not None
    assert warned.where == "msp on net, both sides attacked, OOD images fashion, pgd, L∞ 0.1"
    (reason,) = warned.reasons
    assert (reason.name, reason.evidence) == ("tied_scores", "warn, 4.0\u00a0%")
    assert verdicts.of(rows[0]) is None  # clean: nothing to judge
    passed = verdicts.of(rows[4])
    assert passed is not None
    assert passed.id == "verdict-pass"
    assert verdicts.all() == [passed, warned]


def test_a_hostile_flag_is_no_hostile_anchor() -> None:
    rows = [*case("msp", 0.9, 0.6, verdict="fail"), flag('x" onclick="y', "fail")]
    (reason,) = Verdicts(Numbers(rows), rows).of(rows[1]).reasons
    assert reason.name == "x__onclick__y"


def test_the_documentation_is_linked_where_the_package_states_it(monkeypatch) -> None:
    stated = {"Project-URL": "Documentation, https://example.org/docs/"}

    class Metadata:
        def get_all(self, name: str) -> list[str]:
            return [stated[name]]

    monkeypatch.setattr(module.metadata, "metadata", lambda _: Metadata())
    for address, link in (
        ("https://example.org/docs/", "https://example.org/docs/understand/flags.html#tied_scores"),
        ("javascript:alert(1)", ""),
    ):
        stated["Project-URL"] = f"Documentation, {address}"
        module.documentation.cache_clear()
        assert module.flags_page("tied_scores") == link
    module.documentation.cache_clear()


def test_a_number_without_flags_still_opens() -> None:
    rows = [row(scenario="pgd linf:0.1", side="inside", verdict="fail")]
    note = Verdicts(Numbers(rows), rows).of(rows[0])
    assert note is not None
    assert "ID images attacked" in note.where
    assert note.reasons == ()
