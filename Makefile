# Everything here needs only make and Python >= 3.11. `make help` lists the targets.

# The first interpreter that runs, is new enough and can make environments. A name on
# the PATH is not enough: version managers leave names behind that run nothing.
NEW_ENOUGH = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	if $$name -c '$(NEW_ENOUGH)' >/dev/null 2>&1; then command -v $$name; break; fi; done)

WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
REPRODUCE_ARGS ?=
BENCH_ARGS ?=
LOCK_ARGS ?=
PEERS_ARGS ?=

# Tests and pages start many Pythons: with compiled modules each starts in half the time, and
# pytest keeps the test files that it has rewritten.
unexport PYTHONDONTWRITEBYTECODE

PYTEST = .venv/bin/python -m pytest -n $(WORKERS) --dist worksteal

PIP = -m pip --disable-pip-version-check --quiet
# A lock names all that is installed. With --no-deps pip reads nothing else: otherwise, of a
# requirement with an extra (coverage[toml]) it tries the newest release, and refuses what is not locked.
INSTALL_LOCKED = $(PIP) install --no-deps --require-hashes -r
# No index is asked: the build backend is in every lock file.
INSTALL_SELF = $(PIP) install --no-deps --no-build-isolation --no-index --editable .

.DEFAULT_GOAL := help
.PHONY: help demo test slow cover adapters peers tools synthesizers proofs lint types floors unit bench docs \
	docs-serve reproduce package sbom audit schemas lock format clean env

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

demo: .venv/.demo  ## run examples/demo.py
	.venv/bin/python examples/demo.py $(DEMO_ARGS)

test: lint types floors unit  ## every check but the slow tests: lint, types, floors, the tests

slow: .venv/.docs  ## the slow tests: whole figures, audits of many runs, pages in a browser, all cases of a law
	$(PYTEST) -m slow $(PYTEST_ARGS)

# Coverage makes a test slower by half: it may use more before it has to be marked slow.
cover: .venv/.test  ## the tests of `make unit` with branch coverage
	TEST_CPU_SECONDS=6 $(PYTEST) -m "not slow" --cov --cov-report=term $(PYTEST_ARGS)

# The first test that needs PyTorch pays for its import, which takes many seconds.
adapters: .venv/.adapters  ## the tests and pages that need PyTorch, Opacus, JAX Privacy and mbi, which are large
	TEST_CPU_SECONDS=inf $(PYTEST) -m needs tests/adapters tests/docs $(PYTEST_ARGS)

# The list of each peer is a file of peers/; without a network its suite is skipped, and a line says so.
peers: .venv/.adapters  ## the tests of dp-accounting, Opacus and JAX Privacy, run against the adapters; fetches them
	.venv/bin/python peers/run.py --workers $(WORKERS) $(PEERS_ARGS)

# Pages that say which tool they need, and the tests with the mark `needs`. Nothing is sent anywhere.
tools: .venv-tools/.tools  ## the tests and pages that need Flower, NVFlare, Optuna, MLflow, W&B or Great Tables
	TEST_CPU_SECONDS=inf FLWR_TELEMETRY_ENABLED=0 WANDB_MODE=offline \
		.venv-tools/bin/python -m pytest -m needs tests/tools tests/docs/test_docs.py $(PYTEST_ARGS)

# Packages that make synthetic tables, which pin other NumPy, OpenDP and mbi than each other and we do: an
# environment each. MBI_SCRIPTS=DIR asks the scripts of mbi's repository, too. Not in .ci/run.
SYNTHESIZERS = dpmm opendp smartnoise
synthesizers: $(SYNTHESIZERS:%=.venv-synthesizers/%/.made)  ## recipes that give dpmm, OpenDP and SmartNoise our scale
	for name in $(SYNTHESIZERS); do .venv-synthesizers/$$name/bin/python -m pytest --noconftest -c /dev/null -q \
		-W ignore tests/adapters/test_marginal_peers.py $(PYTEST_ARGS) || exit 1; done

proofs:  ## the theorems that a budget stands on, checked by Coq (which must be there: Debian's package coq)
	proofs/check.sh

