"""The project's addresses: no other module of the package names one."""

from __future__ import annotations

DOCUMENTATION = "https://tightbudget.github.io/tightbudget/"
"""The documentation site, with a slash at its end."""

REPOSITORY = "https://github.com/tightbudget/tightbudget"
"""The source repository, with its issues."""
