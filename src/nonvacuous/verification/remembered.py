"""The certificate against the ledger of attempts: what was computed on these examples before."""

from __future__ import annotations

from pathlib import Path

from nonvacuous.certificate import Certificate
from nonvacuous.certification.run_folder import settings_digest
from nonvacuous.rules.attempts import Attempt, ledger_beside, read_attempts, standing
from nonvacuous.verification.findings import Collector, Disagreement
from nonvacuous.verification.run_folder import Contents

_NAME = "the ledger of attempts knows this certificate"


def check_attempts(
    certificate: Certificate,
    contents: Contents,
    folder: Path,
    ledger: Path | None,
    findings: Collector,
) -> None:
    """Its settings have a line there, with the share of the confidence that it took."""
    path = ledger_beside(folder) if ledger is None else ledger
    entries = read_attempts(path)
    rivals = [a for a in entries if a.bound == certificate.data.bound.content_digest]
    if not contents.settings or not rivals:
        why = (
            "the settings are not at hand."
            if not contents.settings
            else f"{path} knows nothing of these examples."
            if entries
            else "there is none beside the run; name it with --ledger (ledger= in Python)."
        )
        findings.skip(_NAME, "attempts", why, needed=False)
        return

    def work() -> str:
        digest = settings_digest(contents.settings)
        own = [attempt for attempt in rivals if attempt.config == digest]
        if not own:
            raise Disagreement(
                f"it has {len(rivals)} lines about these examples and none with the settings of "
                "config.toml: they were changed, or the run was moved beside a ledger that is not "
                "its own."
            )
        paid = contents.settings.get("attempts")
        mine = [attempt for attempt in own if attempt.paid == paid]
        if not mine:
            shares = " and ".join(sorted({str(attempt.paid) for attempt in own}))
            raise Disagreement(
                f"config.toml says that {paid} certificates share the confidence; the ledger has "
                f"this one with {shares}."
            )
        ended: list[Attempt] = [attempt for attempt in mine if attempt.outcome]
        if len({attempt.outcome for attempt in ended}) == 1:
            contents.standing = standing(entries, ended[0])
        return f"{len(rivals)} lines about these examples, {len(own)} of them its own."

    findings.expect(_NAME, "attempts", work)