env: .venv/.test  ## make .venv with everything the checks need, and run nothing

lint: .venv/.test  ## ruff: rules and format
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .

types: .venv/.test  ## mypy
	.venv/bin/python -m mypy --num-workers $(WORKERS)

floors: .venv/.test  ## import-linter: imports go down only
	.venv/bin/python -c 'from importlinter.cli import lint_imports_command as run; run()'

unit: .venv/.test  ## pytest but for the slow tests; e.g. make unit PYTEST_ARGS="-k gaussian"
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

format: .venv/.test  ## fix what ruff can fix, then format
	.venv/bin/python -m ruff check --fix-only .
	.venv/bin/python -m ruff format .

bench: .venv-bench/.bench .venv/.test  ## run the benchmarks in their own environment
	.venv-bench/bin/python benchmarks/run.py $(BENCH_ARGS)
	.venv-bench/bin/python benchmarks/digits.py
	.venv-bench/bin/python benchmarks/start.py
	PYTHONPATH=. .venv/bin/python benchmarks/ledger.py $(if $(BEFORE),--before $(BEFORE))
	PYTHONPATH=. .venv/bin/python benchmarks/web.py $(if $(BEFORE),--before $(BEFORE))
	.venv-bench/bin/python benchmarks/sweep.py
	.venv-bench/bin/python benchmarks/sampling.py
	.venv-bench/bin/python benchmarks/selections.py
	.venv/bin/python benchmarks/accountants.py

reproduce: .venv/.demo  ## papers' tables and figures anew, with a report in out/
	.venv/bin/tightbudget reproduce $(REPRODUCE_ARGS)

# What MkDocs prints about its own future, once by each of two plugins, is left out:
# docs/decisions/0014-mkdocs-material-for-now.md answers it.
MKDOCS = NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true .venv/bin/python -m mkdocs

docs: .venv/.docs  ## the documentation site in site/, with its links checked
	$(MKDOCS) build --strict

docs-serve: .venv/.docs  ## the documentation site on http://127.0.0.1:8000, anew at each change
	$(MKDOCS) serve

package: .venv-package/.package  ## build the wheel and the source distribution into dist/, and check them
	rm -f dist/tightbudget-*
	.venv-package/bin/python -m build --no-isolation --outdir dist .
	.venv-package/bin/python -m twine check --strict dist/tightbudget-*.whl dist/tightbudget-*.tar.gz

# Of what a server runs (the container, too), and of all that the tests run beside it.
sbom: .venv-package/.package  ## bills of materials (CycloneDX) from the lock files, into dist/
	@mkdir -p dist
	@for lock in serve test; do \
		.venv-package/bin/cyclonedx-py requirements requirements/$$lock.txt --pyproject pyproject.toml \
			--output-reproducible --output-format JSON --output-file dist/sbom-$$lock.cdx.json || exit 1; \
	done

audit: .venv-package/.package  ## known vulnerabilities of what the lock files name: asks a service, so it needs a network
	.venv-package/bin/pip-audit --disable-pip --require-hashes \
		$(foreach lock,serve test docs package bench tools,--requirement requirements/$(lock).txt)

CHECK = .venv-package/bin/check-jsonschema --builtin-schema

