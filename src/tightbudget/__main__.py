"""``python -m tightbudget``."""

from tightbudget.cli import main

if __name__ == "__main__":
    main()
