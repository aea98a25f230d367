# Each target sets up what it needs on an empty machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The matrices here are small: more BLAS threads cost more than they bring, and two test workers
# already keep two cores busy.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

# Two workers with a half of the tests each, in order, so that fixtures and imports are shared; one
# that is done takes over tests of the other, so that none waits for a long end.
WORKERS := -n 2 --dist worksteal

# The edit loop: rooms with closed forms, the front door's results, and the house itself.
FAST := $(addprefix tests/,kernels embeddings rules points distributions problems gp regression \
	plots test_package.py test_logging.py test_release.py evaluate/test_arrays.py \
	front/test_front_result.py front/test_front_labels.py front/test_front_compare.py \
	docs/test_docs_links.py docs/test_docs_search.py methods/test_estimators_by_hand.py \
	studies/test_runner.py)

.PHONY: demo reproduce test suite test-fast test-slow lint bench docs dist clean

demo: $(VENV)/.demo
	$(BIN)/nestquad demo --out demo-output

reproduce: $(VENV)/.demo
	$(BIN)/python -m studies paper all --out results

# Types are checked beside the tests: each alone would leave a core idle.
test: $(VENV)/.test
	$(MAKE) --jobs 2 lint suite

suite: $(VENV)/.test
	$(BIN)/python -m pytest $(WORKERS) -q

test-fast: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/python -m pytest $(WORKERS) -q $(FAST)

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest $(WORKERS) -q -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m studies promises --out docs
	$(BIN)/python -m studies families --out docs
	$(BIN)/python -m studies seconds --out docs
	$(BIN)/python -m studies risk --out docs
	$(BIN)/python -m studies published --out docs --runs 20

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and sdist; the wheel with numpy and scipy alone in a fresh environment of each interpreter.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python packaging/release.py check
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/check_dist.py dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[plot]" --constraint constraints.txt
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --editable ".[test]" --constraint constraints.txt
	touch $@

$(VENV)/.bench: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --editable ".[bench]" --constraint constraints.txt
	touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --editable ".[docs]" --constraint constraints.txt
	touch $@

$(VENV)/.dist: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet ".[dist]" --constraint constraints.txt
	touch $@

clean:
	rm -rf $(VENV) build dist site demo-output results .pytest_cache .mypy_cache .ruff_cache
