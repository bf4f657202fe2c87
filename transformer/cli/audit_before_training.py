"""The audit at the start of a training run: a model that is wrong is not worth training."""

import sys

from rich.console import Console

from transformer.audit.project import audited
from transformer.audit.run import audit
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

FAILED = 1


def audit_before_training(model: EncoderDecoder | DecoderOnly, console: Console) -> None:
    """Run the quick checks; say in one line that they pass, or end with status 1 and the sentences of those that fail.

    Neither the model nor any random number of the run changes.
    """
    report = audit(audited(model, fresh=True), quick=True)
    if report.passed:
        passed = sum(row.status == "pass" for row in report.rows)
        console.print(f"audit   {passed} checks passed in {report.seconds:.1f} s", highlight=False)
        return
    print("error: the model fails its audit, so nothing was trained:", file=sys.stderr)
    for row in report.failures:
        how = ""
        if row.measured is not None and row.tolerance is not None:
            how = f" ({row.measured:.2g}, must be {'above' if row.at_least else 'at most'} {row.tolerance:.2g})"
        print(f"  {row.name}: {row.sentence}{how}", file=sys.stderr)
    print("`audit: false` trains it nevertheless.", file=sys.stderr)
    sys.exit(FAILED)