schemas: .venv-package/.package  ## files that only a hosting service reads, against their schemas
	$(CHECK) vendor.github-workflows .github/workflows/*.yml
	$(CHECK) vendor.github-issue-forms .github/ISSUE_TEMPLATE/[0-9]*.yml
	$(CHECK) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK) vendor.dependabot .github/dependabot.yml
	$(CHECK) vendor.compose-spec compose.yaml
	$(CHECK) vendor.citation-file-format CITATION.cff

clean:  ## remove environments, caches and build output
	rm -rf .venv .venv-bench .venv-tools .venv-synthesizers .venv-package .venv-lock .peers
	rm -rf build dist site htmlcov .coverage .coverage.*
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests papers examples benchmarks peers -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ------------------------------------------------------------------- environments
# A stamp says which lock file an environment holds. The test lock contains the demo
# lock pin by pin, so one .venv serves both, and `make test` extends what `make demo` made.

define make_env
	@if [ -z "$(PYTHON)" ]; then \
		echo "tightbudget needs Python 3.11 or newer, with the venv module, and found none."; \
		echo "Install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)"; exit 1; fi
	@if [ ! -x $(1)/bin/python ]; then \
		"$(PYTHON)" -c '$(NEW_ENOUGH)' || { echo "$(PYTHON) is not a Python >= 3.11 with venv"; exit 1; }; \
		echo "making $(1) with $(PYTHON)"; "$(PYTHON)" -m venv $(1); fi
endef

.venv/.demo: requirements/demo.txt pyproject.toml
	$(call make_env,.venv)
	.venv/bin/python $(INSTALL_LOCKED) requirements/demo.txt
	.venv/bin/python $(INSTALL_SELF)
	@touch $@

.venv/.test: requirements/test.txt requirements/demo.txt pyproject.toml
	$(call make_env,.venv)
	.venv/bin/python $(INSTALL_LOCKED) requirements/test.txt
	.venv/bin/python $(INSTALL_SELF)
	@touch .venv/.demo $@

.venv/.docs: requirements/docs.txt .venv/.test
	.venv/bin/python $(INSTALL_LOCKED) requirements/docs.txt
	@touch $@

# Without hashes: PyTorch's builds for one processor or another share a version and no hash.
.venv/.adapters: requirements/adapters.txt .venv/.test
	.venv/bin/python $(PIP) install -r requirements/adapters.txt
	@touch $@

.venv-tools/.tools: requirements/tools.txt pyproject.toml
	$(call make_env,.venv-tools)
	.venv-tools/bin/python $(INSTALL_LOCKED) requirements/tools.txt
	.venv-tools/bin/python $(INSTALL_SELF)
	@touch $@

.venv-synthesizers/%/.made: requirements/synthesizers/%.txt
	$(call make_env,$(@D))
	$(@D)/bin/python $(PIP) install --no-deps -r $<
	@touch $@

.venv-bench/.bench: requirements/bench.txt pyproject.toml
	$(call make_env,.venv-bench)
	.venv-bench/bin/python $(INSTALL_LOCKED) requirements/bench.txt
	.venv-bench/bin/python $(INSTALL_SELF)
	@touch $@

.venv-package/.package: requirements/package.txt
	$(call make_env,.venv-package)
	.venv-package/bin/python $(INSTALL_LOCKED) requirements/package.txt
	@touch $@

# -------------------------------------------------------------------------- locks
# Resolve for the oldest Python we support: make lock PYTHON=python3.11. Pins stay where
# they are unless asked: make lock LOCK_ARGS=--upgrade.

COMPILE = CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/python -m piptools compile --quiet \
	--generate-hashes --allow-unsafe --strip-extras --no-emit-options \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host $(LOCK_ARGS)

lock: .venv-lock/.lock  ## resolve requirements/*.txt again from pyproject.toml and requirements/*.in
	$(COMPILE) $(foreach extra,plot postgresql sklearn web remote sweep dask data,--extra $(extra)) \
		--output-file requirements/test.txt pyproject.toml requirements/test.in
	$(COMPILE) --extra plot --extra ledger --constraint requirements/test.txt \
		--output-file requirements/demo.txt pyproject.toml requirements/build.in
	$(COMPILE) --constraint requirements/test.txt \
		--output-file requirements/docs.txt requirements/docs.in
	$(COMPILE) --extra sklearn --extra ledger --extra sweep --extra data \
		--output-file requirements/tools.txt pyproject.toml requirements/tools.in
	$(COMPILE) --extra postgresql --output-file requirements/bench.txt pyproject.toml requirements/bench.in
	$(COMPILE) --extra web --extra postgresql --constraint requirements/test.txt \
		--output-file requirements/serve.txt pyproject.toml requirements/build.in
	$(COMPILE) --output-file requirements/package.txt requirements/package.in

.venv-lock/.lock:
	$(call make_env,.venv-lock)
	.venv-lock/bin/python $(PIP) install pip-tools==7.6.2
	@touch $@
