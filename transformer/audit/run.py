"""The audit: all checks of one model, and their report."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from transformer.audit.checks import (
    basics,
    batches,
    causality,
    decoding,
    losses,
    padding,
    parameters,
    precision,
    residuals,
    sources,
)
from transformer.audit.model import AuditedModel
from transformer.audit.outcome import AuditReport, CheckResult, Measurement, NotApplicable, Status, Violation, one_line
from transformer.audit.sampling import Sampling
from transformer.audit.subject import CannotCopyError, Subject, untouched_random_numbers


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: in the report.
        theme: what it belongs to.
        run: takes the subject; gives a measurement, or raises NotApplicable or Violation.
        needs: checks whose failure would make this one fail, too, or mean nothing. It is left out then, so that a
            report names the cause and not what follows from it.
        quick: whether it is among those of a training run's start.
    """

    name: str
    theme: str
    run: Callable[[Subject], Measurement]
    needs: tuple[str, ...] = ()
    quick: bool = False


RUNS = ("runs",)
FLOWS = (*RUNS, "gradients flow")
# What compares outputs means nothing if they differ from call to call.
SAME = (*RUNS, "deterministic", "dropout off")
CAUSAL = (*SAME, "future changed")
SEPARATE = (*CAUSAL, "alone in a batch", "order of a batch")

# Each stands behind those that it needs.
CHECKS = (
    Check("runs", "basics", basics.runs, quick=True),
    Check("deterministic", "basics", basics.deterministic, RUNS, quick=True),
    Check("gradients flow", "basics", basics.gradients_flow, RUNS, quick=True),
    Check("dropout off", "basics", basics.dropout_off, (*RUNS, "deterministic"), quick=True),
    Check("dropout on", "basics", basics.dropout_on, (*RUNS, "deterministic"), quick=True),
    Check("future changed", "causality", causality.future_changed, SAME, quick=True),
    Check("future gradient", "causality", causality.future_gradient, FLOWS),
    Check("past seen", "causality", causality.past_seen, SAME, quick=True),
    Check("source seen", "source", sources.source_seen, SAME, quick=True),
    Check("encoder leak", "source", sources.memory_of_source_alone, SAME, quick=True),
    Check("alone in a batch", "batch", batches.alone, SAME, quick=True),
    Check("order of a batch", "batch", batches.order, SAME),
    Check("neighbours", "batch", batches.neighbours, SAME),
    Check("source padded right", "padding", partial(padding.source_padding, side="right"), SAME, quick=True),
    Check("source padded left", "padding", partial(padding.source_padding, side="left"), SAME),
    Check("target padded right", "padding", partial(padding.target_padding, side="right"), CAUSAL, quick=True),
    Check("target padded left", "padding", partial(padding.target_padding, side="left"), CAUSAL, quick=True),
    Check("stepwise", "decoding", decoding.stepwise, (*CAUSAL, "target padded right"), quick=True),
    Check("cached", "decoding", decoding.cached, (*CAUSAL, "stepwise"), quick=True),
    Check("cached, padded", "decoding", decoding.cached_padding,
          (*CAUSAL, "cached", "source padded right", "target padded left")),
    Check("cached, rows chosen", "decoding", decoding.cached_rows, (*SEPARATE, "cached")),
    Check("cached, two sessions", "decoding", decoding.cached_sessions, (*CAUSAL, "cached")),
    Check("fully masked rows", "numbers", precision.fully_masked_rows, FLOWS, quick=True),
    Check("finite in float32", "numbers", partial(precision.finite, dtype=torch.float32), FLOWS),
    Check("finite in bfloat16", "numbers", partial(precision.finite, dtype=torch.bfloat16), FLOWS),
    Check("finite in float16", "numbers", partial(precision.finite, dtype=torch.float16), FLOWS),
    Check("residual kept", "structure", residuals.residual_kept, SAME, quick=True),
    Check("parameters used", "structure", parameters.all_used, (*FLOWS, "source seen"), quick=True),
    Check("weights tied", "structure", parameters.tied_shared, RUNS, quick=True),
    Check("saved and loaded", "structure", parameters.save_and_load, SAME),
    Check("label shift", "loss", losses.label_shift, SEPARATE, quick=True),
    Check("padding unscored", "loss", losses.padding_unscored,
          (*SEPARATE, "stepwise", "label shift"), quick=True),
    Check("initial loss", "initial weights", losses.initial_loss, RUNS),
    Check("initial scale", "initial weights", residuals.initial_scale, RUNS),
)  # fmt: skip


def audit(model: AuditedModel, *, quick: bool = False, device: torch.device | str = "cpu") -> AuditReport:
    """Check what a model's outputs do when its inputs change.

    The module that is given stays as it is, and so do all random number generators.

    Args:
        model: the module, and how to call it.
        quick: the most important checks on short inputs, a few seconds at most.
        device: where copies of the module are checked.

    Raises:
        ValueError: the module cannot be copied.
    """
    began, place = time.perf_counter(), torch.device(device)
    sampling = Sampling.of(model, quick=quick)
    rows, causes = list[CheckResult](), dict[str, str]()
    with untouched_random_numbers(place):
        subject = Subject(model, sampling, place)
        for check in CHECKS:
            if quick and not check.quick:
                continue
            cause = next((causes[name] for name in check.needs if name in causes), None)
            if cause is None:
                rows.append(_result(check, subject))
                if rows[-1].status == "fail":
                    causes[check.name] = check.name
            else:
                rows.append(_row(check, "not applicable", f"left out, because `{cause}` fails"))
                causes[check.name] = cause
        notes = sampling.notes(model)
        if subject.woken:
            more = f" and {len(subject.woken) - 1} more" if len(subject.woken) > 1 else ""
            notes.append(f"`{subject.woken[0]}`{more} start at zero and were given small random values for the checks")
        if rows[0].status == "pass" and sampling.exact and subject.exact_dtype != torch.float64:
            notes.append("the module does not run in float64; outputs were compared in float32")
    return AuditReport(tuple(rows), tuple(notes), time.perf_counter() - began)


def _result(check: Check, subject: Subject) -> CheckResult:
    try:
        found = check.run(subject)
    except CannotCopyError:
        raise
    except NotApplicable as reason:
        return _row(check, "not applicable", str(reason))
    except Violation as reason:
        return _row(check, "fail", str(reason))
    except Exception as error:  # whatever a foreign module raises on an input that it must take
        return _row(check, "fail", f"the model raised {one_line(error)}")
    status: Status = "pass" if found.passed else "fail"
    return CheckResult(check.name, check.theme, status, found.value, found.bound, found.at_least, found.text)


def _row(check: Check, status: Status, sentence: str) -> CheckResult:
    return CheckResult(check.name, check.theme, status, None, None, False, sentence)
