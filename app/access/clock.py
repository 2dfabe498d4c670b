"""The clock of limits and budgets."""

import time


def unix_now() -> float:
    """Unix seconds. Wall-clock time, for meters survive a restart; one that is set back is met in `limits.run_off`."""
    return time.time()  # noqa: TID251
