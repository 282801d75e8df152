"""Runs cases that fail with an assertion, and prints a summary."""


def run(name, what, cases, check):
    """Calls `check` with the name of each case, and returns the exit status."""
    failed = 0
    for case in cases:
        try:
            check(case)
        except (AssertionError, ValueError) as error:
            failed += 1
            print(f"{case}: {error}")
    print(f"{name}: {len(cases)} {what}, {failed} differ")
    return 1 if failed else 0
