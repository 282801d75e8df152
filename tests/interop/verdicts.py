"""Runs cases that fail by an assertion, and sums up."""


def run(name, what, cases, check):
    """Checks each case by its name; returns the exit status."""
    failed = 0
    for case in cases:
        try:
            check(case)
        except (AssertionError, ValueError) as error:
            failed += 1
            print(f"{case}: {error}")
    print(f"{name}: {len(cases)} {what}, {failed} differ")
    return 1 if failed else 0
