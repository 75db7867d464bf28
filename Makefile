# make demo    migrate a script and train it before and after
# make test    every test, end-to-end ones included
# make test-trackers    the trackers against each of their clients, in $(VENV)-trackers (1.3 GB more)
# make test-xla    training by torch_xla on virtual devices, in $(VENV)-xla, with a torch of its own (7 GB)
# make test-gpu    what only an NVIDIA GPU can show, in 8 minutes
# make lint    ruff, mypy and the import contracts
# make docs    the documentation, into build/docs; a warning is an error
# make bench   the speed ratios
#
# Everything runs in $(VENV), which is made and filled when it is missing or out of date.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.docs-installed
PYTEST_ARGS ?=

.PHONY: demo test test-trackers test-xla test-gpu lint docs bench clean

$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (torch is large: this takes a while)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[torch]' --group dev
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python fixtures/demo/run_demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist loadfile $(PYTEST_ARGS)

test-trackers:
	@$(PYTHON) -m venv $(VENV)-trackers
	@$(VENV)-trackers/bin/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(VENV)-trackers/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[torch]' --group dev --group all-trackers
	$(VENV)-trackers/bin/python -m pytest -rs tests/runtime/test_tracker_clients.py $(PYTEST_ARGS)

test-xla:
	@$(PYTHON) -m venv $(VENV)-xla
	@$(VENV)-xla/bin/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(VENV)-xla/bin/python -m pip install --quiet --quiet --disable-pip-version-check \
		--editable '.[xla]' pytest pytest-timeout
	$(VENV)-xla/bin/python -m pytest -rs tests/runtime/test_xla.py $(PYTEST_ARGS)

test-gpu: $(INSTALLED)
	PYTHON=$(BIN)/python tests/gpu/run.sh

lint: $(INSTALLED)
	$(BIN)/ruff check . fixtures/demo/run_demo.py
	$(BIN)/ruff format --check . fixtures/demo/run_demo.py
	$(BIN)/mypy
	$(BIN)/lint-imports

$(DOCS_INSTALLED): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check \
		--constraint constraints.txt --group docs
	@touch $@

docs: $(DOCS_INSTALLED)
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/docs-read docs build/docs

bench: $(INSTALLED)
	@for benchmark in benchmarks/[!_]*.py; do \
		echo "== $$benchmark"; OMP_NUM_THREADS=1 $(BIN)/python $$benchmark || exit 1; \
	done

clean:
	rm -rf $(VENV) $(VENV)-trackers $(VENV)-xla build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
