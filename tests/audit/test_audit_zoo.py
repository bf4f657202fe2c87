"""The audit's checks against a zoo of faulty models: each fault fails exactly the checks that are its own."""

from collections import Counter
from pathlib import Path

import pytest

from transformer.audit.run import CHECKS, audit
from zoo.catalogue import FAULTS, Fault
from zoo.decoder import language_model
from zoo.matrix import render
from zoo.translator import translation_model

README = Path(__file__).parents[2] / "README.md"


def test_models_without_faults_pass() -> None:
    for model, absent in (
        (language_model(), {"source seen", "encoder leak", "source padded right", "source padded left"}),
        (translation_model(), {check.name for check in CHECKS if check.name.startswith("cached")}),
    ):
        report = audit(model)
        assert report.failures == []
        assert {row.name for row in report.rows if row.status == "not applicable"} == absent


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.text for fault in FAULTS])
def test_fault_fails_its_own_checks_and_no_others(fault: Fault) -> None:
    report = audit(fault.make())
    assert {row.name for row in report.failures} == fault.fails
    assert not report.passed


def test_every_check_has_a_fault_that_it_catches() -> None:
    caught = Counter(name for fault in FAULTS for name in fault.fails)
    assert set(caught) == {check.name for check in CHECKS}
    # No check hides behind others: each has a fault that it alone, or with its nearest kin, notices.
    assert max(len(fault.fails) for fault in FAULTS) == 3
    assert len({fault.text for fault in FAULTS}) == len(FAULTS) >= 40


def test_checks_stand_behind_those_that_they_need() -> None:
    seen: set[str] = set()
    for check in CHECKS:
        assert set(check.needs) <= seen, check.name
        seen.add(check.name)


def test_readme_shows_the_matrix() -> None:
    text = README.read_text(encoding="utf-8")
    _, _, behind = text.partition("<!-- audit matrix -->\n")
    matrix, end, _ = behind.partition("<!-- end of audit matrix -->")
    assert end
    assert matrix.strip() == render().strip()
